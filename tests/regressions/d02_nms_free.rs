//! D02: final rows are told from raw scores by shape and metadata, never by family.

use crate::common::cases::{prepare, prepared, refused};
use edge_trt::build::Options;
use edge_trt::engine::Layout;

#[test]
fn rows_are_end_to_end() {
    for name in ["e2e", "e2e_badcls"] {
        let Some(prepared) = prepared(name) else { return };
        assert_eq!(prepared.layout, Layout::EndToEnd { output: "output0".into(), classes: 80, rows: 300 });
    }
}

#[test]
fn rows_without_metadata_ask_for_names_and_then_pass() {
    let Some(text) = refused("e2e_nometa") else { return };
    assert!(text.contains("--names"), "{text}");
    let names: Vec<String> = (0..20).map(|class| format!("c{class}")).collect();
    let options = Options { names: Some(names), ..Options::default() };
    let prepared = prepare("e2e_nometa", &options).unwrap().unwrap();
    assert_eq!(prepared.layout, Layout::EndToEnd { output: "output0".into(), classes: 20, rows: 300 });
    assert_eq!(prepared.classes.len(), 20);
}
