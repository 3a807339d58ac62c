//! Server and model settings: where each value may come from, and which source wins.
//!
//! Everything is made from the tables in `table`. For each field the sources are asked in the original's order:
//! command line, file, environment, `.env` file of the working directory, default; the first that has the field wins,
//! so that a value in a file beats the environment. The winner is brought into the field's canonical form, remembered
//! with its source, and read into the typed structs [`Settings`] and [`ModelSettings`]. All problems are reported at
//! once; what is only suspicious is a [`SettingsWarning`].

mod coerce;
mod convert;
mod dotenv;
pub mod env;
mod field;
mod file;
mod model;
mod nearest;
mod problem;
mod resolve;
mod server;
mod source;
mod table;

pub use coerce::lenient_bool;
pub use env::{Environment, SettingsSources, SystemEnvironment};
pub use field::{Availability, FieldDefault, FieldKind, NullHandling, SettingField, SettingGroup, UnknownKeys};
pub use model::{MODEL_SETTINGS_FILE, ModelParameters, ModelSettings, TensorMetadata};
pub use problem::{FileError, SettingsError, SettingsProblem, SettingsWarning};
pub use resolve::LoadedSettings;
pub use server::{CorsSettings, LoggingSettings, SETTINGS_FILE, Settings};
pub use source::{SettingEntry, SettingSource};
pub use table::{CORS, MODEL, PARAMETERS, SERVER, TENSOR};

#[cfg(test)]
mod tests;
