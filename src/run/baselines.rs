//! Baselines in service: loaded from the state folder, saved beside the frame path, accepted on request.
//!
//! `baselines/STREAM@PRODUCT@BUNDLE.json` holds one [`Baseline`]; `baselines/accepted.jsonl` says who was accepted when, with
//! figures from before and after. Deleting files takes the line back to the bundle's reference.

use super::kept;
use super::state::StateFolder;
use crate::error::{Error, Result};
use crate::guard::baseline::Block;
use crate::guard::{Anchor, AnchorFrom, Baseline, Gallery, GuardMode, Home, Record, Reference};
use crate::units::{float64, narrow};
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The product of a line that knows none.
pub const DEFAULT_PRODUCT: &str = "default";
const FOLDER: &str = "baselines";
const REQUEST: &str = "accept_baseline.json";
const LOG: &str = "accepted.jsonl";
/// How long a running line may take to answer a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a baseline is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BaselineKey {
    /// The stream.
    pub stream: String,
    /// The product; [`DEFAULT_PRODUCT`] on a line that knows none.
    pub product: String,
    /// Bundle id.
    pub bundle: String,
}

impl BaselineKey {
    fn file_name(&self) -> String {
        format!(
            "{}@{}@{}.json",
            plain(&self.stream),
            plain(&self.product),
            self.bundle.get(..12).unwrap_or(&self.bundle)
        )
    }
}

/// Letters, digits, `-`, `_` and `.` as they are, everything else as `%XX`.
fn plain(text: &str) -> String {
    let mut name = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            b'.' if !name.is_empty() => name.push('.'),
            _ => name.push_str(&format!("%{byte:02X}")),
        }
    }
    name
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    key: BaselineKey,
    baseline: Baseline,
}

/// Which baselines a request is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Which {
    /// This stream's; `None`: all.
    pub stream: Option<String>,
    /// This product's; `None`: all.
    pub product: Option<String>,
}

impl Which {
    fn fits(&self, key: &BaselineKey) -> bool {
        let fits = |wanted: &Option<String>, found: &String| wanted.as_ref().is_none_or(|wanted| wanted == found);
        fits(&self.stream, &key.stream) && fits(&self.product, &key.product)
    }
}

/// The figures of a baseline that people compare.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// When it was made, RFC 3339.
    pub at: String,
    /// Frames in it.
    pub frames: u64,
    /// Median of the boxes a frame.
    pub boxes: f64,
    /// Median score.
    pub score: f64,
    /// Median of mean luma, 0..255.
    pub brightness: f64,
    /// Share of the boxes by class id.
    pub class_shares: Vec<f32>,
}

impl Figures {
    fn of(at: &str, reference: &Reference) -> Self {
        let total = float64(reference.class_boxes.iter().sum::<u64>().max(1));
        let rounded = |value: f64| (value * 1000.0).round() / 1000.0;
        Figures {
            at: at.to_owned(),
            frames: reference.pictures,
            boxes: rounded(reference.boxes.median),
            score: rounded(reference.scores.median),
            brightness: rounded(reference.brightness.median),
            class_shares: reference.class_boxes.iter().map(|boxes| narrow(rounded(float64(*boxes) / total))).collect(),
        }
    }

    /// Of an anchor.
    pub fn of_anchor(anchor: &Anchor) -> Self {
        Self::of(&anchor.at, &anchor.reference)
    }

    /// Of a rolling baseline.
    pub fn of_block(block: &Block) -> Self {
        Self::of(&block.at, &block.reference)
    }
}

impl std::fmt::Display for Figures {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shares: Vec<String> = self.class_shares.iter().map(|share| format!("{share:.2}")).collect();
        write!(
            f,
            "{} frames until {}: median {} boxes a frame, score {:.3}, luma {:.1}, shares of classes [{}]",
            self.frames,
            self.at,
            self.boxes,
            self.score,
            self.brightness,
            shares.join(", ")
        )
    }
}

/// A line of `accepted.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// When, RFC 3339.
    pub at: String,
    /// For what.
    #[serde(flatten)]
    pub key: BaselineKey,
    /// The anchor before; `None`: the bundle's reference, or none.
    pub before: Option<Figures>,
    /// The anchor from now on; `None` when it was refused.
    pub now: Option<Figures>,
    /// Why it was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

