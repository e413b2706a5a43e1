//! This machine's own known answers, kept across restarts: an engine that drifts by half a pixel from one start to the next is
//! seen, whatever the build allows.
//!
//! `known/BUNDLE@DEVICE.json` in the state folder holds them with everything that may rightly change them: bundle and plans,
//! backend with versions, driver, machine. When one of these has changed, or the file is damaged, it is set aside with one line
//! in the log, and the answers are learnt anew after a good proof.

use super::kept;
use crate::bundle::Bundle;
use crate::bundle::golden::{Answer, Prover};
use crate::engine::EngineInfo;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const FOLDER: &str = "known";
/// Files kept; bundles that have not been used for longest go first.
const MOST_FILES: usize = 16;

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    identity: BTreeMap<String, String>,
    proved_at: String,
    answers: Vec<Named>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
    answer: Answer,
}

/// The place of the answers of one bundle on one device.
pub(super) struct KnownHere {
    path: PathBuf,
    identity: BTreeMap<String, String>,
    /// When the answers in use were proved; `None` while there are none.
    proved_at: Option<String>,
}

impl KnownHere {
    /// The place in the state folder for `bundle` on the device with this label; `more` is what else may change answers.
    pub(super) fn of(state: &Path, bundle: &Bundle, device: &str, info: &EngineInfo, more: &[(&str, String)]) -> Self {
        let device: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        let name = format!("{}@{device}.json", bundle.id().get(..12).unwrap_or(bundle.id()));
        let mut identity = identity(bundle, info);
        identity.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        KnownHere { path: state.join(FOLDER).join(name), identity, proved_at: None }
    }

    /// Binds `prover` to the answers kept here, when they may be believed.
    pub(super) fn fill(&mut self, prover: &mut Prover) {
        let why = match kept::read::<File>(&self.path) {
            Ok(None) => return,
            Ok(Some(file)) => match self.differs(&file) {
                Some(why) => why,
                None => {
                    let answers = file.answers.into_iter().map(|named| (named.name, named.answer)).collect();
                    if prover.adopt(answers) {
                        self.proved_at = Some(file.proved_at);
                        return;
                    }
                    "it holds answers for other pictures".to_owned()
                }
            },
            Err(error) => error.message().to_owned(),
        };
        let aside = kept::set_aside(&self.path);
        log::warn!(
            "this machine's own known answers are not used and are learnt anew: {why}; kept as {}",
            aside.display()
        );
    }

    /// What has changed since, with both sides.
    fn differs(&self, file: &File) -> Option<String> {
        let names: std::collections::BTreeSet<&String> = file.identity.keys().chain(self.identity.keys()).collect();
        let show = |value: Option<&String>| value.map_or_else(|| "nothing".to_owned(), |value| format!("`{value}`"));
        let differences: Vec<String> = names
            .into_iter()
            .filter(|name| file.identity.get(*name) != self.identity.get(*name))
            .map(|name| {
                let (then, now) = (file.identity.get(name), self.identity.get(name));
                format!("{name}: found {}, expected {}", show(then), show(now))
            })
            .collect();
        (!differences.is_empty()).then(|| differences.join("; "))
    }

    /// Keeps the answers of `prover` after a good proof, unless it was bound to kept ones already.
    pub(super) fn keep(&self, prover: &Prover) {
        if self.proved_at.is_some() {
            return;
        }
        let Some(answers) = prover.own_answers() else { return };
        let file = File {
            identity: self.identity.clone(),
            proved_at: OffsetDateTime::from(SystemTime::now()).format(&Rfc3339).unwrap_or_default(),
            answers: answers.into_iter().map(|(name, answer)| Named { name, answer }).collect(),
        };
        if let Err(error) = kept::write(&self.path, &file) {
            log::warn!("this machine's own known answers cannot be kept: {error}");
        }
        self.forget_old();
    }

    /// The error of an engine that gives the build's answers and not those that it gave on this machine before.
    pub(super) fn explain(&self, error: Error) -> Error {
        match &self.proved_at {
            Some(proved_at) if error.message().contains(Prover::OWN_ANSWER) => error.hint(format!(
                "the engine answers otherwise than when it was first proved on this machine ({proved_at}): check memory and \
                 device (`edge-run doctor`); if the change was wanted, remove {}",
                self.path.display()
            )),
            _ => error,
        }
    }

    fn forget_old(&self) {
        let Some(folder) = self.path.parent() else { return };
        let mut files: Vec<(SystemTime, PathBuf)> = std::fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
            .filter(|(_, path)| *path != self.path)
            .collect();
        files.sort();
        let surplus = files.len().saturating_sub(MOST_FILES - 1);
        for (_, path) in files.into_iter().take(surplus) {
            drop(std::fs::remove_file(path));
        }
    }
}

/// Everything that may rightly change an answer.
fn identity(bundle: &Bundle, info: &EngineInfo) -> BTreeMap<String, String> {
    let first_line = |path: &str, key: &str| {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default();
        line.split_once(':').map_or(line, |(_, value)| value).trim().to_owned()
    };
    let names: Vec<String> = bundle.plan_names().map(str::to_owned).collect();
    let plans = names.iter().filter_map(|name| bundle.plan_facts(name).ok()).map(|facts| facts.sha256);
    let mut fields = BTreeMap::from([
        ("bundle".to_owned(), bundle.id().to_owned()),
        ("backend".to_owned(), info.backend.clone()),
        ("edge_run".to_owned(), env!("CARGO_PKG_VERSION").to_owned()),
        ("architecture".to_owned(), std::env::consts::ARCH.to_owned()),
        ("cpu".to_owned(), first_line("/proc/cpuinfo", "model name")),
    ]);
    let plans = plans.collect::<Vec<_>>().join(" ");
    if !plans.is_empty() {
        fields.insert("plans".to_owned(), plans);
        fields.insert("driver".to_owned(), first_line("/proc/driver/nvidia/version", "NVRM"));
        fields.insert("board".to_owned(), first_line("/etc/nv_tegra_release", "#"));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_named_with_both_sides() {
        let identity = |driver: &str| BTreeMap::from([("driver".to_owned(), driver.to_owned())]);
        let here = KnownHere { path: PathBuf::new(), identity: identity("560.1"), proved_at: None };
        // A time in the future, as after a clock that jumped back, decides nothing.
        let file =
            |driver| File { identity: identity(driver), proved_at: "2126-01-01T00:00:00Z".into(), answers: vec![] };
        assert_eq!(here.differs(&file("560.1")), None);
        assert_eq!(here.differs(&file("550.9")).unwrap(), "driver: found `550.9`, expected `560.1`");
        let more = KnownHere { identity: BTreeMap::new(), path: PathBuf::new(), proved_at: None };
        assert_eq!(more.differs(&file("550.9")).unwrap(), "driver: found `550.9`, expected nothing");
    }

    #[test]
    fn the_oldest_files_go_first() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..30 {
            let file = std::fs::File::create(folder.path().join(format!("{number}.json"))).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number)).unwrap();
        }
        KnownHere { path: folder.path().join("3.json"), identity: BTreeMap::new(), proved_at: None }.forget_old();
        let left = std::fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, MOST_FILES);
        assert!(folder.path().join("3.json").exists() && folder.path().join("29.json").exists());
        assert!(!folder.path().join("10.json").exists());
    }
}
