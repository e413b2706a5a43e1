//! Foreign calls: the only folder with `unsafe`.

pub mod storage;