struct Kept {
    key: BaselineKey,
    record: Arc<Record>,
    saved: u64,
}

/// The baselines of a run.
pub struct Baselines {
    folder: Option<PathBuf>,
    mode: GuardMode,
    gallery: Arc<Gallery>,
    kept: Mutex<Vec<Kept>>,
}

impl Baselines {
    /// Baselines of so many streams; without a state folder they end with the process.
    pub fn new(state: Option<&Path>, mode: GuardMode, streams: usize) -> Arc<Self> {
        let folder = state.map(|state| state.join(FOLDER));
        Arc::new(Baselines { folder, mode, gallery: Gallery::new(streams), kept: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the guard of stream number `lane` shares and keeps for `product` on `bundle` (its id). Read from the state folder
    /// the first time it is asked for; a file that is not whole is set aside.
    pub fn home(&self, lane: usize, stream: &str, product: &str, bundle: &str) -> Home {
        let key = BaselineKey { stream: stream.to_owned(), product: product.to_owned(), bundle: bundle.to_owned() };
        let mut kept = self.lock();
        let known = kept.iter().find(|kept| kept.key == key).map(|kept| Arc::clone(&kept.record));
        let record = known.unwrap_or_else(|| {
            let record = Record::of(self.read(&key));
            kept.push(Kept { key, record: Arc::clone(&record), saved: 0 });
            record
        });
        Home { lane, gallery: Arc::clone(&self.gallery), record, mode: self.mode }
    }

    fn read(&self, key: &BaselineKey) -> Baseline {
        let Some(path) = self.folder.as_ref().map(|folder| folder.join(key.file_name())) else {
            return Baseline::default();
        };
        let read = kept::read::<File>(&path).and_then(|file| match file {
            Some(file) if file.key != *key => Err(Error::refused("it is for another stream, product or bundle")),
            file => Ok(file),
        });
        match read {
            Ok(file) => file.map(|file| file.baseline).unwrap_or_default(),
            Err(error) => {
                let aside = kept::set_aside(&path);
                log::warn!(
                    "the baseline of stream {}, product {} is not used: {}; kept as {}",
                    key.stream,
                    key.product,
                    error.message(),
                    aside.display()
                );
                Baseline::default()
            }
        }
    }

    /// Writes what has changed since the last time. To be called from a thread that may wait for the disk.
    pub fn save(&self) {
        let Some(folder) = &self.folder else { return };
        let mut changed = Vec::new();
        for kept in self.lock().iter_mut() {
            let changes = kept.record.changes();
            if std::mem::replace(&mut kept.saved, changes) != changes {
                changed.push(File { key: kept.key.clone(), baseline: kept.record.baseline() });
            }
        }
        for file in changed {
            if let Err(error) = kept::write(&folder.join(file.key.file_name()), &file) {
                log::warn!("the baseline of stream {} cannot be kept: {error}", file.key.stream);
            }
        }
    }

    /// Answers a request of `edge-run baseline accept`, when there is one.
    pub fn answer_request(&self) {
        let Some(folder) = &self.folder else { return };
        let request = folder.join(REQUEST);
        let which = match kept::read::<Which>(&request) {
            Ok(None) => return,
            Ok(Some(which)) => which,
            Err(error) => {
                log::warn!("a request for a baseline is passed over: {}", error.message());
                drop(std::fs::remove_file(&request));
                return;
            }
        };
        let mut lines = Vec::new();
        for kept in self.lock().iter().filter(|kept| which.fits(&kept.key)) {
            lines.push(accepted(&kept.key, kept.record.accept()));
        }
        self.save();
        if lines.is_empty() {
            log::warn!("a request for a baseline fits no stream and product of this run");
        }
        for line in &lines {
            if let Err(error) = write_log(folder, line) {
                log::warn!("accepting a baseline cannot be logged: {error}");
            }
        }
        drop(std::fs::remove_file(&request));
    }
}

fn accepted(key: &BaselineKey, outcome: Result<(Anchor, Option<Anchor>)>) -> Accepted {
    let at = OffsetDateTime::from(SystemTime::now()).format(&Rfc3339).unwrap_or_default();
    let (before, now, refused) = match outcome {
        Ok((now, before)) => (before.as_ref().map(Figures::of_anchor), Some(Figures::of_anchor(&now)), None),
        Err(error) => (None, None, Some(error.message().to_owned())),
    };
    if let Some(now) = &now {
        let before = before.as_ref().map_or_else(|| "the bundle's reference, or none".to_owned(), Figures::to_string);
        log::warn!("baseline accepted for stream {}, product {}: {now}; before: {before}", key.stream, key.product);
    }
    Accepted { at, key: key.clone(), before, now, refused }
}

fn write_log(folder: &Path, line: &Accepted) -> Result<()> {
    let path = folder.join(LOG);
    let failed = |error: std::io::Error| crate::aside::cannot_write(&path, error);
    let mut text = serde_json::to_vec(line).map_err(|error| failed(error.into()))?;
    text.push(b'\n');
    let mut file = std::fs::File::options().create(true).append(true).open(&path).map_err(failed)?;
    file.write_all(&text).and_then(|()| file.sync_data()).map_err(failed)
}

/// What a state folder keeps.
#[derive(Debug, Default)]
pub struct Listed {
    /// The baselines, by name of stream and product.
    pub baselines: Vec<(BaselineKey, Baseline)>,
    /// Files that are not whole, and why.
    pub broken: Vec<String>,
}

/// The baselines in a state folder.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] when there is no such folder.
pub fn list(state: &Path) -> Result<Listed> {
    if !state.is_dir() {
        return Err(Error::usage("found no such folder, expected the state folder of a line").at(state.display()));
    }
    let mut listed = Listed::default();
    for entry in std::fs::read_dir(state.join(FOLDER)).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".json") || name == REQUEST {
            continue;
        }
        match kept::read::<File>(&path) {
            Ok(Some(file)) => listed.baselines.push((file.key, file.baseline)),
            Ok(None) => {}
            Err(error) => listed.broken.push(format!("{name}: {}", error.message())),
        }
    }
    listed.baselines.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(listed)
}

/// Makes what is usual now the anchor: on the line that runs on this state folder, or in its files when none runs.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] when nothing fits, a running line does not answer, or there is nothing to accept yet;
/// [`crate::ErrorKind::Output`] when it cannot be written.
pub fn accept(state: &Path, which: &Which) -> Result<Vec<Accepted>> {
    let found = list(state)?.baselines;
    let folder = state.join(FOLDER);
    let lines = match StateFolder::take(state) {
        Ok(_lock) => accept_in_files(&folder, found, which)?,
        Err(error) if error.kind() == crate::ErrorKind::Usage => ask_running_line(&folder, which)?,
        Err(error) => return Err(error),
    };
    if lines.is_empty() {
        return Err(Error::usage("found no baseline of this stream and product")
            .at(folder.display())
            .hint("`edge-run baseline show --state DIR` lists them"));
    }
    match lines.iter().find_map(|line| line.refused.clone()) {
        Some(why) if lines.iter().all(|line| line.now.is_none()) => {
            Err(Error::usage(why)
                .hint("let the line run on good parts until `edge-run baseline show` lists a rolling one"))
        }
        _ => Ok(lines),
    }
}

fn accept_in_files(folder: &Path, found: Vec<(BaselineKey, Baseline)>, which: &Which) -> Result<Vec<Accepted>> {
    let mut lines = Vec::new();
    for (key, mut baseline) in found.into_iter().filter(|(key, _)| which.fits(key)) {
        let line = accepted(&key, baseline.accept());
        if line.now.is_some() {
            kept::write(&folder.join(key.file_name()), &File { key, baseline })?;
        }
        write_log(folder, &line)?;
        lines.push(line);
    }
    Ok(lines)
}

fn ask_running_line(folder: &Path, which: &Which) -> Result<Vec<Accepted>> {
    let (log, request) = (folder.join(LOG), folder.join(REQUEST));
    let known = std::fs::read(&log).unwrap_or_default().len();
    kept::write(&request, which)?;
    let since = Instant::now();
    while request.exists() {
        if since.elapsed() > PATIENCE {
            drop(std::fs::remove_file(&request));
            return Err(Error::usage(format!("the running line has not answered within {} s", PATIENCE.as_secs()))
                .at(folder.display())
                .hint("look at its log; stop it and ask again to change its files"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let text = std::fs::read(&log).unwrap_or_default();
    let new = text.get(known..).unwrap_or_default().split(|byte| *byte == b'\n');
    Ok(new.filter_map(|line| serde_json::from_slice(line).ok()).collect())
}

/// How an anchor came to be, for people.
pub fn origin(anchor: &Anchor) -> &'static str {
    match anchor.from {
        AnchorFrom::Learnt => "learnt",
        AnchorFrom::Accepted => "accepted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(pictures: u64) -> Baseline {
        let reference = Reference { pictures, class_boxes: vec![3, 1], ..Reference::default() };
        Baseline { anchor: None, rolling: Some(Block { at: "2126-01-01T00:00:00Z".into(), reference }) }
    }

    fn stored(state: &Path, key: &BaselineKey, baseline: Baseline) -> PathBuf {
        let path = state.join(FOLDER).join(key.file_name());
        kept::write(&path, &File { key: key.clone(), baseline }).unwrap();
        path
    }

    fn key(stream: &str, product: &str) -> BaselineKey {
        BaselineKey { stream: stream.into(), product: product.into(), bundle: "0123456789abcdef".into() }
    }

    #[test]
    fn names_of_files_are_plain_and_differ() {
        assert_eq!(key("cam.0", "M6 / left").file_name(), "cam.0@M6%20%2F%20left@0123456789ab.json");
        assert_eq!(key("a", "../x").file_name(), "a@%2E.%2Fx@0123456789ab.json");
    }

    #[test]
    fn a_baseline_survives_the_process_and_a_damaged_one_is_set_aside() {
        let state = tempfile::tempdir().unwrap();
        let home = |stream: &str| {
            let baselines = Baselines::new(Some(state.path()), GuardMode::Act, 1);
            let home = baselines.home(0, stream, DEFAULT_PRODUCT, "0123456789abcdef");
            (baselines, home)
        };
        // Made in the future, as after a clock that jumped back: times are for people, nothing is decided by them.
        let path = stored(state.path(), &key("cam0", DEFAULT_PRODUCT), block(7));
        let (baselines, first) = home("cam0");
        first.record.accept().unwrap();
        baselines.save();
        let (_, again) = home("cam0");
        assert_eq!(again.record.baseline().anchor.unwrap().reference.pictures, 7);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        let (_, anew) = home("cam0");
        assert_eq!(anew.record.baseline(), Baseline::default());
        assert!(path.with_extension("json.aside").is_file() && !path.exists());
    }

    #[test]
    fn accepting_changes_files_when_no_line_runs_and_asks_one_that_does() {
        let state = tempfile::tempdir().unwrap();
        assert!(accept(&state.path().join("nowhere"), &Which::default()).is_err());
        assert!(accept(state.path(), &Which::default()).unwrap_err().message().contains("no baseline"));
        stored(state.path(), &key("cam0", "a"), block(7));
        stored(state.path(), &key("cam1", "a"), block(8));
        stored(state.path(), &key("cam1", "b"), Baseline::default());
        let only = |stream: &str, product: &str| Which { stream: Some(stream.into()), product: Some(product.into()) };
        let lines = accept(state.path(), &only("cam1", "a")).unwrap();
        assert_eq!((lines.len(), lines[0].now.as_ref().unwrap().frames), (1, 8));
        assert_eq!(lines[0].now.as_ref().unwrap().class_shares, [0.75, 0.25]);
        assert!(accept(state.path(), &only("cam1", "b")).unwrap_err().message().contains("no whole block"));
        let kept = |at: usize| list(state.path()).unwrap().baselines[at].1.anchor.is_some();
        assert_eq!([kept(0), kept(1), kept(2)], [false, true, false]);

        let _line = StateFolder::take(state.path()).unwrap();
        let baselines = Baselines::new(Some(state.path()), GuardMode::Act, 2);
        let home = baselines.home(0, "cam0", "a", "0123456789abcdef");
        let lines = std::thread::scope(|scope| {
            let asked = scope.spawn(|| accept(state.path(), &only("cam0", "a")));
            while !asked.is_finished() {
                baselines.answer_request();
                std::thread::sleep(Duration::from_millis(5));
            }
            asked.join().unwrap().unwrap()
        });
        assert_eq!((lines.len(), &*lines[0].key.stream), (1, "cam0"));
        assert_eq!(home.record.baseline().anchor.unwrap().reference.pictures, 7);
        let log = std::fs::read_to_string(state.path().join(FOLDER).join(LOG)).unwrap();
        assert_eq!(log.lines().count(), 3);
    }
}
