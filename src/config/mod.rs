//! Configuration files. Unknown keys are errors everywhere.

pub mod recipe;

pub use recipe::Recipe;
