//! Where the pages are served, and to whom.

use crate::config::run::HttpConfig;
use crate::error::{Error, Result};
use crate::sinks::http::{HttpOptions, Listen};
use std::path::{Path, PathBuf};

/// The pages: on for live sources, off for files; what is typed goes before the file.
pub(super) fn http(
    listen: Option<String>,
    token_file: Option<PathBuf>,
    read_only: bool,
    config: &HttpConfig,
    live: bool,
) -> Result<Option<HttpOptions>> {
    if !live {
        return match listen.as_deref() {
            None | Some("none") => Ok(None),
            Some(_) => Err(Error::usage("`--listen` is for cameras and the simulated line, found files alone")
                .hint("leave it out, or play the folder as a camera: `--source replay:DIR?fps=30`")),
        };
    }
    let listen: Listen = listen.as_deref().unwrap_or(&config.listen).parse()?;
    if listen == Listen::None {
        return Ok(None);
    }
    let token = token_file.or_else(|| config.token_file.clone()).map(|file| read_token(&file)).transpose()?;
    Ok(Some(HttpOptions { listen, token, read_only: read_only || config.read_only, ..HttpOptions::default() }))
}

fn read_token(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::usage("the token cannot be read")
            .because(error)
            .at(file.display())
            .hint("write the token into that file, readable by this user alone")
    })?;
    Ok(text.trim().to_owned())
}
