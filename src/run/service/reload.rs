//! Reload: open and check beside the running engine, shadow, swap between frames, probation, rollback. The old engine runs
//! on through every failure, and comes back by itself when the new one faults soon after the swap.

use super::{CLOSE_LIMIT, Service, short};
use crate::aside::AsideFile;
use crate::bundle::Bundle;
use crate::bundle::golden::{Prover, hard_fault};
use crate::bundle::manifest::Manifest;
use crate::detections::{Detection, Detector};
use crate::error::{Error, Result};
use crate::frame::Frame;
use crate::guard::ladder::Step;
use crate::run::Options;
use crate::run::host::Host;
use crate::run::inspector::Inspector;
use crate::run::ready::{self, Loading, Ready};
use crate::run::source::EngineSource;
use crate::sinks::http::Phase;
use crate::telemetry::Metric;
use crate::units::{float64, length};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The copy of the last bundle that worked, in the state folder.
const LAST_GOOD: &str = "last_good.edge";
/// A file of this name in the state folder asks for the last good bundle: `edge-run rollback`.
pub const ROLLBACK_REQUEST: &str = "rollback";

/// How bundles are replaced while the line runs.
#[derive(Debug, Clone)]
pub struct ReloadOptions {
    /// Whether the bundle's file is watched.
    pub watch: bool,
    /// A changed file must rest this long before it is looked at.
    pub rest: Duration,
    /// Frames that both engines answer before the swap.
    pub shadow_frames: u64,
    /// The shadow takes no longer than this; without frames the proof alone decides.
    pub shadow_limit: Duration,
    /// Least mean agreement of boxes in the shadow, 0..1.
    pub agreement: f64,
    /// The old engine stays ready this long after the swap.
    pub probation: Duration,
    /// Where requests come in and outcomes can be seen.
    pub door: Arc<ReloadDoor>,
}

impl Default for ReloadOptions {
    fn default() -> Self {
        ReloadOptions {
            watch: false,
            rest: Duration::from_secs(1),
            shadow_frames: 30,
            shadow_limit: Duration::from_secs(60),
            agreement: 0.8,
            probation: Duration::from_secs(30),
            door: Arc::default(),
        }
    }
}

/// How a request for another bundle ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// The bundle with this id answers now.
    Swapped(String),
    /// The file holds the bundle that runs already.
    Unchanged,
    /// The old one goes on; why.
    Refused(String),
    /// The bundle before answers again; why.
    RolledBack(String),
}

/// Requests for another bundle, from signals, HTTP and tests, and how they ended.
#[derive(Debug, Default)]
pub struct ReloadDoor {
    state: Mutex<DoorState>,
}

#[derive(Debug, Default)]
struct DoorState {
    reload: bool,
    rollback: bool,
    settled: u64,
    last: Option<Settled>,
}

impl ReloadDoor {
    fn lock(&self) -> std::sync::MutexGuard<'_, DoorState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks to look at the bundle's file.
    pub fn ask(&self) {
        self.lock().reload = true;
    }

    /// Asks for the last bundle that worked.
    pub fn ask_rollback(&self) {
        self.lock().rollback = true;
    }

    /// Requests that have ended, and how the last one did.
    pub fn settled(&self) -> (u64, Option<Settled>) {
        let state = self.lock();
        (state.settled, state.last.clone())
    }

    fn take(&self) -> (bool, bool) {
        let mut state = self.lock();
        (std::mem::take(&mut state.reload), std::mem::take(&mut state.rollback))
    }

    fn settle(&self, how: Settled) {
        let mut state = self.lock();
        state.settled += 1;
        state.last = Some(how);
    }
}

/// What is known of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMark {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: Option<SystemTime>,
}

impl FileMark {
    fn of(path: &Path) -> Option<FileMark> {
        let about = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
        Some(FileMark { device: about.dev(), inode: about.ino(), bytes: about.len(), changed: about.modified().ok() })
    }
}

/// A refusal, with the bundle's id where that was known.
struct Refusal {
    id: Option<String>,
    error: Error,
}

enum Stage {
    Idle,
    Loading(Receiver<Result<Option<Ready>, Refusal>>),
    Shadow(Box<Shadow>),
}

struct Shadow {
    ready: Ready,
    detector: Detector,
    boxes: Vec<Detection>,
    frames: u64,
    agreement: f64,
    since: Instant,
    /// Frames that are wanted; 0 for a rollback, which only waits for a moment without parts.
    wanted: u64,
}

