//! How the outputs are to be read, decided by shapes and metadata, never by the name of a model family.
//!
//! Every way in which an output could be read is written down ([`readings`]); metadata, class names and `--layout` strike
//! out what they contradict. One reading left is the answer; several are an error that prints them.

mod anchors;
mod readings;
mod tasks;

pub(super) use tasks::check_task;

use super::{names, prepare::quoted};
use crate::engine::{InputSpec, Layout};
use crate::error::{Error, Result};
use crate::onnx::metadata::Metadata;
use crate::onnx::tensor::DataType;
use crate::units;
use anchors::AnchorCounts;
use readings::Reading;
use std::fmt;
use std::str::FromStr;

/// A layout by its name on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LayoutChoice {
    /// `raw`: [`Layout::Raw`].
    Raw,
    /// `objectness`: [`Layout::Objectness`].
    Objectness,
    /// `end-to-end`: [`Layout::EndToEnd`].
    EndToEnd,
    /// `nms-plugin`: [`Layout::NmsPlugin`].
    NmsPlugin,
}

impl LayoutChoice {
    /// All choices.
    pub const ALL: [LayoutChoice; 4] =
        [LayoutChoice::Raw, LayoutChoice::Objectness, LayoutChoice::EndToEnd, LayoutChoice::NmsPlugin];
}

impl fmt::Display for LayoutChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LayoutChoice::Raw => "raw",
            LayoutChoice::Objectness => "objectness",
            LayoutChoice::EndToEnd => "end-to-end",
            LayoutChoice::NmsPlugin => "nms-plugin",
        })
    }
}

impl FromStr for LayoutChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        LayoutChoice::ALL.into_iter().find(|choice| choice.to_string() == text).ok_or_else(|| {
            Error::usage(format!(
                "found layout `{text}`, expected {}",
                quoted(&LayoutChoice::ALL.map(|choice| choice.to_string()))
            ))
        })
    }
}

