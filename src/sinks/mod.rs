//! Sinks: where results go. Sinks never change a detection.

pub mod row;
