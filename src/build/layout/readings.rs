//! Every way in which the outputs of a graph can be read.

use super::anchors::AnchorCounts;
use super::{Facts, LayoutChoice, Output};
use crate::engine::Layout;
use crate::error::Result;
use crate::onnx::tensor::DataType;

/// One way to read the outputs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) choice: LayoutChoice,
    /// Outputs that are read.
    pub(super) outputs: Vec<String>,
    /// Number of classes by the shape; `None` when the shape does not tell.
    pub(super) classes: Option<u32>,
    /// Anchors or rows.
    rows: u32,
    /// For people.
    pub(super) text: String,
    /// Whether only `--layout` may take it.
    pub(super) only_by_choice: bool,
    supported: bool,
}

impl Reading {
    /// Whether an engine can read it.
    pub(super) fn is_supported(&self) -> bool {
        self.supported
    }

    /// The layout; `None` when no engine reads it. `names` is the number of classes where the shape does not tell.
    pub(super) fn layout(&self, names: Option<u32>) -> Result<Option<Layout>> {
        let classes = match self.classes.or(names) {
            Some(classes) => classes,
            None => return Err(crate::build::names::missing(None)),
        };
        let output = self.outputs.first().cloned().unwrap_or_default();
        Ok(match (self.supported, self.choice, self.outputs.as_slice()) {
            (false, ..) => None,
            (_, LayoutChoice::Raw, _) => Some(Layout::Raw { output, classes, anchors: self.rows }),
            (_, LayoutChoice::Objectness, _) => Some(Layout::Objectness { output, classes, anchors: self.rows }),
            (_, LayoutChoice::EndToEnd, _) => Some(Layout::EndToEnd { output, classes, rows: self.rows }),
            (_, LayoutChoice::NmsPlugin, [count, boxes, scores, class_ids]) => Some(Layout::NmsPlugin {
                count: count.clone(),
                boxes: boxes.clone(),
                scores: scores.clone(),
                class_ids: class_ids.clone(),
                classes,
                rows: self.rows,
            }),
            (_, LayoutChoice::NmsPlugin, _) => None,
        })
    }

    /// What to do about a reading that only a choice may take.
    pub(super) fn way_out(&self) -> String {
        if self.supported {
            format!("if that is what it is, say so: `--layout {}`", self.choice)
        } else {
            "export with Ultralytics: `yolo export model=x.pt format=onnx`".to_owned()
        }
    }
}

/// All readings of `facts`.
pub(super) fn of(facts: &Facts<'_>, counts: &AnchorCounts) -> Vec<Reading> {
    let mut readings: Vec<Reading> = Vec::new();
    for output in facts.outputs {
        if let (&[batch, middle, last], DataType::F32 | DataType::F16) = (output.shape.as_slice(), output.element)
            && batch == i64::from(facts.input.batch)
        {
            let single = Single { output, middle, last, counts };
            readings.extend(
                [single.raw(), single.transposed(), single.objectness(), single.one_anchor(), single.rows(facts)]
                    .into_iter()
                    .flatten(),
            );
        }
    }
    readings.extend(plugin(facts));
    readings
}

struct Single<'a> {
    output: &'a Output,
    middle: i64,
    last: i64,
    counts: &'a AnchorCounts,
}

