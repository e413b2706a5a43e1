//! D04: names come from the model or the user, their count from the shape; there is no default list.

use crate::common::cases::{prepare, prepared, refused};
use edge_trt::build::Options;

#[test]
fn quotes_inside_names_survive() {
    let Some(prepared) = prepared("names2") else { return };
    assert_eq!(prepared.classes, ["driver's cab", "a\"b: {1}"]);
}

#[test]
fn a_mismatch_names_both_counts() {
    let Some(text) = refused("names_short") else { return };
    assert!(text.contains("8 classes") && text.contains("expected 1 classes"), "{text}");
    let names = |count: u32| Some((0..count).map(|class| format!("n{class}")).collect());
    let given = prepare("names_short", &Options { names: names(8), ..Options::default() }).unwrap().unwrap();
    assert_eq!(given.classes[7], "n7");
    assert!(given.decided.iter().any(|said| said.contains("`--names`")), "{:?}", given.decided);
    assert!(prepare("names_short", &Options { names: names(6), ..Options::default() }).unwrap().is_err());
}
