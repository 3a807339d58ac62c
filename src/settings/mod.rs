//! Server and model settings: their sources, and which source takes precedence.
//!
//! A setting is declared once, by a row of `settings!` in `server` or `model`, which becomes a field of a struct and a row of a table.
//! Everything else is derived from the tables. Each field is looked up in the sources in the original's order: command line, file of the
//! operator, file of the served folder (`layers`), environment, settings that were baked into an image, `.env` file of the working
//! directory, options of a served script, default. The first one that has the field wins, so a file overrides the environment. The value is converted to the field's canonical
//! form, recorded with its source, and read into the typed structs [`Settings`] and [`ModelSettings`]. All problems are reported at once;
//! less severe ones are [`SettingsWarning`]s.

mod arguments;
mod coerce;
mod convert;
mod dotenv;
pub mod env;
mod field;
mod file;
mod kafka;
mod layers;
mod model;
mod nearest;
mod problem;
mod refusal;
mod resolve;
mod server;
mod source;
mod table;
mod topics;

pub use arguments::SettingArgument;
pub use coerce::lenient_bool;
pub use env::{
    CloudEventVariables, Environment, SettingsSources, SystemEnvironment, openai_route_prefix, worker_threads,
};
pub use field::{
    Availability, CustomKind, FieldDefault, FieldKind, NullHandling, Original, SettingField, SettingGroup, UnknownKeys,
    WITHOUT_OTEL, WITHOUT_STORAGE,
};
pub use kafka::{DEAD_LETTERS, KafkaDelivery, KafkaOffsetReset, KafkaOrdering, KafkaSettings, KafkaSettingsError};
pub use model::{MODEL_SETTINGS_FILE, ModelParameters, ModelSettings};
pub use nearest::nearest;
pub use problem::{FileError, SettingsError, SettingsProblem, SettingsWarning};
pub use resolve::LoadedSettings;
pub use server::{
    AccessSettings, CorsSettings, LimitSettings, LogLevel, LoggingSettings, SETTINGS_FILE, Settings, StorageOffline,
    StorageSettings, TlsSettings, TlsVersion, WorkerSettings,
};
pub use source::{SettingEntry, SettingSource};
pub use table::{CORS, MODEL, PARAMETERS, SERVER, TENSOR};

#[cfg(test)]
mod tests;
