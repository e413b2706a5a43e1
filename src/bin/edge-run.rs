//! `edge-run`: runs a bundle on cameras.
fn main() {}
