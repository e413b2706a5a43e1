//! Foreign calls: the only folder with `unsafe`. Every block names its condition and who ensures it.

pub mod onnxruntime;
pub mod storage;
pub mod v4l2;
