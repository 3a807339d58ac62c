//! The precedence of sources, and the problems and warnings that are reported.

use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::env::MapEnvironment;
use super::*;
use crate::types::Parameters;

/// A folder to start, which is also the working directory of the environment.
struct Case {
    folder: TempDir,
    environment: MapEnvironment,
}

impl Case {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let environment = MapEnvironment::new(folder.path());
        Self { folder, environment }
    }

    fn file(self, name: &str, content: impl fmt::Display) -> Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content.to_string()).unwrap();
        self
    }

    fn env(mut self, name: &str, value: &str) -> Self {
        self.environment = self.environment.with(name, value);
        self
    }

    fn server_with(&self, strict: bool) -> Result<LoadedSettings<Settings>, SettingsError> {
        let sources = SettingsSources::read(&self.environment).unwrap();
        Settings::load(Path::new("."), &sources, strict)
    }

    fn server(&self) -> LoadedSettings<Settings> {
        self.server_with(false).unwrap()
    }

    fn model_with(&self, strict: bool) -> Result<LoadedSettings<ModelSettings>, SettingsError> {
        let sources = SettingsSources::read(&self.environment).unwrap();
        ModelSettings::load(Path::new("iris/model-settings.json"), &sources, strict)
    }

    fn model(&self) -> LoadedSettings<ModelSettings> {
        self.model_with(false).unwrap()
    }

    /// Replaces the folder, which differs in every run.
    fn plain(&self, text: impl fmt::Display) -> String {
        let folder = self.folder.path().to_str().unwrap();
        text.to_string().replace(folder, "[DIR]")
    }

    fn warnings<T>(&self, loaded: &LoadedSettings<T>) -> Vec<String> {
        loaded.warnings.iter().map(|warning| self.plain(warning)).collect()
    }
}

fn entry<'a, T>(loaded: &'a LoadedSettings<T>, key: &str) -> &'a SettingEntry {
    loaded.entries.iter().find(|entry| entry.key == key).unwrap()
}

const IMPLEMENTATION: &str = r#""implementation": "mlserver_xgboost.XGBoostModel""#;

#[test]
fn file_beats_environment_beats_dotenv_beats_default() {
    let case = Case::new()
        .file("settings.json", json!({"http_port": 1}))
        .file(".env", "MLSERVER_HTTP_PORT=3\nMLSERVER_GRPC_PORT=3\nMLSERVER_METRICS_PORT=3\n")
        .env("MLSERVER_HTTP_PORT", "2")
        .env("MLSERVER_GRPC_PORT", "2");
    let loaded = case.server();
    let settings = &loaded.settings;
    assert_eq!((settings.http_port, settings.grpc_port, settings.metrics_port), (1, 2, 3));
    let sources = ["http_port", "grpc_port", "metrics_port", "host", "model_repository_root"]
        .map(|key| case.plain(&entry(&loaded, key).source));
    assert_eq!(
        sources,
        [
            "[DIR]/settings.json",
            "environment MLSERVER_GRPC_PORT",
            "[DIR]/.env MLSERVER_METRICS_PORT",
            "default",
            "argument FOLDER",
        ]
    );
}

#[test]
fn settings_without_sources_are_defaults() {
    let settings = Settings::default();
    assert!(!settings.debug);
    assert_eq!(settings.http_port, 8080);
    assert_eq!(settings.limits.http_max_body_bytes.get(), 64 << 20);
    assert_eq!(settings.grpc_max_message_length, 64 << 20);
    assert_eq!(settings.shutdown_grace_period, Duration::from_secs(30));
    assert_eq!(settings.limits.max_in_flight.get(), 1024);
    assert_eq!(settings.metrics_endpoint.as_deref(), Some("/metrics"));
    assert_eq!(settings.server_version, env!("CARGO_PKG_VERSION"));
    assert_eq!(settings.cors_settings, None);
    assert_eq!(settings.workers.environments_dir, Path::new(".envs"));
}

#[test]
fn a_missing_folder_serves_the_defaults() {
    let case = Case::new();
    let sources = SettingsSources::read(&case.environment).unwrap();
    let loaded = Settings::load(Path::new("nowhere"), &sources, true).unwrap();
    assert_eq!(loaded.settings.model_repository_root, Path::new("nowhere"));
    assert_eq!(loaded.warnings, []);
}

