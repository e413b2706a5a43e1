//! Whether a bundle that is there already is what an order would make.

use super::assemble::{Built, Order, report_name};
use super::cache_key::{CacheKey, differences};
use super::calibrate::one_line;
use super::compile::Compiler;
use super::watcher::Watcher;
use crate::bundle::Bundle;
use crate::config::precision::Precision;
use crate::error::Result;
use crate::units::Bytes;

/// Reasons that are told for a build; the rest is counted.
const TOLD: usize = 3;
/// Longest reason that is told whole, in characters.
const LONGEST: usize = 160;

/// The bundle at the order's output when it is whole and was made from the same inputs; else it is told why a new one is
/// built.
pub(super) fn look(order: &Order, key: &CacheKey, watcher: &mut dyn Watcher) -> Option<Built> {
    if !order.output.exists() {
        return None;
    }
    let reasons = if order.rebuild { vec!["`--rebuild` asks for it".to_owned()] } else { reasons(order, key) };
    if reasons.is_empty()
        && let Ok(bundle) = Bundle::open(&order.output)
    {
        let bytes = bundle.file().metadata().map_or(0, |about| about.len());
        if let Some(gate) = &bundle.manifest().gate {
            watcher.judged(gate);
        }
        return Some(Built { id: bundle.id().to_owned(), bytes: Bytes(bytes), rebuilt: false });
    }
    for reason in reasons.iter().take(TOLD) {
        let text: String = reason.chars().take(LONGEST).collect();
        let more = if text.len() < reason.len() { " …" } else { "" };
        watcher.say(&format!("building again: {text}{more}"));
    }
    if reasons.len() > TOLD {
        watcher.say(&format!("building again: {} further differences", reasons.len() - TOLD));
    }
    None
}

/// Why the bundle that is there will not do; empty when it will.
fn reasons(order: &Order, key: &CacheKey) -> Vec<String> {
    let bundle = match Bundle::open(&order.output).and_then(whole) {
        Ok(bundle) => bundle,
        Err(error) => return vec![one_line(&error)],
    };
    let manifest = bundle.manifest();
    let mut reasons = differences(&manifest.cache_key_fields, &key.fields);
    if reasons.is_empty() && manifest.cache_key != key.sha256 {
        reasons.push("the bundle's cache key is not that of its fields".to_owned());
    }
    if matches!(order.compiler, Compiler::Plan(_)) && bundle.plan_names().next().is_none() {
        reasons.push("the bundle holds no plan".to_owned());
    }
    if let Some(folder) = order.report.as_ref().filter(|_| order.recipe.precision != Precision::AsExported) {
        let missing = ["json", "html"].map(|extension| folder.join(report_name(order, extension)));
        reasons.extend(
            missing.iter().filter(|file| !file.exists()).map(|file| format!("{} is not there", file.display())),
        );
    }
    reasons
}

/// A bundle whose plans are whole as well.
fn whole(bundle: Bundle) -> Result<Bundle> {
    for name in bundle.plan_names() {
        bundle.plan(name)?;
    }
    Ok(bundle)
}
