//! Configuration files. Unknown keys are errors everywhere.

pub mod recipe;
pub mod run;

pub use recipe::Recipe;
pub use run::RunConfig;
