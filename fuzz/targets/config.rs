//! Any text as a recipe, as edge.toml, as a script of the simulated line, as a source.
#![no_main]

use edge_trt::camera::SourceSpec;
use edge_trt::camera::sim::{Script, SimOptions};
use edge_trt::config::recipe::Recipe;
use edge_trt::config::run::RunConfig;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _recipe = Recipe::parse(text);
    let _script = Script::from_toml(text);
    let _source = SourceSpec::parse(text);
    let _camera = SourceSpec::parse_camera(text);
    // A script named in the options is a file, which is no business of a fuzzer.
    if !text.contains("script") {
        let _options = SimOptions::parse(text);
    }
    if let Ok(config) = RunConfig::parse(text) {
        for stream in &config.streams {
            let _spec = SourceSpec::parse(&stream.source).and_then(|spec| spec.with_request(stream.camera.clone()));
        }
    }
});
