//! The tables of all settings, made of the declarations in `server` and `model`.

use super::field::{FieldDefault, FieldKind, SettingField, SettingGroup, UnknownKeys};
use super::model::{ModelParameters, ModelSettings};
use super::server::{CorsSettings, Settings};

/// The prefix of the server's environment variables.
pub(super) const SERVER_PREFIX: &str = "MLSERVER_";
/// The prefix of the environment variables that apply to every model.
pub(super) const MODEL_PREFIX: &str = "MLSERVER_MODEL_";

/// Why a setting has no effect if the server lacks the feature. Depends on the build, so the reference does not mention it.
pub const WITHOUT_OTEL: &str = "the server was built without the feature `otel`";

/// Declares a struct and its table: each row is a field of both.
///
/// The first line of a row's comment is its description. Behind the type are the kind of its values, its default, and the methods of
/// [`SettingField`] that say more about it. A field that is `internal` is in the struct only.
macro_rules! settings {
    (
        $(#[$struct_attribute:meta])*
        pub struct $struct:ident {
            $(
                #[doc = $help:literal]
                $(#[$attribute:meta])*
                $name:ident: $type:ty = $row:tt,
            )*
        }
    ) => {
        $(#[$struct_attribute])*
        pub struct $struct {
            $(
                #[doc = $help]
                $(#[$attribute])*
                pub $name: $type,
            )*
        }

        impl $struct {
            /// The rows of the table, in display order.
            pub(super) const FIELDS: &'static [&'static [SettingField]] =
                &[$($crate::settings::table::row!($name, $help, $row)),*];
        }
    };
}

/// Makes the part of a table that one row declares.
macro_rules! row {
    ($name:ident, $help:literal, internal) => {
        &[]
    };
    (
        $name:ident,
        $help:literal,
        [
            $kind:ident $(($($limit:expr),*))?,
            $preset:ident $(($value:expr))?
            $(, $method:ident $(($argument:expr))?)*
        ]
    ) => {
        &[SettingField::new(
            stringify!($name),
            FieldKind::$kind $(($($limit),*))?,
            FieldDefault::$preset $(($value))?,
            // A comment begins with a space.
            $help.trim_ascii(),
        )
        $(.$method($($argument)?))*]
    };
}

pub(super) use {row, settings};

/// `settings.json`.
pub static SERVER: SettingGroup = SettingGroup {
    title: "server settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: UnknownKeys::Warn,
    fields: Settings::FIELDS,
};

/// The object `cors_settings` of `settings.json`.
pub static CORS: SettingGroup = SettingGroup {
    title: "CORS settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: UnknownKeys::Warn,
    fields: CorsSettings::FIELDS,
};

/// `model-settings.json`.
pub static MODEL: SettingGroup = SettingGroup {
    title: "model settings",
    env_prefix: Some(MODEL_PREFIX),
    unknown: UnknownKeys::Warn,
    fields: ModelSettings::FIELDS,
};

/// The object `parameters` of `model-settings.json`.
pub static PARAMETERS: SettingGroup = SettingGroup {
    title: "model parameters",
    env_prefix: Some(MODEL_PREFIX),
    unknown: UnknownKeys::Keep,
    fields: ModelParameters::FIELDS,
};

/// An element of a model's `inputs` or `outputs`.
pub static TENSOR: SettingGroup = SettingGroup {
    title: "tensor metadata",
    env_prefix: None,
    unknown: UnknownKeys::Warn,
    fields: &[
        row!(name, "Name of the tensor", [Text, Required]),
        row!(datatype, "Datatype of its elements", [Text, Required]),
        row!(shape, "Shape of the tensor; -1 stands for any size", [IntList, Required]),
        row!(parameters, "Parameters of the tensor, for example `content_type`", [Object, EmptyObject, null_is_preset]),
    ],
};

/// The groups whose fields have environment variables.
pub(super) static GROUPS: [&SettingGroup; 4] = [&SERVER, &CORS, &MODEL, &PARAMETERS];
