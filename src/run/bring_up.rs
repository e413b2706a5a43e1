//! From a bundle to an engine that answers, with what watches over it.

use super::budget::{self, Claim};
use super::inspector::{Inspector, Parts, StreamPlace};
use super::present::Present;
use super::product::{Judging, Shelf};
use super::ready::{Loading, Ready};
use super::service::standby::Standbys;
use super::service::{self, ReadyParts, Service};
use super::source::EngineSource;
use super::station::Station;
use super::{Say, Shared, StreamOptions, keeper};
use crate::bundle::Bundle;
use crate::camera::{SourceInfo, SourceKind};
use crate::error::{Error, Result};
use crate::frame::StreamName;
use crate::guard::{Guard, StreamTraits};
use crate::sinks::http::Phase;
use crate::sinks::row::EngineStamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// A bundle that was opened, with how it is judged.
pub(super) struct Opened {
    pub(super) bundle: Arc<Bundle>,
    pub(super) judging: Judging,
    shelf: Shelf,
    product: Option<usize>,
}

impl Opened {
    /// Opens the bundle of `station`, or that of the product to begin with, and all that the line can be changed over to.
    ///
    /// # Errors
    /// Of opening, of a rule that does not fit, and [`crate::ErrorKind::Budget`] when products do not fit together.
    pub(super) fn of(station: &Station, product: Option<usize>, source: &dyn EngineSource) -> Result<Opened> {
        let options = &station.options;
        let path = product.map_or(&options.bundle, |place| &options.service.products.list[place].bundle);
        let bundle = Arc::new(source.open(path)?);
        let shelf = Shelf::open(options, source, &bundle)?;
        let judging = Judging::of(options, product, bundle.manifest())?;
        Ok(Opened { bundle, judging, shelf, product })
    }
}

/// Whether the engines of all bundles fit together on every device; where that is not known beforehand, loading tells.
///
/// # Errors
/// [`crate::ErrorKind::Budget`] with what each takes and what would fit.
pub(super) fn fit_together(opened: &[Opened], source: &dyn EngineSource) -> Result<()> {
    if opened.len() < 2 {
        return Ok(());
    }
    let Some(limit) = budget::smallest(opened.iter().map(|opened| &*opened.bundle), source) else { return Ok(()) };
    let claim = |opened: &Opened| {
        let bytes = source.claim(&opened.bundle, 0)?;
        Some(Claim { name: opened.bundle.manifest().name.clone(), bytes })
    };
    budget::together(&opened.iter().filter_map(claim).collect::<Vec<_>>(), limit)
}

/// One engine, ready to answer.
pub(super) struct Bench<'a> {
    pub(super) shared: Shared<'a>,
    pub(super) inspector: Inspector,
    pub(super) service: Service<'a>,
}

/// The streams of a run, one entry each.
pub(super) struct Streams<'a> {
    pub(super) names: &'a [StreamName],
    pub(super) infos: &'a [Option<SourceInfo>],
}

/// What every engine of a run has in common.
pub(super) struct Common<'a> {
    /// As the whole run has it; `options` and `board` are replaced by the bundle's own, `present` is made.
    pub(super) shared: Shared<'a>,
    pub(super) streams: Streams<'a>,
    /// When the program began.
    pub(super) since: Instant,
    /// Whether several bundles run, so that lines for people name theirs.
    pub(super) several: bool,
}