#[test]
fn environment_lists_and_objects_are_json() {
    let case = Case::new()
        .env("mlserver_extensions", r#"["a","b"]"#)
        .env("MLSERVER_MODEL_REPOSITORY_IMPLEMENTATION_ARGS", r#"{"a": 1}"#)
        .env("MLSERVER_LOGGING_SETTINGS", "logging.ini")
        .env("MLSERVER_METRICS_ENDPOINT", "")
        .env("MLSERVER_DEBUG", "on");
    let settings = case.server().settings;
    assert_eq!(settings.extensions, ["a", "b"]);
    assert_eq!(settings.model_repository_implementation_args["a"], 1);
    assert_eq!(settings.logging_settings, Some(LoggingSettings::File("logging.ini".into())));
    assert_eq!(settings.metrics_endpoint, None);
    assert!(settings.debug);
}

#[test]
fn cors_fields_fall_back_to_the_environment_which_alone_creates_nothing() {
    let case = Case::new().env("MLSERVER_ALLOW_METHODS", r#"["POST"]"#);
    assert_eq!(case.server().settings.cors_settings, None);

    let case = case.file("settings.json", json!({"cors_settings": {"allow_origins": ["*"], "max_age": -1}}));
    let loaded = case.server();
    let cors = loaded.settings.cors_settings.as_ref().unwrap();
    assert_eq!(cors.allow_origins, ["*"]);
    assert_eq!(cors.allow_methods, ["POST"]);
    assert_eq!(cors.max_age, Duration::ZERO);
    let source = &entry(&loaded, "cors_settings.allow_methods").source;
    assert_eq!(source.to_string(), "environment MLSERVER_ALLOW_METHODS");

    let whole = Case::new().env("MLSERVER_CORS_SETTINGS", r#"{"max_age": 5}"#);
    let cors = whole.server().settings.cors_settings.unwrap();
    assert_eq!(cors.max_age, Duration::from_secs(5));

    let null = whole.file("settings.json", json!({"cors_settings": null}));
    assert_eq!(null.server().settings.cors_settings, None);
}

#[test]
fn null_is_handled_as_the_field_defines() {
    let case = Case::new().file(
        "settings.json",
        json!({"metrics_endpoint": null, "grpc_max_message_length": null, "cors_settings": null}),
    );
    let settings = case.server_with(true).unwrap().settings;
    assert_eq!(settings.metrics_endpoint, None);
    assert_eq!(settings.grpc_max_message_length, 64 << 20);
    let case = Case::new()
        .env("MLSERVER_MODEL_EXTRA", "null")
        .file("iris/model-settings.json", format!("{{{IMPLEMENTATION}, \"parameters\": null}}"));
    assert_eq!(case.model().settings.parameters.extra, Map::new());
    let case = Case::new().file("settings.json", json!({"host": null}));
    assert_eq!(
        case.plain(case.server_with(false).unwrap_err()),
        "`host` in `[DIR]/settings.json`: expected a string, found `null`"
    );
}

#[test]
fn all_problems_are_reported_at_once() {
    let case = Case::new()
        .file(
            "settings.json",
            json!({"http_port": 70000, "host": 1, "debug": "perhaps", "cors_settings": {"allow_origins": "*"}}),
        )
        .file(".env", "MLSERVER_METRICS_PORT=many")
        .env("MLSERVER_EXTENSIONS", "a,b")
        .env("MLSERVER_MAX_IN_FLIGHT", "0");
    insta::assert_snapshot!(case.plain(case.server_with(false).unwrap_err()), @r#"
    7 problems with the settings
      `debug` in `[DIR]/settings.json`: expected true or false, found `"perhaps"`
      `extensions` from environment variable `MLSERVER_EXTENSIONS`: expected a list of strings as JSON, found `a,b`: expected value at line 1 column 1
      `host` in `[DIR]/settings.json`: expected a string, found `1`
      `http_port` in `[DIR]/settings.json`: expected an integer from 0 to 65535, found `70000`
      `max_in_flight` from environment variable `MLSERVER_MAX_IN_FLIGHT`: expected an integer from 1 to 4294967295, found `0`
      `cors_settings.allow_origins` in `[DIR]/settings.json`: expected a list of strings, found `"*"`
      `metrics_port` from variable `MLSERVER_METRICS_PORT` of `[DIR]/.env`: expected an integer from 0 to 65535, found `many`
    "#);
}

#[test]
fn a_broken_file_does_not_hide_the_environments_problems() {
    let case = Case::new().file("settings.json", "{\"debug\": true,}").env("MLSERVER_HTTP_PORT", "x");
    insta::assert_snapshot!(case.plain(case.server_with(false).unwrap_err()), @r"
    2 problems with the settings
      `[DIR]/settings.json` is not valid JSON: trailing comma at line 1 column 16
      `http_port` from environment variable `MLSERVER_HTTP_PORT`: expected an integer from 0 to 65535, found `x`
    ");
}

#[test]
fn unknown_keys_warn_and_are_rejected_in_strict_mode() {
    let case = Case::new()
        .file("settings.json", json!({"http_prot": 1, "whatever": 2, "max_age": 3}))
        .env("MLSERVER_GRPC_PROT", "1")
        .env("MLSERVER_SOMETHING_ELSE", "1");
    insta::assert_snapshot!(case.warnings(&case.server()).join("\n"), @r"
    unknown environment variable `MLSERVER_GRPC_PROT` (did you mean `MLSERVER_GRPC_PORT`?)
    unknown key `http_prot` in `[DIR]/settings.json` (did you mean `http_port`?)
    unknown key `whatever` in `[DIR]/settings.json`
    unknown key `max_age` in `[DIR]/settings.json` (did you mean `cors_settings.max_age`?)
    ");
    insta::assert_snapshot!(case.plain(case.server_with(true).unwrap_err()), @r"
    3 problems with the settings
      unknown key `http_prot` in `[DIR]/settings.json` (did you mean `http_port`?)
      unknown key `whatever` in `[DIR]/settings.json`
      unknown key `max_age` in `[DIR]/settings.json` (did you mean `cors_settings.max_age`?)
    ");
}

#[test]
fn kafka_topics_are_text_or_a_list_in_every_source() {
    let topics = |case: &Case| case.server().settings.kafka.topic_input;
    let file = |value: Value| Case::new().file("settings.json", json!({"kafka_topic_input": value}));
    assert_eq!(topics(&Case::new()), ["mlserver-input"]);
    assert_eq!(topics(&file(json!("a, b"))), ["a", "b"]);
    assert_eq!(topics(&file(json!(["a", "^b,c"]))), ["a", "^b,c"]);
    let variable = |text: &str| Case::new().env("MLSERVER_KAFKA_TOPIC_INPUT", text);
    assert_eq!(topics(&variable("a, b")), ["a", "b"]);
    assert_eq!(topics(&variable(r#" ["a", "b"]"#)), ["a", "b"]);
    assert_eq!(topics(&variable("^a{1,2}")), ["^a{1,2}"]);
    let case = Case::new();
    let argument = |text: &str| {
        let argument =
            SettingArgument { argument: "--set", key: "kafka_topic_input".to_owned(), value: text.to_owned() };
        let sources = SettingsSources::read(&case.environment).unwrap().with_arguments(vec![argument]);
        Settings::load(Path::new("."), &sources, true).map(|loaded| loaded.settings.kafka.topic_input)
    };
    assert_eq!(argument("a,b").unwrap(), ["a", "b"]);
    assert_eq!(argument(r#"["^a", "b"]"#).unwrap(), ["^a", "b"]);
    insta::assert_snapshot!(argument(r#"["a""#).unwrap_err(), @r#"`kafka_topic_input` from argument `--set`: expected topics, separated by commas or as a list, or a regular expression that begins with `^` as JSON, found `["a"`: EOF while parsing a list at line 1 column 4"#);
    insta::assert_snapshot!(case.plain(argument("a,").unwrap_err()), @r#"`kafka_topic_input` from argument `--set`: expected the name of a topic, which is not empty, found `""`"#);
}

#[test]
fn problems_of_kafka_name_what_is_wrong() {
    let case = Case::new()
        .file(
            "settings.json",
            json!({
                "kafka_servers": "",
                "kafka_topic_input": ["orders", "a b"],
                "kafka_topic_output": "..",
                "kafka_topic_models": {"orders": ""},
                "kafka_topic_dead_letters": "a".repeat(250),
                "kafka_delivery": "twice",
                "kafka_max_in_flight": 0,
                "kafka_config": {"linger.ms": 5, "compression.type": null},
            }),
        )
        .env("MLSERVER_KAFKA_GROUP_ID", "");
    insta::assert_snapshot!(case.plain(case.server_with(false).unwrap_err()), @r#"
    9 problems with the settings
      `kafka_servers` in `[DIR]/settings.json`: expected a string that is not empty, found `""`
      `kafka_topic_input[1]` in `[DIR]/settings.json`: expected a topic of letters, digits, `.`, `_` and `-`, found `"a b"`
      `kafka_topic_output` in `[DIR]/settings.json`: expected a topic other than `.` and `..`, found `".."`
      `kafka_topic_models.orders` in `[DIR]/settings.json`: expected the name of a model, found `""`
      `kafka_topic_dead_letters` in `[DIR]/settings.json`: expected a topic of at most 249 characters, found `"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa…`
      `kafka_group_id` from environment variable `MLSERVER_KAFKA_GROUP_ID`: expected a string that is not empty, found ``
      `kafka_delivery` in `[DIR]/settings.json`: expected one of `at_least_once`, `exactly_once`, found `"twice"`
      `kafka_max_in_flight` in `[DIR]/settings.json`: expected an integer from 1 to 1000000, found `0`
      `kafka_config.compression.type` in `[DIR]/settings.json`: expected a string, a number, true or false, found `null`
    "#);
}

#[test]
fn kafka_settings_are_read() {
    let case = Case::new()
        .file(
            "settings.json",
            json!({
                "kafka_topic_models": {"orders": "iris"},
                "kafka_delivery": "Exactly_Once",
                "kafka_auto_offset_reset": "error",
                "kafka_max_attempts": "5",
                "kafka_config": {"linger.ms": 5, "client.id": "mine", "enable.sparse.connections": true},
            }),
        )
        .env("MLSERVER_KAFKA_ORDERING", "key")
        .env("MLSERVER_KAFKA_TOPIC_DEAD_LETTERS", "lost");
    let settings = case.server_with(true).unwrap().settings;
    assert_eq!(settings.kafka.topic_models["orders"], "iris");
    assert_eq!(settings.kafka.delivery, KafkaDelivery::ExactlyOnce);
    assert_eq!(settings.kafka.auto_offset_reset, KafkaOffsetReset::Error);
    assert_eq!(settings.kafka.ordering, KafkaOrdering::Key);
    assert_eq!(settings.kafka.max_attempts.get(), 5);
    assert_eq!(settings.kafka.topic_dead_letters.as_deref(), Some("lost"));
    let config: Vec<_> = settings.kafka.config.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(config, [("client.id", "mine"), ("enable.sparse.connections", "true"), ("linger.ms", "5")]);
    let defaults = Settings::default();
    assert_eq!(defaults.kafka.delivery, KafkaDelivery::AtLeastOnce);
    assert_eq!(defaults.kafka.auto_offset_reset, KafkaOffsetReset::Earliest);
    assert_eq!(defaults.kafka.ordering, KafkaOrdering::None);
    assert_eq!((defaults.kafka.max_in_flight.get(), defaults.kafka.max_attempts.get()), (4096, 3));
    assert!(defaults.kafka.readiness && defaults.kafka.config.is_empty());
}

#[test]
fn secrets_are_hidden_in_values_and_debug_output() {
    let config = json!({"sasl.oauthbearer.client.secret": "hush", "linger.ms": 5});
    let case = Case::new()
        .file("settings.json", json!({"kafka_sasl_password": "hush", "kafka_config": config}))
        .env("MLSERVER_KAFKA_SSL_KEY_PASSWORD", "hush");
    let loaded = case.server();
    assert_eq!(loaded.settings.kafka.sasl_password.as_deref(), Some("hush"));
    assert_eq!(loaded.settings.kafka.ssl_key_password.as_deref(), Some("hush"));
    assert_eq!(loaded.settings.kafka.config["sasl.oauthbearer.client.secret"], "hush");
    assert_eq!(entry(&loaded, "kafka_sasl_password").value, "<hidden>");
    assert_eq!(entry(&loaded, "kafka_ssl_key_password").value, "<hidden>");
    let shown = json!({"sasl.oauthbearer.client.secret": "<hidden>", "linger.ms": "5"});
    assert_eq!(entry(&loaded, "kafka_config").value, shown);
    let debug = format!("{loaded:?}");
    assert!(!debug.contains("hush") && debug.contains("<hidden>"), "{debug}");
    // Nothing to hide.
    assert_eq!(entry(&Case::new().server(), "kafka_sasl_password").value, Value::Null);
}

#[test]
fn secrets_are_hidden_in_problems() {
    let shown = |case: Case| case.plain(case.server_with(true).unwrap_err());
    let file = |settings: Value| Case::new().file("settings.json", settings);
    let cases = [
        file(json!({"kafka_sasl_password": ["hush"]})),
        file(json!({"kafka_ssl_key_password": {"hush": "hush"}})),
        file(json!({"kafka_config": {"sasl.password": ["hush"]}})),
        file(json!({"kafka_config": "sasl.password=hush"})),
        file(json!({"kafka_config": ["sasl.password=hush"]})),
        file(json!({"kafka_sasl_passwort": "hush"})),
        file(json!({"kafka_config": {"sasl.password": "hush", "linger.ms": []}})),
        Case::new().env("MLSERVER_KAFKA_CONFIG", "sasl.password=hush"),
        Case::new().env("MLSERVER_KAFKA_CONFIG", r#"{"sasl.password": "hush""#),
        Case::new().file(".env", r#"MLSERVER_KAFKA_CONFIG={"sasl.password": ["hush"]}"#),
    ];
    let shown: Vec<String> = cases.into_iter().map(shown).collect();
    insta::assert_snapshot!(shown.join("\n"), @r#"
    `kafka_sasl_password` in `[DIR]/settings.json`: expected a string, found `<hidden>`
    `kafka_ssl_key_password` in `[DIR]/settings.json`: expected a string, found `<hidden>`
    `kafka_config.sasl.password` in `[DIR]/settings.json`: expected a string, a number, true or false, found `<hidden>`
    `kafka_config` in `[DIR]/settings.json`: expected an object of properties, found `<hidden>`
    `kafka_config` in `[DIR]/settings.json`: expected an object of properties, found `<hidden>`
    unknown key `kafka_sasl_passwort` in `[DIR]/settings.json` (did you mean `kafka_sasl_password`?)
    `kafka_config.linger.ms` in `[DIR]/settings.json`: expected a string, a number, true or false, found `[]`
    `kafka_config` from environment variable `MLSERVER_KAFKA_CONFIG`: expected an object of strings, numbers and booleans as JSON, found `<hidden>`: expected value at line 1 column 1
    `kafka_config` from environment variable `MLSERVER_KAFKA_CONFIG`: expected an object of strings, numbers and booleans as JSON, found `<hidden>`: EOF while parsing an object at line 1 column 24
    `kafka_config.sasl.password` from variable `MLSERVER_KAFKA_CONFIG` of `[DIR]/.env`: expected a string, a number, true or false, found `<hidden>`
    "#);
    let argument =
        SettingArgument { argument: "--set", key: "kafka_config".to_owned(), value: "sasl.password=hush".to_owned() };
    let debug = format!("{argument:?}");
    assert!(!debug.contains("hush"), "{debug}");
    let case = Case::new();
    let sources = SettingsSources::read(&case.environment).unwrap().with_arguments(vec![argument]);
    let error = Settings::load(Path::new("."), &sources, true).unwrap_err();
    insta::assert_snapshot!(error, @"`kafka_config` from argument `--set`: expected an object of strings, numbers and booleans as JSON, found `<hidden>`: expected value at line 1 column 1");
}

#[test]
fn values_without_effect_warn_unless_they_are_the_default() {
    let case = Case::new()
        .file("settings.json", json!({"cache_enabled": false, "parallel_workers": 0, "metrics_dir": "m"}))
        .env("MLSERVER_TRACING_SERVER", "otel:4317");
    let mut warnings = case.warnings(&case.server());
    if cfg!(not(feature = "otel")) {
        let variable = "`tracing_server` from environment variable `MLSERVER_TRACING_SERVER`";
        let expected = format!("{variable} has no effect: the server was built without the feature `otel`");
        assert_eq!(warnings.pop(), Some(expected));
    }
    insta::assert_snapshot!(warnings.join("\n"), @"`metrics_dir` in `[DIR]/settings.json` has no effect: the server keeps all metrics in its own process");
}

#[test]
fn workers_of_a_model_warn_unless_they_ask_for_inline_calls() {
    let warnings = |workers: serde_json::Value| {
        let settings =
            json!({"name": "iris", "implementation": "mlserver_xgboost.XGBoostModel", "parallel_workers": workers});
        let case = Case::new().file("iris/model-settings.json", settings);
        case.warnings(&case.model())
    };
    for workers in [json!(null), json!(0), json!(-1)] {
        assert_eq!(warnings(workers.clone()), [""; 0], "{workers}");
    }
    assert_eq!(
        warnings(json!(3)),
        [
            "`parallel_workers` in `[DIR]/iris/model-settings.json` has no effect: the server's `parallel_workers` is that of every pool"
        ]
    );
}

#[test]
fn invalid_lines_of_the_dotenv_file_warn() {
    let case = Case::new().file(".env", "MLSERVER_DEBUG=1\noops oops\n");
    let loaded = case.server();
    assert!(loaded.settings.debug);
    assert_eq!(case.warnings(&loaded), ["ignoring line 2 of `[DIR]/.env`: expected `NAME=value`"]);
}

#[test]
fn a_models_name_and_artifact_default_to_its_folder() {
    let case = Case::new().file("iris/model-settings.json", format!("{{{IMPLEMENTATION}}}"));
    let loaded = case.model_with(true).unwrap();
    let settings = &loaded.settings;
    let folder = case.folder.path().join("iris");
    assert_eq!(settings.name, "iris");
    assert_eq!(settings.version(), None);
    assert_eq!(settings.parameters.uri.as_deref(), folder.to_str());
    assert_eq!(settings.folder(), Some(folder.as_path()));
    assert_eq!(entry(&loaded, "name").source, SettingSource::Folder);
    assert_eq!(entry(&loaded, "parameters.uri").source, SettingSource::Folder);
    assert_eq!(loaded.warnings, []);
}

#[test]
fn a_models_file_is_read_whole() {
    let case = Case::new().file(
        "iris/model-settings.json",
        json!({
            "name": "flower",
            "implementation": "mlserver_xgboost.XGBoostModel",
            "platform": "xgboost",
            "versions": ["xgboost/3"],
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, "4"], "parameters": {"content_type": "np"}}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
            "parameters": {"uri": "./model.json", "version": "v1", "extra": {"k": [1]}, "own": {"deep": true}},
        }),
    );
    let loaded = case.model_with(true).unwrap();
    let settings = &loaded.settings;
    assert_eq!(settings.name, "flower");
    assert_eq!(settings.inputs[0].shape, [-1, 4]);
    assert_eq!(settings.inputs[0].parameters, Parameters::with_content_type("np"));
    assert_eq!(settings.outputs[0].parameters, Parameters::new());
    assert_eq!(settings.parameters.uri.as_deref(), Some("./model.json"));
    assert_eq!(settings.version(), Some("v1"));
    assert_eq!(settings.parameters.extra["k"], json!([1]));
    assert_eq!(settings.parameters.extras["own"]["deep"], true);
    assert_eq!(entry(&loaded, "parameters.own").value, json!({"deep": true}));
    assert_eq!(case.warnings(&loaded), ["model name `flower` differs from the name of its folder `[DIR]/iris`"]);
}

#[test]
fn every_model_shares_the_environment() {
    let case = Case::new()
        .file("iris/model-settings.json", r#"{"max_batch_time": "0.5", "parameters": {"uri": "a"}}"#)
        .env("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_lightgbm.LightGBMModel")
        .env("MLSERVER_MODEL_MAX_BATCH_SIZE", "7")
        .env("MLSERVER_MODEL_URI", "b")
        .env("MLSERVER_MODEL_VERSION", "v2");
    let settings = case.model().settings;
    assert_eq!(settings.implementation, "mlserver_lightgbm.LightGBMModel");
    assert_eq!(settings.max_batch_size, 7);
    assert_eq!(settings.max_batch_time, Duration::from_millis(500));
    assert_eq!(settings.parameters.uri.as_deref(), Some("a"));
    assert_eq!(settings.version(), Some("v2"));
}

#[test]
fn the_dotenv_file_does_not_leak_into_model_parameters() {
    let case = Case::new()
        .file("iris/model-settings.json", format!("{{{IMPLEMENTATION}}}"))
        .file(".env", "AWS_SECRET_ACCESS_KEY=hush\nMLSERVER_MODEL_OWN=1\n");
    assert_eq!(case.model().settings.parameters.extras, Map::new());
}

#[test]
fn a_models_problems_name_the_nested_key() {
    let case = Case::new()
        .file(
            "iris/model-settings.json",
            json!({
                "inputs": [{"name": "x", "datatype": "FP32", "shape": "4"}, 7, {"name": "z"}],
                "parameters": {"version": 1},
                "max_batch_size": 1.5,
            }),
        )
        .env("MLSERVER_MODEL_EXTRA", "{");
    insta::assert_snapshot!(case.plain(case.model_with(false).unwrap_err()), @r#"
    8 problems with the settings
      `implementation` is missing in `[DIR]/iris/model-settings.json`, and `MLSERVER_MODEL_IMPLEMENTATION` is not set
      `inputs[0].shape` in `[DIR]/iris/model-settings.json`: expected a list of integers, found `"4"`
      `inputs[1]` in `[DIR]/iris/model-settings.json`: expected an object, found `7`
      `inputs[2].datatype` is missing in `[DIR]/iris/model-settings.json`
      `inputs[2].shape` is missing in `[DIR]/iris/model-settings.json`
      `max_batch_size` in `[DIR]/iris/model-settings.json`: expected an integer from 0 to 4294967295, found `1.5`
      `parameters.version` in `[DIR]/iris/model-settings.json`: expected a string, found `1`
      `parameters.extra` from environment variable `MLSERVER_MODEL_EXTRA`: expected an object as JSON, found `{`: EOF while parsing an object at line 1 column 1
    "#);
}

#[test]
fn a_key_in_the_wrong_object_suggests_the_right_one() {
    let case = Case::new().file(
        "iris/model-settings.json",
        format!("{{{IMPLEMENTATION}, \"version\": \"1\", \"inputs\": [{{\"name\": \"x\", \"datatype\": \"FP32\", \"shape\": [], \"shap\": 1}}]}}"),
    );
    insta::assert_snapshot!(case.warnings(&case.model()).join("\n"), @r"
    unknown key `inputs[0].shap` in `[DIR]/iris/model-settings.json` (did you mean `inputs[0].shape`?)
    unknown key `version` in `[DIR]/iris/model-settings.json` (did you mean `parameters.version`?)
    ");
}

#[test]
fn the_environment_describes_a_model_only_by_its_implementation() {
    let case = Case::new().env("MLSERVER_MODEL_NAME", "env").file(".env", "MLSERVER_MODEL_IMPLEMENTATION=\n");
    let sources = SettingsSources::read(&case.environment).unwrap();
    assert!(ModelSettings::from_environment(&sources, true).unwrap().is_none());

    let case = case
        .env("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_xgboost.XGBoostModel")
        .env("MLSERVER_MODEL_URI", "./m.json");
    let sources = SettingsSources::read(&case.environment).unwrap();
    let settings = ModelSettings::from_environment(&sources, true).unwrap().unwrap().settings;
    assert_eq!(settings.name, "env");
    assert_eq!(settings.parameters.uri.as_deref(), Some("./m.json"));
    assert_eq!(settings.source, None);
}

/// Returns the extreme values that a kind accepts.
fn extremes(kind: &FieldKind) -> Vec<Value> {
    match *kind {
        FieldKind::Bool => vec![json!(true), json!(false)],
        FieldKind::Int { min, max } => vec![json!(min), json!(max), json!(min.to_string())],
        FieldKind::Float { min, max } => vec![json!(min.max(-1e300)), json!(max)],
        FieldKind::Text => vec![json!(""), json!("x")],
        FieldKind::Choice(words) => words.iter().map(|word| json!(word)).collect(),
        FieldKind::Route => vec![json!(""), json!("/x")],
        FieldKind::TextList => vec![json!([]), json!(["x"])],
        FieldKind::IntList => vec![json!([]), json!([i64::MIN, i64::MAX])],
        FieldKind::Object => vec![json!({}), json!({"x": null})],
        FieldKind::ObjectList => vec![json!([]), json!([{}, {"x": 1}])],
        FieldKind::ObjectOrText => vec![json!({}), json!("x")],
        FieldKind::NonEmptyText => vec![json!("x")],
        FieldKind::Custom(kind) => {
            let all = [json!("x"), json!("x,y"), json!("^x"), json!(["x", "^y"]), json!({}), json!({"x": "y"})];
            all.into_iter().filter(|value| (kind.read)(value).is_ok()).collect()
        }
        FieldKind::Properties => vec![json!({}), json!({"x": 1, "y": true, "z": ""})],
        FieldKind::Group(group) => examples(group, &Map::new()),
        FieldKind::GroupList(group) => vec![json!([]), Value::from(examples(group, &tensor()))],
    }
}

fn tensor() -> Map<String, Value> {
    let tensor = json!({"name": "x", "datatype": "FP32", "shape": [1]});
    tensor.as_object().unwrap().clone()
}

/// Returns objects that set one field each to one of its extreme values.
fn examples(group: &SettingGroup, base: &Map<String, Value>) -> Vec<Value> {
    let mut examples = Vec::new();
    for field in group.fields() {
        let null = (field.null != NullHandling::Refused).then_some(Value::Null);
        for value in extremes(&field.kind).into_iter().chain(null) {
            let mut object = base.clone();
            object.insert(field.name.to_owned(), value);
            examples.push(Value::Object(object));
        }
    }
    examples
}

#[test]
fn structs_hold_every_value_that_the_table_accepts() {
    for example in examples(&SERVER, &Map::new()) {
        let case = Case::new().file("settings.json", &example);
        assert!(case.server_with(true).is_ok(), "{example}");
    }
    let base = Map::from_iter([("implementation".to_owned(), json!("a.B"))]);
    for example in examples(&MODEL, &base) {
        let case = Case::new().file("iris/model-settings.json", &example);
        assert!(case.model_with(true).is_ok(), "{example}");
    }
}

#[test]
fn help_is_one_line_without_a_stop() {
    for group in [&SERVER, &CORS, &MODEL, &PARAMETERS, &TENSOR] {
        for field in group.fields() {
            let help = field.help;
            assert!(!help.is_empty() && !help.ends_with('.') && !help.contains('\n'), "{}: {help}", field.name);
        }
    }
}

#[test]
fn image_settings_are_below_the_environment_and_above_dotenv() {
    let content =
        json!({"http_port": 1, "grpc_port": 1, "metrics_port": 1, "cors_settings": {"allow_methods": ["GET"]}});
    let case = Case::new()
        .file("settings.json", &content)
        .file("etc/settings.json", format!("{content:#}\n"))
        .file(".env", "MLSERVER_HTTP_PORT=3\nMLSERVER_METRICS_PORT=3\n")
        .env("MLSERVER_DEFAULTS_DIR", "etc")
        .env("MLSERVER_HTTP_PORT", "2")
        .env("MLSERVER_CORS_SETTINGS", r#"{"allow_origins": ["https://a"]}"#);
    let loaded = case.server();
    let settings = &loaded.settings;
    assert_eq!((settings.http_port, settings.grpc_port, settings.metrics_port), (2, 1, 1));
    let cors = settings.cors_settings.as_ref().unwrap();
    assert_eq!((cors.allow_origins.len(), &cors.allow_methods[..]), (1, &["GET".to_owned()][..]));
    let sources = ["http_port", "grpc_port"].map(|key| case.plain(&entry(&loaded, key).source));
    assert_eq!(sources, ["environment MLSERVER_HTTP_PORT", "[DIR]/etc/settings.json, a default of the image"]);
    let source = entry(&loaded, "grpc_port").source.to_json();
    assert_eq!(case.plain(source), r#"{"kind":"image","path":"[DIR]/etc/settings.json"}"#);
    assert!(case.warnings(&loaded).is_empty());
}

#[test]
fn image_settings_are_below_another_file() {
    let case = Case::new()
        .file("settings.json", json!({"http_port": 4}))
        .file("etc/settings.json", json!({"http_port": 1, "grpc_port": 1}))
        .env("MLSERVER_DEFAULTS_DIR", "etc")
        .env("MLSERVER_HTTP_PORT", "2");
    let loaded = case.server();
    assert_eq!((loaded.settings.http_port, loaded.settings.grpc_port), (4, 1));
    assert_eq!(case.plain(&entry(&loaded, "http_port").source), "[DIR]/settings.json");
}

#[test]
fn image_settings_apply_to_a_folder_without_a_file() {
    let case = Case::new()
        .file("etc/settings.json", json!({"http_port": 1, "grpc_prot": 1, "grpc_port": "x"}))
        .env("MLSERVER_DEFAULTS_DIR", "etc");
    let error = case.plain(case.server_with(false).unwrap_err());
    assert!(error.contains("`grpc_port` in `[DIR]/etc/settings.json`"), "{error}");
    let case = case.file("etc/settings.json", json!({"http_port": 1, "grpc_prot": 1}));
    let loaded = case.server();
    assert_eq!(loaded.settings.http_port, 1);
    assert!(case.warnings(&loaded)[0].contains("`grpc_prot`"), "{:?}", case.warnings(&loaded));
}

#[test]
fn settings_of_the_operator_are_above_the_folder_and_the_environment() {
    let case = Case::new()
        .file("etc/own.json", json!({"http_port": 1, "max_in_flight": 1, "api_keys_file": "keys.json"}))
        .file("settings.json", json!({"max_in_flight": 2, "max_streams": 2, "cache_size": 2}))
        .file("baked/settings.json", json!({"grpc_port": 3, "cache_size": 3}))
        .env("MLSERVER_SETTINGS_FILE", "etc/own.json")
        .env("MLSERVER_DEFAULTS_DIR", "baked")
        .env("MLSERVER_HTTP_PORT", "4")
        .env("MLSERVER_METRICS_PORT", "4");
    let loaded = case.server();
    let settings = &loaded.settings;
    assert_eq!((settings.http_port, settings.grpc_port, settings.metrics_port), (1, 3, 4));
    assert_eq!(
        (settings.limits.max_in_flight.get(), settings.limits.max_streams.get(), settings.cache_size),
        (1, 2, 2)
    );
    assert_eq!(settings.access.api_keys_file.as_deref(), Some(Path::new("keys.json")));
    let source = &entry(&loaded, "http_port").source;
    assert_eq!(case.plain(source), "[DIR]/etc/own.json, the settings file of the operator");
    assert_eq!(case.plain(source.to_json()), r#"{"kind":"operator","path":"[DIR]/etc/own.json"}"#);
    // The command line is above all of them, and names the file before the variable does.
    let case = case.file("other.json", json!({"http_port": 5, "max_in_flight": 5}));
    let sources = SettingsSources::read(&case.environment).unwrap();
    let argument = SettingArgument { argument: "--set", key: "max_in_flight".to_owned(), value: "6".to_owned() };
    let sources = sources.with_settings_file(Some(Path::new("other.json"))).with_arguments(vec![argument]);
    let settings = Settings::load(Path::new("."), &sources, true).unwrap().settings;
    assert_eq!((settings.http_port, settings.limits.max_in_flight.get()), (5, 6));
}

/// Each setting of the operator with a value that it accepts, as a file has it.
fn settings_of_the_operator() -> Vec<(&'static str, Value)> {
    let fields = SERVER.fields().filter(|field| field.of_operator);
    let examples = examples(&SERVER, &Map::new());
    let found = |name: &'static str| {
        let value = examples.iter().find_map(|example| example.get(name).filter(|value| !value.is_null()));
        (name, value.unwrap_or_else(|| panic!("no example of {name}")).clone())
    };
    fields.map(|field| found(field.name)).collect()
}

#[test]
fn folders_set_no_setting_of_the_operator_if_it_has_a_file() {
    let settings = settings_of_the_operator();
    for expected in ["api_keys_file", "tls_key", "host", "http_port", "repository_api", "admin_port", "metrics_port"] {
        assert!(settings.iter().any(|(name, _)| *name == expected), "{expected}");
    }
    for (name, value) in settings {
        let folder = || Case::new().file("settings.json", json!({name: value}));
        assert!(folder().server_with(true).is_ok(), "without a file of the operator, the folder sets {name}");
        let case = folder().file("own.json", "{}").env("MLSERVER_SETTINGS_FILE", "own.json");
        let error = case.plain(case.server_with(false).unwrap_err());
        let expected = format!(
            "`{name}` in `[DIR]/settings.json` is not allowed, because only `[DIR]/own.json`, the settings file of the operator, may \
             set it: remove it, or set it there"
        );
        assert_eq!(error, expected);
        // The same settings, as they were baked into an image.
        let case = case.file("baked/settings.json", json!({name: value})).env("MLSERVER_DEFAULTS_DIR", "baked");
        assert!(case.server_with(true).is_ok(), "{name}");
        // What the folder offers in the place of an image is not one.
        let variable = SERVER.env_name(SERVER.field(name).unwrap()).unwrap();
        let text = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
        let case = Case::new().file("own.json", "{}").env("MLSERVER_SETTINGS_FILE", "own.json");
        let case = case.file(".env", format!("{variable}={text}\n"));
        let error = case.plain(case.server_with(false).unwrap_err());
        assert!(
            error.starts_with(&format!("`{name}` from variable `{variable}` of `[DIR]/.env` is not all")),
            "{error}"
        );
    }
}

#[test]
fn dotenv_files_name_no_settings_files() {
    let case = Case::new()
        .file("evil/settings.json", json!({"http_port": 1}))
        .file(".env", "MLSERVER_SETTINGS_FILE=evil/settings.json\nMLSERVER_DEFAULTS_DIR=evil\n");
    assert_eq!(case.server().settings.http_port, 8080);
}

#[test]
fn dotenv_of_another_folder_than_the_models_is_of_the_operator() {
    let case = Case::new()
        .file("own.json", "{}")
        .file(".env", "MLSERVER_HTTP_PORT=7\n")
        .file("models/settings.json", json!({"server_name": "models"}))
        .env("MLSERVER_SETTINGS_FILE", "own.json");
    let sources = SettingsSources::read(&case.environment).unwrap();
    let settings = Settings::load(Path::new("models"), &sources, true).unwrap().settings;
    assert_eq!((settings.http_port, settings.server_name.as_str()), (7, "models"));
}

#[test]
fn settings_file_of_the_operator_has_to_exist() {
    let case = Case::new().env("MLSERVER_SETTINGS_FILE", "etc/own.json");
    assert_eq!(
        case.plain(case.server_with(false).unwrap_err()),
        "cannot read the settings file of the operator, from MLSERVER_SETTINGS_FILE: `[DIR]/etc/own.json` does not exist"
    );
    let case = Case::new().file("own.json", "[]").env("MLSERVER_SETTINGS_FILE", "own.json");
    assert!(case.plain(case.server_with(false).unwrap_err()).contains("expected a JSON object, found a list"));
}

#[test]
fn credentials_in_addresses_are_not_shown() {
    let address = "https://me:hush@a.blob/c/model.ubj?sv=2024&sig=hush";
    let case = Case::new()
        .file("settings.json", json!({"jwks_url": address, "tracing_server": 7, "extensions": address}))
        .file(
            "iris/model-settings.json",
            json!({"implementation": "a.B", "parameters": {"uri": address, "own": [address], "extra": {"a": {"b": address}}}}),
        );
    let model = case.model();
    assert_eq!(model.settings.parameters.uri.as_deref(), Some(address));
    let shown = format!("{:?} {}", model.entries, case.server_with(false).unwrap_err());
    assert!(!shown.contains("hush"), "{shown}");
    assert!(shown.contains("https://<hidden>@a.blob/c/model.ubj?<hidden>"), "{shown}");
}

#[test]
fn operator_may_name_the_file_of_the_folder() {
    let case = Case::new().file("settings.json", json!({"http_port": 7, "cache_size": 3}));
    let case = case.env("MLSERVER_SETTINGS_FILE", "./settings.json");
    let loaded = case.server();
    assert_eq!((loaded.settings.http_port, loaded.settings.cache_size), (7, 3));
    assert!(matches!(entry(&loaded, "http_port").source, SettingSource::Operator(_)));
}
