//! Streams from flags and from the configuration file.

use super::{RunArgs, TriggerArg};
use crate::camera::{Place, SourceKind, SourceSpec};
use crate::config::run::{RunConfig, StreamConfig, check_names};
use crate::error::{Error, Result};
use crate::run::StreamOptions;
use crate::run::depot::Delivery;
use std::path::{Path, PathBuf};

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
            engine: None,
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

/// Gives streams the bundles that `--engine STREAM=FILE` names for them. What stands without a stream is the run's bundle.
pub(super) fn take_engines(typed: &[String], streams: &mut [StreamOptions]) -> Result<Option<PathBuf>> {
    let mut of_run = None;
    for text in typed {
        // A file may have `=` in its name: only the name of a stream stands before one.
        let named = text.split_once('=').filter(|(name, _)| streams.iter().any(|stream| stream.name == *name));
        match named {
            Some((name, file)) => {
                for stream in streams.iter_mut().filter(|stream| stream.name == name) {
                    stream.engine = Some(PathBuf::from(file));
                }
            }
            None => {
                if let (Some(name), file) = named_source(text)
                    && !Path::new(text).exists()
                {
                    let names: Vec<&str> = streams.iter().map(|stream| stream.name.as_str()).collect();
                    return Err(Error::usage(format!(
                        "found a bundle for stream `{name}`, expected one of: {}",
                        names.join(", ")
                    ))
                    .at(format!("--engine {text}"))
                    .hint(format!("give the stream that name: `--source {name}=…`; or drop it: `--engine {file}`")));
                }
                if of_run.replace(PathBuf::from(text)).is_some() {
                    return Err(Error::usage("found two bundles for the whole run, expected one")
                        .hint("say which stream each of them answers: `--engine left=a.edge --engine right=b.edge`"));
                }
            }
        }
    }
    Ok(of_run)
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
        engine: stream.engine.clone(),
        spec,
        delivery: stream.delivery,
        wait: stream.wait,
        triggered: stream.triggered,
    })
}
