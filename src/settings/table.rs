//! The tables of all settings, made of the declarations in `server` and `model`.

use super::field::{SettingGroup, UnknownKeys};
use super::model::{ModelParameters, ModelSettings};
use super::server::{CorsSettings, Settings};

/// The prefix of the server's environment variables.
pub(super) const SERVER_PREFIX: &str = "MLSERVER_";
/// The prefix of the environment variables that apply to every model.
pub(super) const MODEL_PREFIX: &str = "MLSERVER_MODEL_";

/// Declares a struct and its table: each row is a field of both.
///
/// The first line of a row's comment is its description. Behind the type are the kind of its values, its default, and the methods of
/// [`SettingField`] that say more about it. A row can also be a `group`: the settings of another struct, which files have beside the
/// others. The names of all settings of a struct may have a prefix in files. Fields that are `internal` are no settings.
macro_rules! settings {
    ($(#[$attribute:meta])* pub struct $struct:ident { $($body:tt)* }) => {
        $crate::settings::table::settings! { $(#[$attribute])* pub struct $struct with prefix "" { $($body)* } }
    };
    (
        $(#[$struct_attribute:meta])*
        pub struct $struct:ident with prefix $prefix:literal {
            $(
                #[doc = $help:literal]
                $(#[$attribute:meta])*
                $name:ident: $type:ty = $row:tt,
            )*
            $(internal { $($internal:tt)* })?
        }
    ) => {
        $(#[$struct_attribute])*
        pub struct $struct {
            $(
                #[doc = $help]
                $(#[$attribute])*
                pub $name: $type,
            )*
            $($($internal)*)?
        }

        impl $struct {
            /// The rows of the table, in display order.
            pub(super) const ROWS: &'static [$crate::settings::field::SettingRow] =
                &[$($crate::settings::table::row!($prefix, $name, $type, $help, $row)),*];
        }
    };
}

/// Makes the row of a table.
macro_rules! row {
    ($prefix:literal, $name:ident, $type:ty, $help:literal, group) => {
        $crate::settings::field::SettingRow::Group { member: stringify!($name), rows: <$type>::ROWS }
    };
    (
        $prefix:literal,
        $name:ident,
        $type:ty,
        $help:literal,
        [
            $kind:ident $(($($limit:expr),*))?,
            $preset:ident $(($value:expr))?
            $(, $method:ident $(($argument:expr))?)*
        ]
    ) => {
        $crate::settings::field::SettingRow::Setting(
            $crate::settings::field::SettingField::new(
                concat!($prefix, stringify!($name)),
                stringify!($name),
                $crate::settings::field::FieldKind::$kind $(($($limit),*))?,
                $crate::settings::field::FieldDefault::$preset $(($value))?,
                // A comment begins with a space.
                $help.trim_ascii(),
            )
            $(.$method($($argument)?))*
        )
    };
}

pub(super) use {row, settings};

/// `settings.json`.
pub static SERVER: SettingGroup = SettingGroup {
    title: "server settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: UnknownKeys::Warn,
    rows: Settings::ROWS,
};

/// The object `cors_settings` of `settings.json`.
pub static CORS: SettingGroup = SettingGroup {
    title: "CORS settings",
    env_prefix: Some(SERVER_PREFIX),
    unknown: UnknownKeys::Warn,
    rows: CorsSettings::ROWS,
};

/// `model-settings.json`.
pub static MODEL: SettingGroup = SettingGroup {
    title: "model settings",
    env_prefix: Some(MODEL_PREFIX),
    unknown: UnknownKeys::Warn,
    rows: ModelSettings::ROWS,
};

/// The object `parameters` of `model-settings.json`.
pub static PARAMETERS: SettingGroup = SettingGroup {
    title: "model parameters",
    env_prefix: Some(MODEL_PREFIX),
    unknown: UnknownKeys::Keep,
    rows: ModelParameters::ROWS,
};

/// An element of a model's `inputs` or `outputs`.
pub static TENSOR: SettingGroup = SettingGroup {
    title: "tensor metadata",
    env_prefix: None,
    unknown: UnknownKeys::Warn,
    rows: &[
        row!("", name, String, "Name of the tensor", [Text, Required]),
        row!("", datatype, Datatype, "Datatype of its elements", [Text, Required]),
        row!("", shape, Vec<i64>, "Shape of the tensor; -1 stands for any size", [IntList, Required]),
        row!(
            "",
            parameters,
            Parameters,
            "Parameters of the tensor, for example `content_type`",
            [Object, EmptyObject, null_is_preset]
        ),
    ],
};

/// The groups whose fields have environment variables.
pub(super) static GROUPS: [&SettingGroup; 4] = [&SERVER, &CORS, &MODEL, &PARAMETERS];