/// An output of the graph with its fixed shape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) name: String,
    pub(super) element: DataType,
    pub(super) shape: Vec<i64>,
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` {} {:?}", self.name, self.element, self.shape)
    }
}

/// What the decision goes by.
pub(super) struct Facts<'a> {
    pub(super) input: &'a InputSpec,
    pub(super) outputs: &'a [Output],
    pub(super) metadata: &'a Metadata,
    pub(super) names: Option<&'a [String]>,
    pub(super) choice: Option<LayoutChoice>,
}

impl Facts<'_> {
    fn name_count(&self) -> Option<u32> {
        self.names.map(|names| units::count32(names.len()))
    }
}

/// Decides the layout.
pub(super) fn decide(facts: &Facts<'_>, decided: &mut Vec<String>) -> Result<Layout> {
    let counts = AnchorCounts::of(facts.input.size, facts.metadata.stride_px);
    let all = readings::of(facts, &counts);
    tasks::check_masks(facts, &all)?;
    if all.is_empty() {
        return Err(no_reading(facts, &counts));
    }
    let chosen = by_choice(facts, all)?;
    let fitting = by_names(facts, chosen)?;
    let reading = match fitting.as_slice() {
        [only] => only,
        several => return Err(ambiguous(facts, several)),
    };
    check_end2end(facts, reading)?;
    let Some(layout) = reading.layout(facts.name_count())? else {
        return Err(Error::refused(format!("found {}, which edge-run does not read", reading.text)).hint(
            "export with Ultralytics or name the layout it knows: `--layout raw|objectness|end-to-end|nms-plugin`",
        ));
    };
    decided.push(format!("layout `{}`: {}", reading.choice, reading.text));
    let ignored: Vec<&str> = facts
        .outputs
        .iter()
        .map(|output| output.name.as_str())
        .filter(|name| !reading.outputs.iter().any(|used| used == name))
        .collect();
    if !ignored.is_empty() {
        decided.push(format!("outputs {} are not read", quoted(&ignored)));
    }
    Ok(layout)
}

fn by_choice(facts: &Facts<'_>, all: Vec<Reading>) -> Result<Vec<Reading>> {
    let Some(choice) = facts.choice else {
        // Readings that only an explicit choice may take do not count as ambiguity unless nothing else is left.
        let (open, explicit): (Vec<Reading>, Vec<Reading>) =
            all.into_iter().partition(|reading| !reading.only_by_choice);
        if !open.is_empty() {
            return Ok(open);
        }
        let fits = |reading: &&Reading| reading.classes.is_none() || reading.classes == facts.name_count();
        let shown = explicit.iter().find(fits).or(explicit.first());
        return match shown {
            Some(shown) => Err(Error::refused(format!("found {}", shown.text)).hint(shown.way_out())),
            None => Ok(open),
        };
    };
    let others: Vec<String> = all.iter().map(|reading| reading.text.clone()).collect();
    let chosen: Vec<Reading> =
        all.into_iter().filter(|reading| reading.choice == choice && reading.is_supported()).collect();
    if chosen.is_empty() {
        return Err(Error::usage(format!(
            "found no output that can be read as `{choice}`, expected {}",
            others.join(" or ")
        )));
    }
    Ok(chosen)
}

fn by_names(facts: &Facts<'_>, readings: Vec<Reading>) -> Result<Vec<Reading>> {
    let Some(names) = facts.name_count() else {
        return match readings.as_slice() {
            [only] => Err(names::missing(only.classes).at(format!("outputs {}", list(facts.outputs)))),
            several => Err(ambiguous(facts, several)),
        };
    };
    let (fitting, others): (Vec<Reading>, Vec<Reading>) =
        readings.into_iter().partition(|reading| reading.classes.is_none_or(|classes| classes == names));
    if !fitting.is_empty() {
        return Ok(fitting);
    }
    let found: Vec<String> = others.iter().map(|reading| reading.text.clone()).collect();
    let error = Error::refused(format!("found {}, expected {names} classes as there are names", found.join(" or ")))
        .at(format!("outputs {}", list(facts.outputs)));
    let guess = others.iter().find_map(|reading| tasks::looks_like(reading, names, facts.metadata));
    Err(match guess {
        Some(guess) => error.hint(guess),
        None => error.hint("give the names of this model with `--names FILE`, one a line, or export it again"),
    })
}

fn ambiguous(facts: &Facts<'_>, readings: &[Reading]) -> Error {
    let texts: Vec<String> =
        readings.iter().enumerate().map(|(position, reading)| format!("({}) {}", position + 1, reading.text)).collect();
    let mut choices: Vec<String> = readings
        .iter()
        .filter(|reading| reading.is_supported())
        .map(|reading| format!("`--layout {}`", reading.choice))
        .collect();
    choices.dedup();
    let hint = if choices.len() < readings.iter().filter(|reading| reading.is_supported()).count() {
        format!(
            "name the output to read: `--outputs {}`",
            facts.outputs.first().map_or("NAME", |output| output.name.as_str())
        )
    } else {
        format!("decide with {}", choices.join(" or "))
    };
    Error::refused(format!(
        "found outputs that can be read in {} ways, expected one: {}",
        readings.len(),
        texts.join(" or ")
    ))
    .at(format!("outputs {}", list(facts.outputs)))
    .hint(hint)
}

/// The export's own word on NMS must not contradict the shape.
fn check_end2end(facts: &Facts<'_>, reading: &Reading) -> Result<()> {
    if facts.choice.is_some() {
        return Ok(());
    }
    let (end2end, nms) = (facts.metadata.end2end, facts.metadata.nms == Some(true));
    let by_shape = matches!(reading.choice, LayoutChoice::EndToEnd | LayoutChoice::NmsPlugin);
    let says = match end2end {
        Some(true) if !by_shape => "metadata `end2end` says final boxes",
        Some(false) if reading.choice == LayoutChoice::EndToEnd && !nms => "metadata `end2end` says boxes before NMS",
        _ => return Ok(()),
    };
    Err(Error::refused(format!("found two readings: by shape {}, while {says}", reading.text))
        .at(format!("outputs {}", list(facts.outputs)))
        .hint(format!("export again, or decide with `--layout {}` if the shape is right", reading.choice)))
}

fn no_reading(facts: &Facts<'_>, counts: &AnchorCounts) -> Error {
    let error = Error::refused(format!(
        "found outputs that no known layout fits, expected [{batch}, 4 + classes, {anchors}], [{batch}, {tripled}, 5 + classes], \
         [{batch}, rows, 6] or the four outputs of an NMS plugin for a {} input",
        facts.input.size,
        batch = facts.input.batch,
        anchors = counts.text(1),
        tripled = counts.text(3),
    ))
    .at(format!("outputs {}", list(facts.outputs)));
    match tasks::diagnose(facts) {
        Some(diagnosis) => error.hint(diagnosis),
        None => error.hint("export a detection model: `yolo export model=x.pt format=onnx`"),
    }
}

/// The outputs with their shapes.
fn list(outputs: &[Output]) -> String {
    outputs.iter().map(Output::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