/// Loads, warms, proves engine number `index` of the run.
///
/// # Errors
/// Of the bundle, the engine, the known answers.
pub(super) fn bring_up<'a>(
    common: &Common<'a>,
    station: &'a Station,
    opened: Opened,
    index: usize,
    say: Say<'_>,
) -> Result<Bench<'a>> {
    let Opened { bundle, judging, mut shelf, product } = opened;
    let (source, options, manifest) = (&common.shared.source, &station.options, bundle.manifest());
    let board = common.shared.board.of_engine(index);
    board.set_phase(Phase::Proving);
    // Engines come up one after the other; the whole run is alive meanwhile.
    let tick = || common.shared.board.heartbeat();
    let loading = Loading { source, options, tick: &tick, device: 0, before: None, show: Some(&board) };
    let (device, ready) = first_ready(loading, &bundle, say)?;
    say(&ready.line(common.since));
    shelf.fill(options, source, device, ready.host.memory().reserved, &tick, say)?;
    let device_stamp = service::device_stamp(&**source, device);
    let label: Option<Arc<str>> = common.several.then(|| station.name.as_str().into());
    let (product_id, label_of) = (judging.product.clone(), label.clone());
    let stamp = EngineStamp { product: product_id, device: device_stamp, label: label_of, ..ready.stamp() };
    board.name_engine(stamp.label());
    let present = Present::new(stamp, Some(ready.proved_at), judging.rule.is_some());
    let mut streams = Vec::new();
    for (lane, stream) in options.streams.iter().enumerate() {
        let info = common.streams.infos.get(lane).and_then(Option::as_ref);
        let (name, traits, own) = (&common.streams.names[lane], traits(stream, info), station.lanes.contains(&lane));
        let guard = if own {
            let home = common.shared.baselines.home(lane, name, &judging.baseline, bundle.id());
            Guard::at(&judging.guard, &manifest.classes, traits, home)?
        } else {
            Guard::new(&judging.guard, &manifest.classes, traits)?
        };
        let place = StreamPlace { name: Arc::clone(name), guard, traits, triggered: is_triggered(stream, info) };
        streams.push(place);
    }
    say_what_is_off(station.lanes.iter().map(|&lane| &streams[lane]), say);
    let lanes = station.lanes.as_slice().into();
    let recorder = common.shared.recorder.of_engine(index);
    let shared = Shared {
        options,
        board,
        present: Arc::clone(&present),
        lanes,
        label,
        recorder,
        engine: index,
        ..common.shared.clone()
    };
    let inspector = Inspector::new(Parts {
        host: ready.host,
        call_limit: ready.call_limit,
        echo_every: options.service.echo_every,
        board: Arc::clone(&shared.board),
        judging,
        streams,
        clerk: Arc::clone(&shared.clerk),
        present,
        telemetry: Arc::clone(&shared.telemetry),
        recorder: Arc::clone(&shared.recorder),
        baselines: Arc::clone(&shared.baselines),
    })?;
    let standbys = Standbys::start(&shared, &bundle, device)?;
    standbys.settle(&|| common.shared.board.heartbeat(), say);
    let kept = ReadyParts {
        bundle,
        prover: ready.prover,
        call_limit: ready.call_limit,
        proof_cost: ready.proof_cost,
        device,
        standbys,
        shelf,
        product,
    };
    let service = Service::new(&shared, kept);
    if common.several {
        let names: Vec<&str> = station.lanes.iter().map(|&lane| &*common.streams.names[lane]).collect();
        say(&format!("bundle {} answers: {}", station.name, names.join(", ")));
    }
    Ok(Bench { shared, inspector, service })
}

/// The engine on the first device that can serve. With several devices, one that fails is passed over and said aloud.
fn first_ready(loading: Loading<'_>, bundle: &Arc<Bundle>, say: Say<'_>) -> Result<(usize, Ready)> {
    let devices = loading.source.devices();
    for device in 0..devices {
        let label = loading.source.device_label(device);
        let memory = loading.source.device_memory(device);
        match (Loading { device, ..loading }).ready(Arc::clone(bundle)) {
            Ok(ready) => {
                if devices > 1 {
                    let now = loading.source.device_memory(device);
                    let own = ready.host.memory().allocated;
                    let cost = keeper::memory_cost(memory, now, loading.source.planned(bundle, device), own);
                    say(&format!("device {label} serves{cost}"));
                }
                return Ok((device, ready));
            }
            Err(error) if device + 1 < devices => {
                let why = error.to_string().replace('\n', " ");
                log::error!("device {label} cannot serve: {why}");
                say(&format!("device {label} cannot serve, the next one is tried: {why}"));
            }
            Err(error) => return Err(error),
        }
    }
    Err(Error::unexpected("there is no device"))
}

/// Says which checks do not run on which streams and why, one line a cause.
fn say_what_is_off<'a>(places: impl Iterator<Item = &'a StreamPlace>, say: Say<'_>) {
    let mut lines: Vec<(String, Vec<&str>)> = Vec::new();
    for place in places {
        for line in what_is_off(&place.guard) {
            match lines.iter_mut().find(|(known, _)| *known == line) {
                Some((_, streams)) => streams.push(&place.name),
                None => lines.push((line, vec![&place.name])),
            }
        }
    }
    for (line, streams) in lines {
        let word = if streams.len() == 1 { "stream" } else { "streams" };
        say(&format!("{word} {}: {line}", streams.join(", ")));
    }
}

fn what_is_off(guard: &Guard) -> Vec<String> {
    let mut by_cause: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for off in guard.off_aloud() {
        by_cause.entry(off.why).or_default().push(off.reason.name());
    }
    let causes = by_cause.into_iter();
    let mut lines: Vec<String> =
        causes.map(|(why, checks)| format!("not checked, because {why}: {}", checks.join(", "))).collect();
    lines.extend(guard.observing().map(|why| format!("soft checks only observe: {why}")));
    lines
}

fn is_triggered(stream: &StreamOptions, info: Option<&SourceInfo>) -> bool {
    stream.triggered || info.is_some_and(|info| info.triggers)
}

fn traits(stream: &StreamOptions, info: Option<&SourceInfo>) -> StreamTraits {
    let live = stream.spec.kind() == SourceKind::Live;
    StreamTraits { live, related_frames: info.map_or(live, |info| info.related_frames), triggered: stream.triggered }
}
