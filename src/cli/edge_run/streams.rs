//! Streams from flags and from the configuration file.

use super::{RunArgs, TriggerArg};
use crate::camera::{Place, SourceKind, SourceSpec};
use crate::config::run::{RunConfig, StreamConfig, check_names};
use crate::error::{Error, Result};
use crate::run::StreamOptions;
use crate::run::depot::Delivery;
use std::path::Path;

pub(super) fn streams_of_flags(typed: &RunArgs) -> Result<Vec<StreamOptions>> {
    let cameras = typed.camera.iter().map(|text| (text, true));
    let sources = typed.source.iter().map(|text| (text, false));
    let mut streams = Vec::new();
    for (text, is_camera) in cameras.chain(sources) {
        let (name, source) = named_source(text);
        let mut spec = if is_camera { SourceSpec::parse_camera(source)? } else { SourceSpec::parse(source)? };
        if let (Place::Sim(options), Some(truth)) = (&mut spec.place, &typed.truth) {
            *options = with_truth(options, truth)?;
        }
        // Settings are for cameras; other sources beside a camera are left as they are.
        if is_camera || matches!(spec.place, Place::Device(_)) || typed.camera.is_empty() {
            spec = spec.with_request(typed.request.clone())?;
        }
        let prefix = if is_camera || spec.kind() == SourceKind::Live { "cam" } else { "files" };
        let name = name.map_or_else(|| format!("{prefix}{}", streams.len()), str::to_owned);
        streams.push(StreamOptions {
            name,
            spec,
            delivery: typed.delivery.map(Delivery::from),
            wait: typed.wait,
            triggered: typed.trigger == TriggerArg::Http,
        });
    }
    if streams.is_empty() {
        return Err(Error::usage("found no source, expected at least one")
            .hint("`--camera 0`, `--source DIR`, `--source sim:` for the simulated line, or `--config edge.toml`"));
    }
    check_names(streams.iter().map(|stream| stream.name.as_str()))?;
    Ok(streams)
}

/// `NAME=SOURCE` with a usable name; anything else is a source without a name.
fn named_source(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((name, source))
            if !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')) =>
        {
            (Some(name), source)
        }
        _ => (None, text),
    }
}

fn with_truth(options: &str, truth: &Path) -> Result<String> {
    let truth = truth.to_str().ok_or_else(|| Error::usage("the path after `--truth` is not valid text"))?;
    let separator = if options.is_empty() || options.ends_with(['?', '&']) { "" } else { "&" };
    Ok(format!("{options}{separator}truth={truth}"))
}

pub(super) fn streams_of_config(config: &RunConfig, file: &Path) -> Result<Vec<StreamOptions>> {
    let place = |stream: &StreamConfig| format!("{}, stream `{}`", file.display(), stream.name);
    let streams = config.streams.iter();
    streams.map(|stream| stream_of_config(stream).map_err(|error| error.moved_to(place(stream)))).collect()
}

fn stream_of_config(stream: &StreamConfig) -> Result<StreamOptions> {
    let spec = SourceSpec::parse(&stream.source)?.with_request(stream.camera.clone())?;
    Ok(StreamOptions {
        name: stream.name.clone(),
        spec,
        delivery: stream.delivery,
        wait: stream.wait,
        triggered: stream.triggered,
    })
}