/// The old engine, ready to come back.
struct Before {
    bundle: Arc<Bundle>,
    host: Host,
    prover: Prover,
    call_limit: Duration,
    until: Instant,
}

/// Where reloading stands.
pub(super) struct Reloader {
    stage: Stage,
    failed: BTreeSet<String>,
    path: PathBuf,
    seen: Option<FileMark>,
    resting: Option<(FileMark, Instant)>,
    looked: Instant,
    before: Option<Before>,
}

impl Reloader {
    const MOST_FAILED: usize = 1000;

    pub(super) fn new(path: &Path) -> Self {
        Reloader {
            stage: Stage::Idle,
            failed: BTreeSet::new(),
            path: path.to_owned(),
            seen: FileMark::of(path),
            resting: None,
            looked: Instant::now(),
            before: None,
        }
    }

    pub(super) fn shadows(&self) -> bool {
        matches!(self.stage, Stage::Shadow(_))
    }

    /// Whether the file has changed and rested since; asked at most ten times a second.
    fn file_changed(&mut self, rest: Duration) -> bool {
        if self.looked.elapsed() < rest.min(Duration::from_millis(100)) {
            return false;
        }
        self.looked = Instant::now();
        let Some(mark) = FileMark::of(&self.path).filter(|mark| Some(*mark) != self.seen && mark.bytes > 0) else {
            self.resting = None;
            return false;
        };
        match self.resting {
            Some((resting, since)) if resting == mark => {
                if since.elapsed() < rest {
                    return false;
                }
                self.seen = Some(mark);
                self.resting = None;
                true
            }
            _ => {
                self.resting = Some((mark, Instant::now()));
                false
            }
        }
    }

    fn remember_failed(&mut self, id: Option<String>) {
        if self.failed.len() < Self::MOST_FAILED {
            self.failed.extend(id);
        }
    }
}

