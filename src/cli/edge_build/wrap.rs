//! `edge-build wrap`.

use super::flags::WrapFlags;
use super::progress::Screen;
use super::{order, shell_word, short};
use crate::build::Options;
use crate::build::wrap::{WrapOrder, wrap};
use crate::cli::{StopRequest, Terminal};
use crate::config::Recipe;
use crate::error::Result;
use crate::ffi::tensorrt::probe::Search;

/// Puts a plan that somebody else made into a bundle.
pub(super) fn run(flags: WrapFlags, terminal: &mut Terminal) -> Result<()> {
    let stop = StopRequest::on_signals()?;
    let output = flags.output.unwrap_or_else(|| flags.plan.with_extension("edge"));
    let mut recipe = Recipe::for_model(&flags.plan);
    recipe.golden = flags.golden;
    recipe.thresholds.score = flags.conf.unwrap_or(recipe.thresholds.score);
    recipe.thresholds.iou = flags.iou.unwrap_or(recipe.thresholds.iou);
    let options = Options {
        names: flags.names.as_deref().map(order::read_names).transpose()?,
        layout: flags.layout.as_deref().map(str::parse).transpose()?,
        ..Options::default()
    };
    let name = flags.name.unwrap_or_else(|| order::stem(&output));
    order::check_name(&name)?;
    let order = WrapOrder {
        plan: flags.plan,
        recipe,
        name,
        output,
        options,
        gpu_budget: flags.gpu_budget,
        search: Search::new(flags.tensorrt_dir),
    };
    let built = wrap(&order, &mut Screen::new(terminal, stop))?;
    terminal.say(format_args!("wrote {} ({}, id {})", order.output.display(), built.bytes, short(&built.id)));
    terminal.say(format_args!("next: edge-run --engine {} --camera 0", shell_word(&order.output)));
    Ok(())
}
