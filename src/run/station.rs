//! Several bundles in one run: which streams each of them answers, and what each keeps for itself.

use super::{Options, ReloadDoor};
use crate::error::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// One bundle of a run.
pub(super) struct Station {
    /// For people and for its folder: the file's name without `.edge`.
    pub(super) name: String,
    /// The run's options as they hold for this bundle.
    pub(super) options: Options,
    /// The streams that it answers.
    pub(super) lanes: Vec<usize>,
}

impl Station {
    /// One for each bundle, in the order in which streams name them. With one bundle nothing differs from the run's options;
    /// with several, each has a folder of its own in the state folder, and requests for other bundles go to all.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] when what was asked for does not go together with several bundles.
    pub(super) fn all(options: &Options) -> Result<Vec<Station>> {
        let mut stations: Vec<Station> = Vec::new();
        for (lane, stream) in options.streams.iter().enumerate() {
            let bundle = stream.engine.as_ref().unwrap_or(&options.bundle);
            match stations.iter_mut().find(|station| same_file(&station.options.bundle, bundle)) {
                Some(station) => station.lanes.push(lane),
                None => {
                    let options = Options { bundle: bundle.clone(), ..options.clone() };
                    stations.push(Station { name: String::new(), options, lanes: vec![lane] });
                }
            }
        }
        let several = stations.len() > 1;
        if several && !options.service.products.list.is_empty() {
            return Err(Error::usage(
                "found streams with bundles of their own beside `[[product]]`, expected one of them",
            )
            .hint("a changeover is for all streams of a run; run the others in a process of their own"));
        }
        for index in 0..stations.len() {
            let name = unused_name(&stations[..index], &stations[index].options.bundle);
            let station = &mut stations[index];
            if several {
                let service = &mut station.options.service;
                service.state = service.state.take().map(|state| state.join(&name));
                service.reload.door = ReloadDoor::below(&options.service.reload.door);
            }
            station.name = name;
        }
        if stations.is_empty() {
            return Err(Error::usage("found no stream, expected at least one"));
        }
        Ok(stations)
    }

    /// For each stream the index of its bundle.
    pub(super) fn of_lanes(stations: &[Station], lanes: usize) -> Vec<usize> {
        let of = |lane| stations.iter().position(|station| station.lanes.contains(&lane)).unwrap_or(0);
        (0..lanes).map(of).collect()
    }
}

fn same_file(one: &Path, other: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    one == other || whole(one) == whole(other)
}

fn unused_name(before: &[Station], bundle: &Path) -> String {
    let stem = bundle.file_stem().map_or_else(|| "bundle".into(), |stem| stem.to_string_lossy().into_owned());
    let taken = |name: &str| before.iter().any(|station| station.name == name);
    let numbered = (2..).map(|number| format!("{stem}-{number}"));
    std::iter::once(stem.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(stem)
}

/// How many results a run may still give; shared by its desks.
#[derive(Debug)]
pub(super) struct Quota {
    frames: Option<u64>,
    /// Captures that were taken, or may be taken at this moment.
    taken: AtomicU64,
    answered: AtomicU64,
}

impl Quota {
    pub(super) fn new(frames: Option<u64>) -> Self {
        Quota { frames, taken: AtomicU64::new(0), answered: AtomicU64::new(0) }
    }

    /// At most `room` captures may be taken; those that are not are given back.
    pub(super) fn take(&self, room: usize) -> usize {
        let Some(frames) = self.frames else { return room };
        let wanted = crate::units::count(room);
        let mut given = 0;
        // The update always succeeds: it never returns `None`.
        let _before = self.taken.fetch_update(Relaxed, Relaxed, |taken| {
            given = wanted.min(frames.saturating_sub(taken));
            Some(taken + given)
        });
        usize::try_from(given).unwrap_or(room)
    }

    pub(super) fn give_back(&self, captures: usize) {
        if self.frames.is_some() {
            self.taken.fetch_sub(crate::units::count(captures), Relaxed);
        }
    }

    pub(super) fn answered(&self) {
        self.answered.fetch_add(1, Relaxed);
    }

    /// Whether the run has given all its results.
    pub(super) fn is_used_up(&self) -> bool {
        self.frames.is_some_and(|frames| self.answered.load(Relaxed) >= frames)
    }
}

/// Makes the folders that several bundles keep their state in.
///
/// # Errors
/// [`crate::ErrorKind::Output`] with the folder.
pub(super) fn make_folders(stations: &[Station], whole: Option<&PathBuf>) -> Result<()> {
    let Some(whole) = whole else { return Ok(()) };
    for state in stations.iter().filter_map(|station| station.options.service.state.as_ref()) {
        if state != whole {
            std::fs::create_dir_all(state).map_err(|error| crate::aside::cannot_write(state, error))?;
        }
    }
    Ok(())
}
