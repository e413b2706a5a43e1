//! Class names: from the model or from the user, never from a default list.

use super::Options;
use crate::engine::Layout;
use crate::error::{Error, Result};
use crate::onnx::metadata::Metadata;
use crate::units;
use std::collections::BTreeSet;

/// The names to go by; `None` when neither the model nor the user gives any.
pub(super) fn choose(metadata: &Metadata, options: &Options, decided: &mut Vec<String>) -> Result<Option<Vec<String>>> {
    let names = match (&options.names, &metadata.names) {
        (Some(given), Some(own)) => {
            if given != own {
                decided.push(format!("{} class names come from `--names`, not from the model", given.len()));
            }
            Some(given.clone())
        }
        (Some(given), None) => {
            decided.push(format!("{} class names come from `--names`: the model has none", given.len()));
            Some(given.clone())
        }
        (None, own) => own.clone(),
    };
    let Some(names) = names else { return Ok(None) };
    if names.is_empty() {
        return Err(Error::usage("found no class name, expected one a class").hint("write one name a line"));
    }
    let distinct: BTreeSet<&String> = names.iter().collect();
    if distinct.len() < names.len() {
        decided.push(format!(
            "{} classes share {} names; rules by name mean all of a name",
            names.len(),
            distinct.len()
        ));
    }
    Ok(Some(names))
}

/// The names for `layout`, which has been decided with them.
pub(super) fn settle(names: Option<Vec<String>>, layout: &Layout) -> Result<Vec<String>> {
    let names = names.ok_or_else(|| missing(Some(layout.classes())))?;
    if units::count32(names.len()) == layout.classes() {
        return Ok(names);
    }
    Err(Error::refused(format!(
        "found {} classes in the output, expected {} as there are names",
        layout.classes(),
        names.len()
    )))
}

/// The error for a model without class names; `classes` is their number where the shape tells it.
pub(super) fn missing(classes: Option<u32>) -> Error {
    let count = classes.map_or(String::new(), |classes| format!(" for {classes} classes"));
    let lines = classes.map_or("one name a line".to_owned(), |classes| format!("{classes} lines, one name each"));
    Error::usage(format!("found no class names{count}, expected metadata `names` in the model"))
        .hint(format!("give them with `--names FILE` ({lines}), or export again with Ultralytics, which writes them"))
}
