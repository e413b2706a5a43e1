//! `edge-build verify`.

use super::flags::CpuFlags;
use super::short;
use crate::bundle::manifest::Source;
use crate::bundle::{Bundle, golden};
use crate::cli::Terminal;
use crate::engine::cpu;
use crate::error::Result;
use std::path::Path;

/// Checks hashes (plans too) and manifest, then the known answers on the CPU engine.
pub(super) fn run(path: &Path, cpu_flags: &CpuFlags, terminal: &mut Terminal) -> Result<()> {
    let bundle = Bundle::open(path)?;
    let manifest = bundle.manifest();
    let floor = manifest.thresholds.lowest_score();
    let classes = manifest.classes.clone().into();
    let options = cpu_flags.options();
    for name in bundle.plan_names() {
        bundle.plan(name)?;
    }
    if manifest.source.opset == Source::NO_MODEL {
        return terminal.data(format_args!(
            "{}: whole, id {}\nthe bundle holds a plan made elsewhere and no model: `edge-run` proves it on its GPU when it starts",
            path.display(),
            short(bundle.id()),
        ));
    }
    let mut engine = cpu::load(&bundle.model()?, &manifest.input, &manifest.layout, classes, floor, &options)
        .map_err(|error| error.at(path.display()))?;
    let proof = golden::prove(engine.as_mut(), &bundle)?;
    terminal.data(format_args!(
        "{}: whole, id {}\n{} known answers came out right on {} (largest difference {:.4} px and {:.6} in score)",
        path.display(),
        short(bundle.id()),
        proof.frames,
        engine.info().backend,
        proof.worst_px,
        proof.worst_score,
    ))
}
