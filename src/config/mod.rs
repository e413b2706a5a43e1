//! Configuration files. Unknown keys are errors everywhere.

pub mod incident;
pub mod precision;
pub mod recipe;
pub mod run;
pub mod service;

pub use incident::IncidentSettings;
pub use recipe::Recipe;
pub use run::RunConfig;
pub use service::ServiceSettings;
