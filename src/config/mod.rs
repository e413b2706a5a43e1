//! Configuration files. Unknown keys are errors everywhere.

pub mod precision;
pub mod recipe;
pub mod run;
pub mod service;

pub use recipe::Recipe;
pub use run::RunConfig;
pub use service::ServiceSettings;
