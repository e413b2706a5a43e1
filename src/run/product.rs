//! Products: what a line can be changed over to. Each has a bundle and may have thresholds, a rule and a baseline of its own.
//!
//! All engines are loaded and proved at the start and stay on a [`shelf`]; a changeover puts one in between two frames. The
//! selected product is kept in the state folder, so that a restart inspects what the line makes.

mod kept;
mod shelf;

pub use kept::{FILE, Kept, REQUEST, ask, read};
pub(super) use kept::{take_request, write};
pub(super) use shelf::{Shelf, Shelved};

use crate::bundle::manifest::Manifest;
use crate::decision::{DecisionRule, Rule};
use crate::detections::Thresholds;
use crate::error::{Error, Result};
use crate::guard::GuardSpec;
use crate::run::baselines::DEFAULT_PRODUCT;
use crate::run::{Options, ready};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// One `[[product]]`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Product {
    /// Unique id; appears in results and pages.
    pub id: String,
    /// Its bundle; several products may share one.
    pub bundle: PathBuf,
    /// Name of its baseline; default: the id. Products with the same name share one.
    #[serde(default)]
    pub baseline: Option<String>,
    /// What differs from the bundle's thresholds.
    #[serde(default)]
    pub thresholds: ThresholdChanges,
    /// The rule instead of the bundle's.
    #[serde(default)]
    pub decision: Option<DecisionRule>,
}

/// `[product.thresholds]`: what differs from the bundle's.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ThresholdChanges {
    /// Least score, 0..1.
    pub score: Option<f32>,
    /// Least score of single classes by name, beside those of the bundle.
    pub score_by_class: BTreeMap<String, f32>,
    /// Boxes of one class that overlap more than this are one object.
    pub iou: Option<f32>,
}

/// The products of a run; none by default.
#[derive(Debug, Clone, Default)]
pub struct ProductOptions {
    /// All of them.
    pub list: Vec<Product>,
    /// The one to begin with; default: the one in the state folder, else the first.
    pub first: Option<String>,
    /// Where requests come in.
    pub door: Arc<ProductDoor>,
}

/// The latest request for another product.
#[derive(Debug, Default)]
pub struct ProductDoor {
    request: Mutex<Option<(Arc<str>, Instant)>>,
}

impl ProductDoor {
    /// Asks for a product; a request that nobody has taken yet is replaced.
    pub fn ask(&self, product: Arc<str>, asked: Instant) {
        *self.request.lock().unwrap_or_else(PoisonError::into_inner) = Some((product, asked));
    }

    pub(super) fn take(&self) -> Option<(Arc<str>, Instant)> {
        self.request.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ProductOptions {
    /// The place of the product to begin with; `None` without products.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] when the one asked for, or the one that was inspected last, is not there any more.
    pub(super) fn begin_with(&self, state: Option<&Path>) -> Result<Option<usize>> {
        if self.list.is_empty() {
            return Ok(None);
        }
        if let Some(first) = &self.first {
            return self.place(first).map(Some);
        }
        let Some(state) = state else { return Ok(Some(0)) };
        let asked = kept::take_request(state)?;
        let Some(id) = asked.or(kept::read(state)?.map(|kept| kept.product)) else { return Ok(Some(0)) };
        self.place(&id).map(Some).map_err(|error| {
            error.at(state.join(FILE).display()).hint(
                "the line made this product when it last ran; say which one it makes now: `edge-run --product ID`, \
                 or `edge-run product ID --state DIR`",
            )
        })
    }

    /// The place of the product with this id.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] naming the known ones.
    pub fn place(&self, id: &str) -> Result<usize> {
        let ids = || self.list.iter().map(|product| format!("`{}`", product.id)).collect::<Vec<_>>().join(", ");
        let found = self.list.iter().position(|product| product.id == id);
        found.ok_or_else(|| Error::usage(format!("found product `{id}`, expected one of: {}", ids())))
    }
}

impl Options {
    /// The bundle files of this run, each once: one a product, or the only one.
    pub(super) fn bundle_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = Vec::new();
        for product in &self.service.products.list {
            if !files.contains(&product.bundle) {
                files.push(product.bundle.clone());
            }
        }
        if files.is_empty() {
            files.push(self.bundle.clone());
        }
        files
    }
}

/// How answers of one bundle are judged for one product.
#[derive(Debug, Clone)]
pub struct Judging {
    /// The product's id; `None` without products.
    pub product: Option<Arc<str>>,
    /// Name of the baseline.
    pub baseline: String,
    /// What is judged.
    pub thresholds: Thresholds,
    /// What is reported instead, when flags ask for it.
    pub reported: Option<Thresholds>,
    /// What the line does with a part.
    pub rule: Option<Rule>,
    /// What the guard compares with.
    pub guard: GuardSpec,
}

impl Judging {
    /// As the bundle says, without products and flags.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a rule that does not fit the bundle's classes.
    pub fn plain(manifest: &Manifest) -> Result<Self> {
        let rule = manifest.decision.as_ref();
        Ok(Judging {
            product: None,
            baseline: DEFAULT_PRODUCT.to_owned(),
            thresholds: manifest.thresholds.clone(),
            reported: None,
            rule: rule.map(|rule| Rule::new(rule, &manifest.classes)).transpose()?,
            guard: manifest.guard.clone(),
        })
    }

