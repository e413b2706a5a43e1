//! As typed → checked: flags against each other and against the configuration file.

use super::pages::http;
use super::streams::{streams_of_config, streams_of_flags, take_engines};
use super::{BackendArg, RunArgs};
use crate::bundle;
use crate::bundle::signature::PublicKey;
use crate::camera::{Place, SourceKind};
use crate::cli::sample::SampleBundle;
use crate::config::run::{CpuConfig, OutputConfig, RunConfig};
use crate::config::service::ServiceSettings;
use crate::engine::cpu::{CpuBackend, CpuOptions};
use crate::error::{Error, Result};
use crate::run::{Options, OutputOptions, ServiceOptions, StreamOptions};
use std::path::PathBuf;

/// Checks what was typed against itself and against the configuration file.
pub(super) fn checked(typed: RunArgs) -> Result<(Options, Option<SampleBundle>)> {
    let config = match &typed.config {
        Some(file) => RunConfig::read(file)?,
        None => RunConfig::default(),
    };
    let mut streams = match &typed.config {
        Some(file) => streams_of_config(&config, file)?,
        None => streams_of_flags(&typed)?,
    };
    let engine = take_engines(&typed.engine, &mut streams)?.or(config.engine);
    let live = streams.iter().any(|stream| stream.spec.kind() == SourceKind::Live);
    let settings = typed.service.or(config.service);
    if typed.product.is_some() && config.products.is_empty() {
        return Err(Error::usage("found `--product`, expected it with a `--config` file that has `[[product]]`")
            .hint("`edge-run config example` shows how products are written"));
    }
    let (bundle, sample) = match config.products.first() {
        Some(_) if !typed.engine.is_empty() => {
            return Err(Error::usage("found `--engine` beside `[[product]]`, expected one of them")
                .hint("leave `--engine` out: every product names its own bundle"));
        }
        Some(first) => (first.bundle.clone(), None),
        None => the_bundle(engine, &streams)?,
    };
    let trust = settings.trust.as_deref().map(PublicKey::read).transpose()?;
    let mut service = look_after(settings)?;
    service.incidents = typed.incident.or(config.incident).options()?;
    service.products.list = config.products;
    service.products.first = typed.product;
    service.devices = typed.gpu.devices(&config.gpu);
    service.batch_wait = typed.batch.wait(&config.batch)?;
    let options = Options {
        bundle,
        trust,
        cpu: cpu(typed.cpu_backend, typed.threads, typed.emulate_half, &config.cpu)?,
        gpu: typed.gpu.options_or(&config.gpu)?,
        conf: share("conf", typed.conf.or(config.report.conf))?,
        iou: share("iou", typed.iou.or(config.report.iou))?,
        frames: typed.frames,
        duration: typed.duration,
        service,
        output: OutputOptions {
            http: http(typed.listen, typed.token_file, typed.read_only, &config.http, live)?,
            terminal: !typed.quiet,
            ..outputs(typed.output, typed.save, config.output)
        },
        streams,
    };
    Ok((options, sample))
}

/// The state folder as set, or the one that systemd has made (`StateDirectory=`).
fn look_after(mut settings: ServiceSettings) -> Result<ServiceOptions> {
    let of_systemd = || std::env::split_paths(&std::env::var_os("STATE_DIRECTORY")?).next();
    settings.state = settings.state.or_else(of_systemd);
    settings.options()
}

/// What is typed or set for the report, 0..1.
fn share(name: &str, value: Option<f32>) -> Result<Option<f32>> {
    match value {
        Some(value) if !(0.0..=1.0).contains(&value) => {
            Err(Error::usage(format!("found --{name} {value}, expected 0 to 1"))
                .hint("leave it out to report what the bundle's own thresholds give"))
        }
        value => Ok(value),
    }
}

fn outputs(file: Option<PathBuf>, save: Option<PathBuf>, config: OutputConfig) -> OutputOptions {
    OutputOptions { file: file.or(config.file), save: save.or(config.save), ..OutputOptions::default() }
}

/// The bundle asked for; for the simulated line alone the sample; else the only one in the usual folders.
fn the_bundle(asked: Option<PathBuf>, streams: &[StreamOptions]) -> Result<(PathBuf, Option<SampleBundle>)> {
    if let Some(path) = asked {
        return Ok((path, None));
    }
    if let Some(path) = streams.first().and_then(|stream| stream.engine.clone())
        && streams.iter().all(|stream| stream.engine.is_some())
    {
        return Ok((path, None));
    }
    if streams.iter().all(|stream| matches!(stream.spec.place, Place::Sim(_))) {
        let sample = SampleBundle::unpack()?;
        return Ok((sample.path().to_owned(), Some(sample)));
    }
    Ok((bundle::search(&[])?, None))
}

pub(super) fn cpu(
    backend: BackendArg,
    threads: Option<u32>,
    emulate_half: bool,
    config: &CpuConfig,
) -> Result<CpuOptions> {
    let set = || config.backend.as_deref().map_or(Ok(CpuBackend::Auto), str::parse);
    let backend = match backend {
        BackendArg::Auto => set().map_err(|error: Error| error.at("[cpu]"))?,
        BackendArg::Rten => CpuBackend::Rten,
        BackendArg::Onnxruntime => CpuBackend::OnnxRuntime,
    };
    let threads = threads.or(config.threads);
    if threads == Some(0) {
        return Err(Error::usage("found 0 threads, expected at least 1").hint("leave it out to use the physical cores"));
    }
    Ok(CpuOptions { backend, threads, emulate_half })
}
