//! Figures as Markdown and JSON.

use crate::bundle::Bundle;
use serde::Serialize;
use std::fmt::Write;

/// One measured figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// What.
    pub what: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: String,
    /// The bound that the project sets itself; `None` where it sets none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// A bound and whether it holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bound {
    /// In words.
    pub text: String,
    /// Whether it holds here.
    pub holds: bool,
}

/// What a bench found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Name of the bundle.
    pub bundle: String,
    /// Its id.
    pub sha256: String,
    /// Input of the network, in words.
    pub input: String,
    /// Backend with version.
    pub engine: String,
    /// Machine facts, name and value.
    pub machine: Vec<(String, String)>,
    /// What else is to be known.
    pub notes: Vec<String>,
    /// The figures in order.
    pub figures: Vec<Figure>,
}

impl Report {
    pub(super) fn new(bundle: &Bundle) -> Report {
        let input = &bundle.manifest().input;
        Report {
            bundle: bundle.manifest().name.clone(),
            sha256: bundle.id().to_owned(),
            input: format!("{} × {} × {} {:?}", input.batch, input.channels, input.size, input.element),
            engine: String::new(),
            machine: vec![],
            notes: vec![],
            figures: vec![],
        }
    }

    pub(super) fn note(&mut self, text: String) {
        self.notes.push(text);
    }

    pub(super) fn figure(&mut self, what: &str, value: f64, unit: &str) {
        self.figures.push(Figure { what: what.to_owned(), value, unit: unit.to_owned(), bound: None });
    }

    /// A figure with a bound that holds or does not.
    pub(super) fn bounded(&mut self, what: &str, value: f64, unit: &str, text: String, holds: bool) {
        let bound = Some(Bound { text, holds });
        self.figures.push(Figure { what: what.to_owned(), value, unit: unit.to_owned(), bound });
    }

    /// Median, 99th percentile and worst of `times` in ms; gives the median.
    pub(super) fn spread(&mut self, what: &str, times: &mut [f64]) -> f64 {
        times.sort_by(f64::total_cmp);
        let at = |share: usize| times.get((times.len() * share / 100).min(times.len().saturating_sub(1))).copied();
        let median = at(50).unwrap_or(0.0);
        self.figure(&format!("{what}, median"), median, "ms");
        self.figure(&format!("{what}, 99 %"), at(99).unwrap_or(0.0), "ms");
        self.figure(&format!("{what}, worst"), times.last().copied().unwrap_or(0.0), "ms");
        median
    }

    /// Whether every bound holds.
    pub fn holds(&self) -> bool {
        self.figures.iter().filter_map(|figure| figure.bound.as_ref()).all(|bound| bound.holds)
    }

    /// The report as a Markdown section.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("## {} on {}\n\n", self.bundle, self.engine);
        let _infallible = writeln!(text, "Bundle {}, input {}.\n", self.sha256, self.input);
        for (name, value) in &self.machine {
            let _infallible = writeln!(text, "- {name}: {value}");
        }
        for note in &self.notes {
            let _infallible = writeln!(text, "- {note}");
        }
        text.push_str("\n| what | value | bound | holds |\n| --- | ---: | --- | --- |\n");
        for figure in &self.figures {
            let (bound, holds) = match &figure.bound {
                Some(bound) => (bound.text.as_str(), if bound.holds { "yes" } else { "**no**" }),
                None => ("", ""),
            };
            let value = figure.value;
            let number = if value.fract() == 0.0 && value.abs() < 1e15 {
                format!("{value:.0}")
            } else if value.abs() >= 100.0 {
                format!("{value:.1}")
            } else {
                format!("{value:.4}")
            };
            let _infallible = writeln!(text, "| {} | {number} {} | {bound} | {holds} |", figure.what, figure.unit);
        }
        text
    }
}