impl Single<'_> {
    fn reading(&self, choice: LayoutChoice, classes: Option<i64>, rows: i64, text: String) -> Option<Reading> {
        Some(Reading {
            choice,
            outputs: vec![self.output.name.clone()],
            classes: match classes {
                Some(classes) => Some(u32::try_from(classes).ok().filter(|&classes| classes > 0)?),
                None => None,
            },
            rows: u32::try_from(rows).ok()?,
            text: format!("`{}` {:?} as {text}", self.output.name, self.output.shape),
            only_by_choice: false,
            supported: true,
        })
    }

    fn raw(&self) -> Option<Reading> {
        let strides = self.counts.strides(self.last, 1)?;
        let classes = self.middle - 4;
        let text = format!("4 box values + {classes} classes by {} anchors (strides {strides:?})", self.last);
        self.reading(LayoutChoice::Raw, Some(classes), self.last, text)
    }

    fn transposed(&self) -> Option<Reading> {
        let strides = self.counts.strides(self.middle, 1)?;
        let classes = self.last - 4;
        let text =
            format!("{} anchors (strides {strides:?}) by 4 box values + {classes} classes, transposed", self.middle);
        // Next to `one_anchor` this is the second meaning of the same axes; it is kept out of the way unless the axes are equal.
        let equal = self.counts.strides(self.last, 1).is_some();
        self.reading(LayoutChoice::Raw, Some(classes), self.middle, text).map(|reading| Reading {
            supported: false,
            only_by_choice: !equal,
            ..reading
        })
    }

    fn objectness(&self) -> Option<Reading> {
        let strides = self.counts.strides(self.middle, 3)?;
        let classes = self.last - 5;
        let text = format!(
            "{} anchors (3 a cell, strides {strides:?}) by 4 box values + objectness + {classes} classes",
            self.middle
        );
        self.reading(LayoutChoice::Objectness, Some(classes), self.middle, text)
    }

    /// One anchor a cell with objectness: YOLOv6 decodes its boxes, YOLOX usually does not; the shape does not tell.
    fn one_anchor(&self) -> Option<Reading> {
        let strides = self.counts.strides(self.middle, 1)?;
        let classes = self.last - 5;
        let text = format!(
            "{} anchors (strides {strides:?}) by 4 box values + objectness + {classes} classes, decoded (YOLOv6) or not (YOLOX): \
             the shape does not tell",
            self.middle
        );
        self.reading(LayoutChoice::Objectness, Some(classes), self.middle, text)
            .map(|reading| Reading { only_by_choice: true, ..reading })
    }

    fn rows(&self, facts: &Facts<'_>) -> Option<Reading> {
        if self.last != 6 {
            return None;
        }
        let anchors = self.counts.strides(self.middle, 1).or_else(|| self.counts.strides(self.middle, 3)).is_some();
        let text = format!("{} final rows of x1, y1, x2, y2, score, class", self.middle);
        let unclear = anchors && facts.metadata.end2end != Some(true);
        self.reading(LayoutChoice::EndToEnd, None, self.middle, text)
            .map(|reading| Reading { only_by_choice: unclear, ..reading })
    }
}

/// The four outputs of an NMS plugin, bound by shape, type and, where both leave a choice, name.
fn plugin(facts: &Facts<'_>) -> Option<Reading> {
    let batch = i64::from(facts.input.batch);
    let is_integer = |output: &&Output| matches!(output.element, DataType::I32 | DataType::I64);
    let is_float = |output: &&Output| matches!(output.element, DataType::F32 | DataType::F16);
    let boxes = only(
        facts
            .outputs
            .iter()
            .filter(is_float)
            .filter(|output| matches!(output.shape.as_slice(), [n, _, 4] if *n == batch)),
    )?;
    let &[_, rows, _] = boxes.shape.as_slice() else { return None };
    let count = only(
        facts
            .outputs
            .iter()
            .filter(is_integer)
            .filter(|output| output.shape == [batch, 1] && (rows != 1 || names_any(output, &["num", "count"]))),
    )?;
    let by_row = |output: &&Output| output.shape == [batch, rows] && output.name != count.name;
    let class_ids = only(facts.outputs.iter().filter(is_integer).filter(by_row)).or_else(|| {
        only(facts.outputs.iter().filter(by_row).filter(|output| names_any(output, &["class", "label"])))
    })?;
    let scores =
        only(facts.outputs.iter().filter(is_float).filter(by_row).filter(|output| output.name != class_ids.name))?;
    Some(Reading {
        choice: LayoutChoice::NmsPlugin,
        outputs: [count, boxes, scores, class_ids].map(|output| output.name.clone()).to_vec(),
        classes: None,
        rows: u32::try_from(rows).ok()?,
        text: format!(
            "`{}`, `{}`, `{}`, `{}` as count, boxes, scores and classes of at most {rows} final boxes",
            count.name, boxes.name, scores.name, class_ids.name
        ),
        only_by_choice: false,
        supported: true,
    })
}

fn only<'a>(mut outputs: impl Iterator<Item = &'a Output>) -> Option<&'a Output> {
    let first = outputs.next()?;
    outputs.next().is_none().then_some(first)
}

fn names_any(output: &Output, parts: &[&str]) -> bool {
    let name = output.name.to_ascii_lowercase();
    parts.iter().any(|part| name.contains(part))
}
