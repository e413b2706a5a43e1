//! `edge-build targets`.

use super::json_text;
use crate::cli::Terminal;
use crate::error::Result;
use crate::platform::{MemoryFigure, Platform, PlatformKind};

/// Lists the compiled-in platforms.
pub(super) fn run(json: bool, terminal: &mut Terminal) -> Result<()> {
    let platforms = Platform::all()?;
    if json {
        return terminal.data(json_text(&platforms)?);
    }
    let mut rows = vec![["NAME", "GPU", "MEMORY", "TENSORRT", "MACHINE"].map(str::to_owned)];
    rows.extend(platforms.iter().map(row));
    let widths: Vec<usize> =
        (0..5).map(|column| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        terminal.data(cells.join("  ").trim_end())?;
    }
    terminal.data(
        "\nMemory is nominal unless marked `reported`; the sources stand in `--json`. `rtx` plans are built on any machine, the others \
         on one with such a GPU; `--portable` leaves the plan to the device.",
    )
}

fn row(platform: &Platform) -> [String; 5] {
    let memory = platform.memory.as_ref().map_or_else(
        || "-".to_owned(),
        |memory| match memory.figure {
            MemoryFigure::Nominal => memory.total.to_string(),
            MemoryFigure::Reported => format!("{} reported", memory.total),
        },
    );
    let shared = if platform.kind == PlatformKind::Unified { " shared" } else { "" };
    let flavours: Vec<&str> = platform.flavours.iter().map(|flavour| flavour.name.as_str()).collect();
    [
        platform.name.clone(),
        platform.compute_capability.as_ref().map_or_else(|| "-".to_owned(), |known| known.value.clone()),
        format!("{memory}{shared}"),
        if flavours.is_empty() { "-".to_owned() } else { unique(flavours).join(" ") },
        platform.title.clone(),
    ]
}

fn unique(mut names: Vec<&str>) -> Vec<&str> {
    names.dedup();
    names
}
