//! `edge-build sign`.

use super::short;
use crate::bundle::signature::PrivateKey;
use crate::bundle::{Bundle, write_with_additions};
use crate::cli::Terminal;
use crate::error::Result;
use std::path::Path;

/// Adds the signatures of `key` to the bundle, in place; its id stays.
pub(super) fn run(path: &Path, key: &Path, terminal: &mut Terminal) -> Result<()> {
    let key = PrivateKey::read(key)?;
    let bundle = Bundle::open(path)?;
    let signatures = key.sign(&bundle)?;
    write_with_additions(path, &bundle, &signatures)?;
    let plans = signatures.len() - 1;
    terminal.say(format_args!("signed {} (id {}, {plans} plans)", path.display(), short(bundle.id())));
    Ok(())
}