    /// For the product at `place`, or without products.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] for a rule that does not fit the bundle's classes.
    pub(super) fn of(options: &Options, place: Option<usize>, manifest: &Manifest) -> Result<Self> {
        let product = place.and_then(|place| options.service.products.list.get(place));
        let thresholds = product.map_or_else(|| manifest.thresholds.clone(), |product| product.thresholds(manifest));
        let rule = product.and_then(|product| product.decision.as_ref()).or(manifest.decision.as_ref());
        let in_product = |error: Error| match product {
            Some(product) => {
                let inner = error.place().map_or_else(String::new, |place| format!(", {place}"));
                error.moved_to(format!("product `{}`{inner}", product.id))
            }
            None => error,
        };
        let mut guard = manifest.guard.clone();
        if thresholds != manifest.thresholds {
            // The reference was made at the bundle's thresholds: other ones give other boxes.
            guard.reference = None;
        }
        Ok(Judging {
            product: product.map(|product| product.id.as_str().into()),
            baseline: product.map_or(DEFAULT_PRODUCT, Product::baseline).to_owned(),
            reported: ready::reported_thresholds(options, &thresholds),
            rule: rule.map(|rule| Rule::new(rule, &manifest.classes)).transpose().map_err(in_product)?,
            thresholds,
            guard,
        })
    }
}

impl Product {
    /// Name of its baseline.
    pub fn baseline(&self) -> &str {
        self.baseline.as_deref().unwrap_or(&self.id)
    }

    /// The bundle's thresholds with this product's changes.
    pub fn thresholds(&self, manifest: &Manifest) -> Thresholds {
        let (mut thresholds, changes) = (manifest.thresholds.clone(), &self.thresholds);
        thresholds.score = changes.score.unwrap_or(thresholds.score);
        thresholds.iou = changes.iou.unwrap_or(thresholds.iou);
        thresholds.score_by_class.extend(changes.score_by_class.clone());
        thresholds
    }

    /// Checks what needs no bundle.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Usage`] naming key and value.
    pub fn check(&self) -> Result<()> {
        let changes = &self.thresholds;
        let scores = changes.score_by_class.iter().map(|(class, value)| (class.as_str(), Some(*value)));
        for (what, value) in scores.chain([("score", changes.score), ("iou", changes.iou)]) {
            if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
                return Err(Error::usage(format!("found {what} {value}, expected 0 to 1"))
                    .at(format!("[product.thresholds] of `{}`", self.id)));
            }
        }
        Ok(())
    }
}

/// The lowest score that any product asks of the engine in the bundle file `path`; of a copy elsewhere (the last good
/// bundle), whatever any product asks for.
pub(super) fn lowest_score(options: &Options, path: &Path, manifest: &Manifest) -> f32 {
    let all = &options.service.products.list;
    let is_known = all.iter().any(|product| product.bundle == path);
    all.iter()
        .filter(|product| product.bundle == path || !is_known)
        .map(|product| product.thresholds(manifest))
        .chain([manifest.thresholds.clone()])
        .map(|judged| {
            let reported = ready::reported_thresholds(options, &judged);
            reported.map_or(f32::INFINITY, |reported| reported.lowest_score()).min(judged.lowest_score())
        })
        .fold(f32::INFINITY, f32::min)
}
