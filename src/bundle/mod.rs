//! Bundles (`*.edge`): one zip with stored, page-aligned entries that holds a model and all that is needed to prove it.

pub mod manifest;