impl Service<'_> {
    /// The last good bundle of an earlier run, when there is one that fits.
    pub(super) fn find_last_good(&mut self) {
        let Some(path) = self.options.service.state.as_ref().map(|state| state.join(LAST_GOOD)) else { return };
        if !path.is_file() {
            return;
        }
        match self.source.open(&path) {
            Ok(bundle) if bundle.id() == self.bundle.id() => {}
            Ok(bundle) => match check_compatible(self.bundle.manifest(), bundle.manifest()) {
                Ok(()) => self.set_last_good(Some(Arc::new(bundle))),
                Err(error) => log::info!("the last good bundle does not fit any more: {}", error.message()),
            },
            Err(error) => log::warn!("the last good bundle cannot be used: {error}"),
        }
    }

    pub(super) fn set_last_good(&mut self, bundle: Option<Arc<Bundle>>) {
        self.last_good = bundle;
        let left = self.source.devices().saturating_sub(self.device + 1);
        self.ladder.resources(self.last_good.is_some(), left);
    }

    /// One look between two frames; never waits.
    pub(super) fn reload_step(&mut self, inspector: &mut Inspector) -> Result<()> {
        self.end_probation();
        let (mut reload, rollback) = self.options.service.reload.door.take();
        reload |= self.options.service.reload.watch && self.reloader.file_changed(self.options.service.reload.rest);
        if rollback || self.rollback_file() {
            self.roll_back_by_hand(inspector);
        } else if reload {
            self.begin_reload();
        }
        match std::mem::replace(&mut self.reloader.stage, Stage::Idle) {
            Stage::Idle => {}
            Stage::Loading(loading) => match loading.try_recv() {
                Err(TryRecvError::Empty) => self.reloader.stage = Stage::Loading(loading),
                Err(TryRecvError::Disconnected) => {
                    self.refuse(None, &Error::unexpected("the loading thread ended early"))
                }
                Ok(Ok(None)) => self.settle(Settled::Unchanged),
                Ok(Ok(Some(ready))) => self.begin_shadow(ready),
                Ok(Err(refusal)) => self.refuse(refusal.id, &refusal.error),
            },
            Stage::Shadow(shadow) => self.look_at_shadow(inspector, shadow)?,
        }
        Ok(())
    }

    fn settle(&self, how: Settled) {
        match &how {
            Settled::Swapped(id) => log::warn!("reload: bundle {} answers now", short(id)),
            Settled::Unchanged => log::info!("reload: the file holds the bundle that runs already"),
            Settled::Refused(why) => log::error!("reload refused, the old bundle goes on: {why}"),
            Settled::RolledBack(why) => log::error!("rolled back to bundle {}: {why}", short(self.bundle.id())),
        }
        let word = match &how {
            Settled::Swapped(_) => "swapped",
            Settled::Unchanged => "unchanged",
            Settled::Refused(_) => "refused",
            Settled::RolledBack(_) => "rolled_back",
        };
        self.telemetry.count(Metric::Reloads, self.labels().because(word));
        self.options.service.reload.door.settle(how);
    }

    fn refuse(&mut self, id: Option<String>, error: &Error) {
        self.rolling_back = false;
        self.reloader.remember_failed(id);
        self.settle(Settled::Refused(error.to_string().replace('\n', " ")));
    }

    fn begin_reload(&mut self) {
        if !matches!(self.reloader.stage, Stage::Idle) {
            return self.refuse(None, &Error::usage("another bundle is being looked at"));
        }
        if let Some(kind) = self.memory.alarm() {
            return self.refuse(None, &Error::usage(format!("the {kind}'s memory is short")));
        }
        let path = self.reloader.path.clone();
        let (running, failed) = (Arc::clone(&self.bundle), self.reloader.failed.clone());
        let open = move |source: &dyn EngineSource| {
            let bundle = source.open(&path).map_err(|error| Refusal { id: None, error })?;
            let id = bundle.id().to_owned();
            if id == running.id() {
                return Ok(None);
            }
            let refusal = |error: Error| Refusal { id: Some(id.clone()), error: error.at(path.display()) };
            if failed.contains(&id) {
                return Err(refusal(Error::refused(format!("bundle {} has failed before", short(&id)))));
            }
            check_compatible(running.manifest(), bundle.manifest()).map_err(refusal)?;
            Ok(Some(Arc::new(bundle)))
        };
        self.load_beside(open);
    }

    /// Loads on a thread of its own while the running engine answers.
    fn load_beside(
        &mut self,
        open: impl FnOnce(&dyn EngineSource) -> Result<Option<Arc<Bundle>>, Refusal> + Send + 'static,
    ) {
        let (send, receive) = sync_channel(1);
        let (source, options, device) = (Arc::clone(&self.source), self.options.clone(), self.device);
        let work = move || {
            let loaded = open(&*source).and_then(|bundle| {
                let Some(bundle) = bundle else { return Ok(None) };
                let id = bundle.id().to_owned();
                load(&source, &options, device, bundle).map(Some).map_err(|error| Refusal { id: Some(id), error })
            });
            // The run has ended when nobody takes it.
            drop(send.send(loaded));
        };
        match std::thread::Builder::new().name("reload".into()).spawn(work) {
            Ok(_detached) => self.reloader.stage = Stage::Loading(receive),
            Err(error) => self.refuse(None, &Error::unexpected("the loading thread cannot be started").because(error)),
        }
    }

    fn begin_shadow(&mut self, ready: Ready) {
        let manifest = ready.bundle.manifest();
        match Detector::new(&manifest.thresholds, &manifest.classes) {
            Ok(detector) => {
                let wanted = if self.rolling_back { 0 } else { self.options.service.reload.shadow_frames };
                let boxes = Vec::with_capacity(300);
                let (frames, agreement, since) = (0, 0.0, Instant::now());
                self.reloader.stage =
                    Stage::Shadow(Box::new(Shadow { ready, detector, boxes, frames, agreement, since, wanted }));
            }
            Err(error) => self.refuse(Some(ready.bundle.id().to_owned()), &error),
        }
    }

    /// Both engines answer this frame; the new one's answer is only compared.
    pub(in crate::run) fn shadow(&mut self, frame: &Arc<Frame>, judged: &[Detection]) {
        let Stage::Shadow(shadow) = &mut self.reloader.stage else { return };
        if shadow.frames >= shadow.wanted {
            return;
        }
        let board = &self.board;
        let answered = shadow.ready.host.call(Arc::clone(frame), None, shadow.ready.call_limit, &|| board.heartbeat());
        let compared = answered.map_err(ready::error_of).and_then(|inference| {
            let layout = &shadow.ready.host.info().layout;
            if let Some(fault) = hard_fault(&inference.stats, layout) {
                return Err(Error::refused(format!("the network's output is faulty: {fault}")));
            }
            shadow.detector.detect(&inference.candidates, &inference.letterbox, layout, &mut shadow.boxes);
            shadow.ready.host.recycle(inference);
            Ok(agreement(judged, &shadow.boxes))
        });
        match compared {
            Ok(agreement) => {
                shadow.frames += 1;
                shadow.agreement += agreement;
            }
            Err(error) => {
                let id = shadow.ready.bundle.id().to_owned();
                self.reloader.stage = Stage::Idle;
                self.refuse(Some(id), &error);
            }
        }
    }

    fn look_at_shadow(&mut self, inspector: &mut Inspector, shadow: Box<Shadow>) -> Result<()> {
        let limits = &self.options.service.reload;
        let over = shadow.frames >= shadow.wanted || shadow.since.elapsed() >= limits.shadow_limit;
        // A part is answered by the engine that was there when it came.
        if !over || self.clerk.open_parts() > 0 {
            self.reloader.stage = Stage::Shadow(shadow);
            return Ok(());
        }
        let mean = if shadow.frames == 0 { 1.0 } else { shadow.agreement / float64(shadow.frames) };
        let id = shadow.ready.bundle.id().to_owned();
        if mean < limits.agreement {
            let message = format!(
                "on {} frames the boxes of bundle {} agree to {mean:.2} with the running one's, expected at least {:.2}",
                shadow.frames,
                short(&id),
                limits.agreement
            );
            self.refuse(Some(id), &Error::refused(message));
            return Ok(());
        }
        log::info!("reload: agreement {mean:.2} on {} frames", shadow.frames);
        self.swap(inspector, shadow.ready)
    }

    /// Between two frames: the new engine answers from now on, the old one stays ready for the time of probation.
    fn swap(&mut self, inspector: &mut Inspector, ready: Ready) -> Result<()> {
        let old_bundle = Arc::clone(&self.bundle);
        let rolled_back = std::mem::take(&mut self.rolling_back);
        let id = ready.bundle.id().to_owned();
        self.drop_before();
        let old_limit = self.call_limit;
        let (host, old_prover) = match self.install(inspector, ready) {
            Ok(before) => before,
            Err(error) => {
                self.refuse(Some(id), &error);
                return Ok(());
            }
        };
        self.ledger.proved();
        if rolled_back {
            drop(host);
            self.reloader.remember_failed(Some(old_bundle.id().to_owned()));
            self.set_last_good(None);
            self.settle(Settled::RolledBack("asked for by hand".into()));
            return Ok(());
        }
        let until = Instant::now() + self.options.service.reload.probation;
        let before = Before { bundle: Arc::clone(&old_bundle), host, prover: old_prover, call_limit: old_limit, until };
        self.reloader.before = Some(before);
        self.keep_copy(&old_bundle);
        self.set_last_good(Some(old_bundle));
        self.settle(Settled::Swapped(id));
        Ok(())
    }

    fn keep_copy(&self, bundle: &Arc<Bundle>) {
        let Some(path) = self.options.service.state.as_ref().map(|state| state.join(LAST_GOOD)) else { return };
        let bundle = Arc::clone(bundle);
        let copy = move || {
            if let Err(error) = copy_to(&bundle, &path) {
                log::warn!("the last good bundle cannot be kept: {error}");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("keep bundle".into()).spawn(copy) {
            log::warn!("the last good bundle cannot be kept: {error}");
        }
    }

    fn drop_before(&mut self) {
        if let Some(before) = self.reloader.before.take() {
            before.host.close(CLOSE_LIMIT);
        }
    }

    fn end_probation(&mut self) {
        if self.reloader.before.as_ref().is_some_and(|before| Instant::now() >= before.until) {
            log::info!("reload: bundle {} has stood its probation", short(self.bundle.id()));
            self.drop_before();
        }
    }

    /// A fault during probation: the old engine comes back at once, when it still gives the known answers. Whether it did.
    pub(super) fn roll_back_on_fault(&mut self, inspector: &mut Inspector, why: &str) -> Result<bool> {
        if !matches!(std::mem::replace(&mut self.reloader.stage, Stage::Idle), Stage::Idle) {
            self.refuse(None, &Error::refused(format!("the running engine has a fault itself: {why}")));
        }
        let Some(before) = self.reloader.before.take() else { return Ok(false) };
        let bad = self.bundle.id().to_owned();
        log::error!("bundle {} has a fault during its probation: the one before comes back", short(&bad));
        let ready = Ready::again(before.bundle, before.host, before.prover, before.call_limit);
        let (faulty, _) = self.install(inspector, ready)?;
        faulty.close(CLOSE_LIMIT);
        self.reloader.remember_failed(Some(bad));
        self.set_last_good(None);
        if let Err(error) = self.prove_all(inspector) {
            log::error!("the bundle before does not give its known answers any more: {}", error.message());
            return Ok(false);
        }
        self.board.set_phase(Phase::Ready);
        self.telemetry.count(Metric::RecoverySteps, self.labels().because(Step::LastGoodBundle.name()));
        self.settle(Settled::RolledBack(why.to_owned()));
        Ok(true)
    }

    fn rollback_file(&mut self) -> bool {
        let Some(state) = &self.options.service.state else { return false };
        if self.looked_for_rollback.elapsed() < Duration::from_secs(1) {
            return false;
        }
        self.looked_for_rollback = Instant::now();
        std::fs::remove_file(state.join(ROLLBACK_REQUEST)).is_ok()
    }

    fn roll_back_by_hand(&mut self, inspector: &mut Inspector) {
        if !matches!(self.reloader.stage, Stage::Idle) {
            self.reloader.stage = Stage::Idle;
        }
        if self.reloader.before.is_some() {
            match self.roll_back_on_fault(inspector, "asked for by hand") {
                Ok(_) => {}
                Err(error) => self.refuse(None, &error),
            }
            return;
        }
        let Some(bundle) = self.last_good.clone() else {
            return self.refuse(None, &Error::usage("there is no bundle to go back to"));
        };
        self.rolling_back = true;
        self.load_beside(move |_| Ok(Some(bundle)));
    }
}

fn load(source: &Arc<dyn EngineSource>, options: &Options, device: usize, bundle: Arc<Bundle>) -> Result<Ready> {
    Loading { source, options, tick: &|| {}, device, before: None, show: None }.ready(bundle)
}

fn copy_to(bundle: &Bundle, path: &Path) -> Result<()> {
    let mut copy = AsideFile::create(path)?;
    let failed = |error| crate::aside::cannot_write(path, error);
    // The open file is the one that was hashed; the path may hold another one by now.
    let length = bundle.file().metadata().map_err(failed)?.len();
    let mut reader = PositionedReader { file: bundle.file(), at: 0, end: length };
    std::io::copy(&mut reader, &mut copy).map_err(failed)?;
    copy.commit()
}

/// Reads without moving the position that others share.
struct PositionedReader<'a> {
    file: &'a std::fs::File,
    at: u64,
    end: u64,
}

