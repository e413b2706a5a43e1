//! `edge-run baseline`: what is usual on a line, and making it the measure.

use crate::cli::Terminal;
use crate::cli::service::StateArgs;
use crate::error::Result;
use crate::run::baselines::{self, Figures, Which};
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(super) enum BaselineCommand {
    /// List anchor and rolling baseline of every stream and product, with figures
    Show(StateArgs),
    /// Make the rolling baseline the anchor; logged with time and figures
    Accept(AcceptArgs),
}

/// Which baselines.
#[derive(Debug, Args)]
pub(super) struct AcceptArgs {
    /// Of this stream [default: all]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Of this product [default: all]
    #[arg(long, value_name = "NAME")]
    product: Option<String>,
    #[command(flatten)]
    state: StateArgs,
}

/// Shows or accepts.
///
/// # Errors
/// As [`baselines::list`] and [`baselines::accept`].
pub(super) fn baseline(command: BaselineCommand, terminal: &mut Terminal) -> Result<()> {
    match command {
        BaselineCommand::Show(args) => show(args, terminal),
        BaselineCommand::Accept(args) => accept(args, terminal),
    }
}

fn show(args: StateArgs, terminal: &mut Terminal) -> Result<()> {
    let listed = baselines::list(&args.folder()?)?;
    for (key, baseline) in &listed.baselines {
        let bundle = key.bundle.get(..12).unwrap_or(&key.bundle);
        terminal.data(format!("stream {}, product {}, bundle {bundle}\n", key.stream, key.product))?;
        let anchor = baseline.anchor.as_ref().map_or_else(
            || "the bundle's reference, where it has one".to_owned(),
            |anchor| format!("{}, {}", baselines::origin(anchor), Figures::of_anchor(anchor)),
        );
        terminal.data(format!("  anchor   {anchor}\n"))?;
        let rolling = baseline
            .rolling
            .as_ref()
            .map_or_else(|| "none yet".to_owned(), |block| Figures::of_block(block).to_string());
        terminal.data(format!("  rolling  {rolling}\n"))?;
    }
    for broken in &listed.broken {
        terminal.warn(format!("{broken}; edge-run will set it aside"));
    }
    if listed.baselines.is_empty() {
        terminal.say("no baseline is kept yet: a live stream keeps one after its first 2,000 good frames");
    }
    Ok(())
}

fn accept(args: AcceptArgs, terminal: &mut Terminal) -> Result<()> {
    let which = Which { stream: args.stream, product: args.product };
    for line in baselines::accept(&args.state.folder()?, &which)? {
        let name = format!("stream {}, product {}", line.key.stream, line.key.product);
        match (&line.now, &line.refused) {
            (Some(now), _) => {
                let before = line
                    .before
                    .map_or_else(|| "the bundle's reference, or none".to_owned(), |before| before.to_string());
                terminal.data(format!("{name}\n  before   {before}\n  now      {now}\n"))?;
            }
            (None, why) => terminal.warn(format!("{name}: {}", why.as_deref().unwrap_or("refused"))),
        }
    }
    Ok(())
}
