//! `edge-run product`: which product a line makes, and the request to change over.

use crate::cli::Terminal;
use crate::cli::service::StateArgs;
use crate::error::{Error, Result};
use crate::run::product::{self, Kept};
use clap::Args;
use std::path::Path;

#[derive(Debug, Args)]
pub(super) struct ProductArgs {
    /// The product to change over to; without it, the products are listed
    id: Option<String>,
    #[command(flatten)]
    state: StateArgs,
}

/// Lists products or asks for one.
///
/// # Errors
/// [`crate::ErrorKind::Usage`] for a folder without products or an unknown one.
pub(super) fn run(args: ProductArgs, terminal: &mut Terminal) -> Result<()> {
    let folder = args.state.folder()?;
    let kept = kept(&folder)?;
    let Some(id) = args.id else {
        for known in &kept.known {
            let mark = if *known == kept.product { "* " } else { "  " };
            terminal.data(format!("{mark}{known}"))?;
        }
        return Ok(());
    };
    if !kept.known.contains(&id) {
        let known: Vec<String> = kept.known.iter().map(|known| format!("`{known}`")).collect();
        return Err(
            Error::usage(format!("found product `{id}`, expected one of: {}", known.join(", "))).at(folder.display())
        );
    }
    product::ask(&folder, &id)?;
    terminal.say(format!(
        "asked: a running line changes over to `{id}` within a second, between two frames; else the next start does"
    ));
    Ok(())
}

fn kept(folder: &Path) -> Result<Kept> {
    product::read(folder)?.ok_or_else(|| {
        Error::usage("found no products, expected the state folder of a line with `[[product]]`")
            .at(folder.display())
            .hint("name the folder that edge-run was given with `--state`")
    })
}