impl std::io::Read for PositionedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        use std::os::unix::fs::FileExt;
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read_at(&mut buffer[..left], self.at)?;
        self.at += crate::units::count(read);
        Ok(read)
    }
}

/// Whether a line that runs `running` may go on with `other`: same classes, same input, no older schema.
fn check_compatible(running: &Manifest, other: &Manifest) -> Result<()> {
    let refused = |what: &str, found: String, expected: String| {
        Err(Error::refused(format!("{what}: found {found}, expected {expected} as in the running bundle"))
            .hint("stop the line and start it with the other bundle when that is what you want"))
    };
    if running.classes != other.classes {
        return refused(
            "classes",
            format!("[{}]", other.classes.join(", ")),
            format!("[{}]", running.classes.join(", ")),
        );
    }
    if running.input.size != other.input.size || running.input.channels != other.input.channels {
        let text = |manifest: &Manifest| format!("{} with {} channels", manifest.input.size, manifest.input.channels);
        return refused("input", text(other), text(running));
    }
    if other.schema < running.schema {
        return refused("schema", other.schema.to_string(), format!("{} or newer", running.schema));
    }
    Ok(())
}

/// Share of boxes that have a partner of the same class in the other answer: 2 × pairs ÷ boxes in both; 1 when both are empty.
fn agreement(these: &[Detection], those: &[Detection]) -> f64 {
    if these.is_empty() && those.is_empty() {
        return 1.0;
    }
    let mut taken = vec![false; those.len()];
    let mut pairs = 0_u32;
    for this in these {
        let best = (0..those.len())
            .filter(|&at| !taken[at] && those[at].class_id == this.class_id)
            .map(|at| (at, those[at].edges.iou(&this.edges)))
            .filter(|(_, iou)| *iou >= 0.5)
            .max_by(|left, right| left.1.total_cmp(&right.1));
        if let Some((at, _)) = best {
            taken[at] = true;
            pairs += 1;
        }
    }
    2.0 * f64::from(pairs) / length(these.len() + those.len())
}
