//! P08: the cache key covers weights, shapes, precision, target and versions, and not times or paths.

use crate::common::cases::{path, prepared};
use edge_trt::build::cache_key::{CacheKey, KeyParts, cache_key, differences};
use edge_trt::build::{self, Options, Prepared};
use edge_trt::bundle::manifest::Target;
use edge_trt::onnx::Model;
use std::collections::BTreeMap;

fn target(platform: &str) -> Target {
    Target { platform: platform.into(), flavour: "cpu".into(), compute_capability: None, budget: None }
}

fn key(prepared: &Prepared, change: impl FnOnce(&mut KeyParts<'_>)) -> CacheKey {
    let (target, recipe) = (target("cpu"), BTreeMap::new());
    let mut parts = KeyParts {
        precision: "as exported",
        calibration_sha256: None,
        target: &target,
        tensorrt: None,
        edge_build: "0.1.0",
        recipe: &recipe,
    };
    change(&mut parts);
    cache_key(prepared, &parts)
}

#[test]
fn models_of_one_graph_name_and_other_weights_have_other_keys() {
    let (Some(one), Some(other)) = (prepared("ok"), prepared("conf7")) else { return };
    let (one, other) = (key(&one, |_| {}), key(&other, |_| {}));
    assert_ne!(one.sha256, other.sha256);
    let fields: Vec<String> = differences(&one.fields, &other.fields);
    assert!(fields.iter().any(|field| field.contains("source_sha256")), "{fields:?}");
}

#[test]
fn a_touched_or_moved_file_keeps_its_key() {
    let (Some(source), Some(one)) = (path("ok"), prepared("ok")) else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("renamed.onnx");
    std::fs::copy(source, &copy).unwrap();
    let copied = build::prepare(Model::read(&copy).unwrap(), &Options::default()).unwrap();
    assert_eq!(key(&one, |_| {}), key(&copied, |_| {}));
}

#[test]
fn each_other_part_changes_the_key() {
    let Some(prepared) = prepared("ok") else { return };
    let base = key(&prepared, |_| {});
    let mut resized = prepared.clone();
    resized.input.size.width_px = 320;
    let mut renamed = prepared.clone();
    renamed.classes[0] = "other".into();
    let keys = [
        key(&resized, |_| {}),
        key(&renamed, |_| {}),
        key(&prepared, |parts| parts.precision = "int8"),
        key(&prepared, |parts| parts.calibration_sha256 = Some("00")),
        key(&prepared, |parts| parts.tensorrt = Some("10.3.0")),
        key(&prepared, |parts| parts.edge_build = "0.2.0"),
    ];
    for other in keys {
        assert_ne!(base.sha256, other.sha256);
        assert_eq!(differences(&base.fields, &other.fields).len(), 1);
    }
    assert_ne!(
        base,
        cache_key(
            &prepared,
            &KeyParts {
                precision: "as exported",
                calibration_sha256: None,
                target: &target("t4"),
                tensorrt: None,
                edge_build: "0.1.0",
                recipe: &BTreeMap::new(),
            }
        )
    );
}
