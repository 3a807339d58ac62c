//! `mlserver config`, and help, version and usage errors of the command line.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::mlserver_command;

/// A folder in which the executable runs with only the given environment.
struct Case {
    folder: TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

impl Case {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), variables: Vec::new() }
    }

    fn file(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        let path = self.folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        self
    }

    fn env(mut self, name: &'static str, value: &'static str) -> Self {
        self.variables.push((name, value));
        self
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = mlserver_command(self.folder.path(), arguments);
        command.envs(self.variables.iter().copied());
        command
    }

    /// Runs the executable and returns its status and output, without the parts that differ from run to run.
    fn run(&self, arguments: &[&str]) -> String {
        let output = self.command(arguments).output().unwrap();
        let text = |bytes: &[u8]| self.plain(std::str::from_utf8(bytes).unwrap());
        format!(
            "status: {}\n--- stdout\n{}--- stderr\n{}",
            output.status.code().unwrap(),
            text(&output.stdout),
            text(&output.stderr)
        )
    }

    /// Replaces paths and the version, and the padding whose width depends on them.
    fn plain(&self, text: &str) -> String {
        let folder = self.folder.path().canonicalize().unwrap();
        let plain = text
            .replace(folder.to_str().unwrap(), "[DIR]")
            .replace(self.folder.path().to_str().unwrap(), "[DIR]")
            .replace(env!("CARGO_PKG_VERSION"), "[VERSION]");
        let lines = plain.lines().map(|line| match line.rsplit_once("  (") {
            Some((value, source)) => format!("{} ({source}\n", value.trim_end()),
            None => format!("{line}\n"),
        });
        lines.collect()
    }
}

#[test]
fn config_show_names_the_settings_of_an_image() {
    let settings = r#"{"http_port": 18080, "grpc_port": 18081}"#;
    let case = Case::new()
        .file("settings.json", settings)
        .file("etc/settings.json", settings)
        .env("MLSERVER_DEFAULTS_DIR", "etc")
        .env("MLSERVER_HTTP_PORT", "9000");
    let shown = case.run(&["config", "show"]);
    for line in [
        "  http_port = 9000 (environment MLSERVER_HTTP_PORT)\n",
        "  grpc_port = 18081 ([DIR]/etc/settings.json, a default of the image)\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}

/// Text in UTF-16 with its mark, as PowerShell's `>` writes it.
fn utf16(text: &str) -> Vec<u8> {
    "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

#[test]
fn config_reads_files_that_begin_with_a_byte_order_mark() {
    let dotenv = "\u{feff}MLSERVER_HTTP_PORT=9123\r\nMLSERVER_SERVER_NAME=from-the-file\r\n";
    let shown = Case::new().file(".env", dotenv).run(&["config", "show"]);
    for line in [
        "  http_port = 9123 ([DIR]/.env MLSERVER_HTTP_PORT)\n",
        "  server_name = \"from-the-file\" ([DIR]/.env MLSERVER_SERVER_NAME)\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    let case = Case::new().file("settings.json", "\u{feff}{\"http_port\": 9123}\r\n").file(
        "m/model-settings.json",
        "\u{feff}{\"name\": \"m\", \"implementation\": \"mlserver_identity.IdentityModel\"}",
    );
    let shown = case.run(&["config", "show", "."]);
    assert!(shown.contains("  http_port = 9123 (") && shown.contains("mlserver_identity"), "{shown}");
}

#[test]
fn config_names_the_encoding_of_files_that_are_not_utf8() {
    let files = [
        (".env", utf16("MLSERVER_HTTP_PORT=9123\r\n"), "cannot read `[DIR]/.env`: it is UTF-16 text: save it as UTF-8"),
        (
            ".env",
            b"MLSERVER_SERVER_NAME=caf\xe9\n".to_vec(),
            "cannot read `[DIR]/.env`: it is not UTF-8 text: byte 24 is invalid",
        ),
        ("settings.json", utf16("{}"), "cannot read `[DIR]/settings.json`: it is UTF-16 text: save it as UTF-8"),
        (
            "m/model-settings.json",
            utf16("{}"),
            "cannot read `[DIR]/m/model-settings.json`: it is UTF-16 text: save it as UTF-8",
        ),
    ];
    for (name, content, expected) in files {
        let shown = Case::new().file(name, content).run(&["config", "show", "."]);
        assert!(shown.contains(expected), "{name}: {shown}");
    }
}

#[test]
fn config_warns_of_names_in_dotenv_that_no_variable_can_have() {
    let dotenv = "MLSERVER_DEBUG=1\nhttp-port=1\n\n9LIVES=1\nPLAIN_NAME=1\n# comment-1=2\n";
    let shown = Case::new().file(".env", dotenv).run(&["config", "show"]);
    let lines: Vec<&str> = shown.lines().filter(|line| line.contains("ignoring line")).collect();
    assert_eq!(lines.len(), 2, "{shown}");
    for (line, number) in lines.iter().zip([2, 4]) {
        assert!(line.contains(&format!("ignoring line {number} of `[DIR]/.env`: expected `NAME=value`")), "{shown}");
    }
}

/// Settings from every source, one of them unknown.
fn every_source() -> Case {
    Case::new()
        .file("models/settings.json", r#"{"http_port": 18080, "extensions": ["a", "b"], "gprc_port": 1}"#)
        .file(".env", "MLSERVER_METRICS_PORT=18082\n")
        .env("MLSERVER_MAX_IN_FLIGHT", "8")
        .env("MLSERVER_MODEL_CACHE_ENABLED", "yes")
        .file(
            "models/iris/model-settings.json",
            r#"{"implementation": "mlserver_xgboost.XGBoostModel", "parameters": {"version": "v1", "own": [1]}}"#,
        )
        .file("models/wine/model-settings.json", r#"{"implementation": "mlserver_lightgbm.LightGBMModel"}"#)
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is one long text")]
fn config_show_prints_every_value_and_its_source() {
    insta::assert_snapshot!(every_source().run(&["config", "show", "models"]), @r#"
    status: 0
    --- stdout
    server
      debug = false (default)
      log_level = null (default)
      parallel_workers = 1 (default)
      parallel_workers_timeout = 5 (default)
      worker_hang_timeout = 300.0 (default)
      worker_load_timeout = 1800.0 (default)
      worker_memory_limit = null (default)
      max_requests_per_worker = null (default)
      python_executable = null (default)
      environments_dir = "[DIR]/.envs" (default)
      model_repository_implementation = null (default)
      model_repository_root = "models" (argument FOLDER)
      model_repository_implementation_args = {} (default)
      load_models_at_startup = true (default)
      exit_on_load_failure = true (default)
      server_name = "mlserver" (default)
      server_version = "[VERSION]" (default)
      extensions = ["a","b"] ([DIR]/models/settings.json)
      host = "0.0.0.0" (default)
      http_port = 18080 ([DIR]/models/settings.json)
      root_path = "" (default)
      openai_route_prefix = null (default)
      http_max_body_bytes = 67108864 (default)
      http_header_timeout = 30.0 (default)
      http_body_timeout = 30.0 (default)
      http_write_timeout = 60.0 (default)
      http_keep_alive_timeout = 75.0 (default)
      max_connections = null (default)
      max_in_flight = 8 (environment MLSERVER_MAX_IN_FLIGHT)
      max_request_bytes_in_flight = null (default)
      max_streams = 128 (default)
      stream_idle_timeout = 300.0 (default)
      overload_as_429 = false (default)
      repository_api = true (default)
      repository_poll_interval = 0.0 (default)
      admin_port = null (default)
      console = true (default)
      server_timing = false (default)
      strict_tensors = false (default)
      shutdown_delay = 0.0 (default)
      shutdown_grace_period = 30.0 (default)
      tls_certificate = null (default)
      tls_key = null (default)
      tls_client_ca = null (default)
      tls_min_version = "1.2" (default)
      tls_metrics = false (default)
      tls_client_scopes = {} (default)
      api_keys_file = null (default)
      key_rate_limit = null (default)
      jwt_issuer = null (default)
      jwt_audience = null (default)
      jwks_url = null (default)
      jwks_file = null (default)
      jwt_scope_claim = "scope" (default)
      forward_headers = [] (default)
      grpc_port = 8081 (default)
      grpc_max_message_length = 67108864 (default)
      cors_settings = null (default)
      metrics_endpoint = "/metrics" (default)
      metrics_port = 18082 ([DIR]/.env MLSERVER_METRICS_PORT)
      metrics_rest_server_prefix = "rest_server" (default)
      metrics_dir = "[DIR]/.metrics" (default)
      use_structured_logging = false (default)
      logging_settings = null (default)
      kafka_enabled = false (default)
      kafka_servers = "localhost:9092" (default)
      kafka_topic_input = ["mlserver-input"] (default)
      kafka_topic_output = "mlserver-output" (default)
      kafka_topic_models = {} (default)
      kafka_topic_dead_letters = null (default)
      kafka_group_id = "mlserver" (default)
      kafka_auto_offset_reset = "earliest" (default)
      kafka_delivery = "at_least_once" (default)
      kafka_transactional_id = null (default)
      kafka_ordering = "none" (default)
      kafka_max_in_flight = 4096 (default)
      kafka_max_attempts = 3 (default)
      kafka_readiness = true (default)
      kafka_security_protocol = "plaintext" (default)
      kafka_sasl_mechanism = null (default)
      kafka_sasl_username = null (default)
      kafka_sasl_password = null (default)
      kafka_ssl_ca = null (default)
      kafka_ssl_certificate = null (default)
      kafka_ssl_key = null (default)
      kafka_ssl_key_password = null (default)
      kafka_config = {} (default)
      tracing_server = null (default)
      cache_enabled = false (default)
      cache_size = 100 (default)
      cache_max_bytes = 67108864 (default)
      cache_ttl = null (default)
      models_max_bytes = null (default)
      storage_cache = null (default)
      storage_idle_timeout = 60.0 (default)
      storage_max_bytes = 107374182400 (default)
      storage_cache_max_bytes = null (default)
      storage_concurrency = 4 (default)
      storage_offline = "use" (default)
      gzip_enabled = true (default)
      non_finite_json = "null" (default)

    model `iris` version `v1` in [DIR]/models/iris/model-settings.json
      name = "iris" (folder of the file)
      implementation = "mlserver_xgboost.XGBoostModel" ([DIR]/models/iris/model-settings.json)
      platform = "" (default)
      versions = [] (default)
      inputs = [] (default)
      outputs = [] (default)
      max_batch_size = 0 (default)
      max_batch_time = 0.0 (default)
      parameters.uri = "[DIR]/models/iris" (folder of the file)
      parameters.version = "v1" ([DIR]/models/iris/model-settings.json)
      parameters.content_type = null (default)
      parameters.format = null (default)
      parameters.environment_tarball = null (default)
      parameters.environment_path = null (default)
      parameters.inference_pool_gid = null (default)
      parameters.autogenerate_inference_pool_gid = false (default)
      parameters.workers = null (default)
      parameters.threads = null (default)
      parameters.isolate = false (default)
      parameters.worker_memory_limit = null (default)
      parameters.validate_inputs = false (default)
      parameters.max_queue_requests = null (default)
      parameters.max_queue_bytes = 1073741824 (default)
      parameters.memory_bytes = null (default)
      parameters.pinned = false (default)
      parameters.queue_timeout = null (default)
      parameters.queue_target = 0.5 (default)
      parameters.predict_timeout = null (default)
      parameters.request_timeout = null (default)
      parameters.extra = {} (default)
      parameters.own = [1] ([DIR]/models/iris/model-settings.json)
      cache_enabled = true (environment MLSERVER_MODEL_CACHE_ENABLED)
      warmup = [] (default)
      parallel_workers = null (default)
      warm_workers = false (default)

    model `wine` in [DIR]/models/wine/model-settings.json
      name = "wine" (folder of the file)
      implementation = "mlserver_lightgbm.LightGBMModel" ([DIR]/models/wine/model-settings.json)
      platform = "" (default)
      versions = [] (default)
      inputs = [] (default)
      outputs = [] (default)
      max_batch_size = 0 (default)
      max_batch_time = 0.0 (default)
      parameters.uri = "[DIR]/models/wine" (folder of the file)
      parameters.version = null (default)
      parameters.content_type = null (default)
      parameters.format = null (default)
      parameters.environment_tarball = null (default)
      parameters.environment_path = null (default)
      parameters.inference_pool_gid = null (default)
      parameters.autogenerate_inference_pool_gid = false (default)
      parameters.workers = null (default)
      parameters.threads = null (default)
      parameters.isolate = false (default)
      parameters.worker_memory_limit = null (default)
      parameters.validate_inputs = false (default)
      parameters.max_queue_requests = null (default)
      parameters.max_queue_bytes = 1073741824 (default)
      parameters.memory_bytes = null (default)
      parameters.pinned = false (default)
      parameters.queue_timeout = null (default)
      parameters.queue_target = 0.5 (default)
      parameters.predict_timeout = null (default)
      parameters.request_timeout = null (default)
      parameters.extra = {} (default)
      cache_enabled = true (environment MLSERVER_MODEL_CACHE_ENABLED)
      warmup = [] (default)
      parallel_workers = null (default)
      warm_workers = false (default)
    --- stderr
    warning: unknown key `gprc_port` in `[DIR]/models/settings.json` (did you mean `grpc_port`?)
    "#);
}

#[test]
fn secrets_are_never_printed() {
    let case = Case::new()
        .file("models/settings.json", r#"{"kafka_config": {"ssl.key.pem": "hush", "linger.ms": 5}}"#)
        .file(".env", "MLSERVER_KAFKA_SASL_PASSWORD=hush\n")
        .env("MLSERVER_KAFKA_SSL_KEY_PASSWORD", "hush");
    let shown = case.run(&["config", "show", "models"]);
    for line in [
        "  kafka_sasl_password = \"<hidden>\" ([DIR]/.env MLSERVER_KAFKA_SASL_PASSWORD)\n",
        "  kafka_ssl_key_password = \"<hidden>\" (environment MLSERVER_KAFKA_SSL_KEY_PASSWORD)\n",
        "  kafka_config = {\"ssl.key.pem\":\"<hidden>\",\"linger.ms\":\"5\"} ([DIR]/models/settings.json)\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    for arguments in [
        &["config", "show", "models"][..],
        &["config", "show", "--format", "json", "models"],
        &["config", "show", "--set", "kafka_sasl_password=hush", "models"],
        &["config", "show", "--set", "kafka_sasl_passwort=hush", "models"],
        &["config", "show", "--set", "kafka_sasl_password:hush", "models"],
        &["config", "show", "--set", "kafka_config=sasl.password=hush", "models"],
        &["config", "show", "--set", r#"kafka_config={"sasl.password": ["hush"]}"#, "models"],
        &["config", "list"],
        &["config", "explain", "kafka_sasl_password"],
        &["config", "explain", "kafka_config", "--format", "json"],
        &["doctor", "models"],
    ] {
        let shown = case.run(arguments);
        assert!(!shown.contains("hush"), "{arguments:?}: {shown}");
    }
    let invalid = case.file("models/settings.json", r#"["kafka_sasl_password", "hush"]"#);
    let shown = invalid.run(&["config", "show", "models"]);
    assert!(shown.contains("expected a JSON object, found a list") && !shown.contains("hush"), "{shown}");
}

#[test]
fn config_show_json_matches_the_table() {
    let case = every_source();
    let output = case.command(&["config", "show", "--format", "json", "models"]).output().unwrap();
    assert!(output.status.success());
    let shown: Value = serde_json::from_str(&case.plain(std::str::from_utf8(&output.stdout).unwrap())).unwrap();
    let server = &shown["server"]["settings"];
    assert_eq!(
        server["http_port"],
        json!({"value": 18080, "source": {"kind": "file", "path": "[DIR]/models/settings.json"}})
    );
    assert_eq!(
        server["metrics_port"],
        json!({
            "value": 18082,
            "source": {"kind": "dotenv", "path": "[DIR]/.env", "name": "MLSERVER_METRICS_PORT"},
        })
    );
    assert_eq!(
        server["max_in_flight"],
        json!({"value": 8, "source": {"kind": "environment", "name": "MLSERVER_MAX_IN_FLIGHT"}})
    );
    let iris = &shown["models"][0];
    assert_eq!((&iris["name"], &iris["version"]), (&json!("iris"), &json!("v1")));
    assert_eq!(iris["settings"]["parameters.own"]["value"], json!([1]));
    assert_eq!(shown["models"][1]["file"], "[DIR]/models/wine/model-settings.json");
    assert_eq!(shown["errors"], json!([]));
}

#[test]
fn config_show_defaults_to_the_working_directory() {
    let case = Case::new().file("settings.json", r#"{"http_port": 1}"#);
    let shown = case.run(&["config", "show"]);
    assert!(shown.contains("http_port = 1 "), "{shown}");
}

#[test]
fn config_show_needs_a_folder() {
    let case = Case::new().file("m.json", "{}");
    for (path, expected) in [
        ("nowhere", "error: `nowhere` does not exist: pass the folder with the models and their settings\n"),
        ("m.json", "error: `m.json` is not a folder: pass the folder with the models and their settings\n"),
    ] {
        let shown = case.run(&["config", "show", path]);
        assert!(shown.starts_with("status: 1") && shown.ends_with(expected), "{shown}");
    }
}

#[test]
fn config_show_invalid_settings_lists_every_problem() {
    let case =
        Case::new().file("settings.json", r#"{"http_port": "many", "debug": 2}"#).env("MLSERVER_EXTENSIONS", "a,b");
    insta::assert_snapshot!(case.run(&["config", "show", "."]), @r#"
    status: 1
    --- stdout
    --- stderr
    error: 3 problems with the settings
      `debug` in `[DIR]/settings.json`: expected true or false, found `2`
      `extensions` from environment variable `MLSERVER_EXTENSIONS`: expected a list of strings as JSON, found `a,b`: expected value at line 1 column 1
      `http_port` in `[DIR]/settings.json`: expected an integer from 0 to 65535, found `"many"`
    "#);
}

#[test]
fn config_show_strict_rejects_unknown_keys() {
    let case = every_source();
    insta::assert_snapshot!(case.run(&["config", "show", "--strict", "models"]), @r"
    status: 1
    --- stdout
    --- stderr
    error: unknown key `gprc_port` in `[DIR]/models/settings.json` (did you mean `grpc_port`?)
    ");
}

#[test]
fn config_show_unreadable_model_fails_only_with_strict() {
    let case = Case::new().file("bad/model-settings.json", "{}");
    let lenient = case.run(&["config", "show"]);
    assert!(lenient.starts_with("status: 0"), "{lenient}");
    let (_, errors) = lenient.split_once("--- stderr\n").unwrap();
    insta::assert_snapshot!(errors, @"error: failed to load the model settings at `[DIR]/bad/model-settings.json`: `implementation` is missing in `[DIR]/bad/model-settings.json`, and `MLSERVER_MODEL_IMPLEMENTATION` is not set");
    let strict = case.run(&["config", "show", "--strict"]);
    assert!(strict.starts_with("status: 1"), "{strict}");
    assert!(strict.ends_with("error: not every model in `.` can be read\n"), "{strict}");
}

#[test]
fn config_show_prints_the_model_from_the_environment() {
    let case = Case::new()
        .env("MLSERVER_MODEL_IMPLEMENTATION", "mlserver_xgboost.XGBoostModel")
        .env("MLSERVER_MODEL_NAME", "env");
    let shown = case.run(&["config", "show"]);
    assert!(shown.contains("\nmodel `env` from the environment\n"), "{shown}");
}

#[test]
fn closed_stdout_is_not_an_error() {
    let case = Case::new();
    let mut command = case.command(&["config", "show"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

#[test]
fn version_matches_the_original() {
    insta::assert_snapshot!(Case::new().run(&["--version"]), @r"
    status: 0
    --- stdout
    mlserver, version [VERSION]
    --- stderr
    ");
}

#[test]
fn serve_is_the_same_as_start() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let settings = r#"{"name": "m", "implementation": "mlserver_identity.IdentityModel"}"#;
    let case = Case::new().file("models/m/model-settings.json", settings);
    // Help, an argument that does not exist, a folder that does not exist, and a server that gets as far as its port.
    let port: &[&str] =
        &["models", "--host", "127.0.0.1", "--http-port", &port, "--grpc-port", "0", "--metrics-port", "0"];
    for (status, arguments) in [(0, &["--help"][..]), (2, &["--nope"]), (1, &["nowhere"]), (1, port)] {
        let run = |command| {
            let output = case.command(&[&[command], arguments].concat()).output().unwrap();
            assert_eq!(output.status.code(), Some(status), "{command} {arguments:?}");
            String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
        };
        assert_eq!(run("serve"), run("start"), "{arguments:?}");
    }
}

#[test]
fn help_of_program_snapshot() {
    insta::assert_snapshot!(Case::new().run(&["--help"]), @"
    status: 0
    --- stdout
    Serve machine-learning models over the Open Inference (V2) protocol

    Examples:
      mlserver start model.json  # serve a model file
      mlserver start examples/quickstart  # serve the models of a folder
      mlserver init churn  # create a project
      mlserver doctor churn  # find out why it does not start

    Usage: mlserver [OPTIONS] <COMMAND>

    Commands:
      start        Serve the models of a folder or a KServe script, or a model file [alias: serve]
      infer        Run batch inference over a file or a Kafka topic
      compare      Send the same requests to two servers, and report the rows whose answers differ
      init         Create a project that is ready to serve, test and build
      pull         Fetch models from object stores into folders
      dockerfile   Write a Dockerfile for a model folder
      build        Build a container image of a model folder
      manifest     Print a Kubernetes manifest for an image
      doctor       Diagnose a folder or model file before serving it
      config       Inspect settings
      inspect      Show what a model file contains, and whether it is served natively
      keys         Create, list and revoke API keys
      graph        Inspect inference graphs
      completions  Print shell completions
      man          Write the manual pages to a folder
      help         Print this message or the help of the given subcommand(s)

    Options:
          --color <WHEN>  When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set
                          [default: auto] [possible values: auto, always, never]
      -h, --help          Print help
      -V, --version       Print version
    --- stderr
    ");
}

#[test]
fn help_of_start_snapshot() {
    insta::assert_snapshot!(Case::new().run(&["start", "--help"]), @"
    status: 0
    --- stdout
    Serve the models of a folder or a KServe script, or a model file

    Examples:
      mlserver start .
      mlserver start churn.joblib  # serve one file as model `churn`
      mlserver start /mnt/models --model-name churn  # serve the only model file of a folder
      mlserver start model.py --model_name churn  # serve the models of a KServe script
      mlserver start . --http-port 9000 --set max_in_flight=64
      mlserver start . --http-port 0 --port-file ports.json  # choose a free port

    Usage: mlserver start [OPTIONS] [FOLDER] [-- <ARGS>...]

    Arguments:
      [FOLDER]   Folder with `settings.json` and the models, each with a `model-settings.json`; or a
                 model file, which is served under its name without extension; or a script that calls
                 `kserve.ModelServer().start`; or the URI of a folder in an object store, such as
                 `s3://bucket/models` [default: the value of `MLSERVER_MODELS_DIR` or `MODELS_DIR`]
      [ARGS]...  Arguments of the script; `--` may be omitted if the first one is not an option of
                 `mlserver start`

    Options:
          --strict             Reject unknown keys in settings files
          --allow-empty        Start even if the folder has no models
          --port-file <FILE>   Write the server's addresses to FILE as JSON, once the models are loaded
          --model-name <NAME>  Name of a model without `model-settings.json`: of the model file, or of
                               the only model in the folder [default: the value of
                               `MLSERVER_MODEL_NAME`]
          --color <WHEN>       When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set
                               [default: auto] [possible values: auto, always, never]
      -h, --help               Print help

    Settings:
          --settings <FILE>       Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the
                                  `settings.json` of the folder, which may then not set access, TLS,
                                  addresses and ports
          --set <KEY=VALUE>       Change a setting; may be repeated, and the last value is used. Keys
                                  inside objects are separated by dots, lists are JSON. `mlserver config
                                  list` prints all settings
          --host <ADDRESS>        Address to listen on, like `--set host=ADDRESS`
          --http-port <PORT>      Port of the REST server; 0 means any free port
          --grpc-port <PORT>      Port of the gRPC server; 0 means any free port
          --metrics-port <PORT>   Port of the metrics server; 0 means any free port
          --debug                 Log at debug level, including an access log
          --log-level <LEVEL>     Lowest severity of log lines to write [possible values: debug, info,
                                  warning, error]
          --parallel-workers <N>  Worker processes per pool of Python models; 0 means one worker that
                                  runs plain functions inline
    --- stderr
    ");
}

#[test]
fn help_of_build_snapshot() {
    insta::assert_snapshot!(Case::new().run(&["build", "--help"]), @"
    status: 0
    --- stdout
    Build a container image of a model folder

    Examples:
      mlserver build churn -t registry.example.com/churn:1
      mlserver build churn -t registry.example.com/churn:1 --check --push

    Usage: mlserver build [OPTIONS] --tag <TAG> <FOLDER>
           mlserver build [OPTIONS] --base-images[=<WHICH>]

    Arguments:
      [FOLDER]  Folder with the models

    Options:
      -t, --tag <TAG>     Name of the image; for base images, their name without a version
          --color <WHEN>  When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set
                          [default: auto] [possible values: auto, always, never]
      -h, --help          Print help

    Contents:
          --base <IMAGE>           Base image [default: none for native models, otherwise one with
                                   Python]
          --python <VERSION>       Version of Python of the default base image, such as 3.10 [default:
                                   that of the project, otherwise 3.12]
          --server <IMAGE>         Image to copy the server from [default: this executable]
          --platform <PLATFORM>    Platform of the image, such as `linux/arm64` [default: that of the
                                   engine]
          --base-images[=<WHICH>]  Build the images that Dockerfiles and manifests start from: `all`,
                                   only the `slim` one, which has no Python, or that and the `python`
                                   one, which has no frameworks [possible values: all, slim, python]
          --requirements <FILE>    Packages of the base image with frameworks [default: pinned versions
                                   of the frameworks]
          --offline-models         Put the models of object stores into the image, instead of fetching
                                   them in each container

    Build:
          --no-cache                Do not use the build cache
          --build-arg <NAME=VALUE>  Build argument for the Dockerfile; may be repeated
          --network <MODE>          Network for the build and the check [default: that of the engine]
          --classic                 Use the classic builder, for engines without BuildKit

    Check and push:
          --check  Run the image and send each model the `request.json` next to its settings
          --push   Push the image to its registry, after the check

    Output:
      -q, --quiet            Report only warnings and errors
          --format <FORMAT>  Output format [default: text] [possible values: text, json]
    --- stderr
    ");
}

#[test]
fn help_of_dockerfile_snapshot() {
    insta::assert_snapshot!(Case::new().run(&["dockerfile", "--help"]), @"
    status: 0
    --- stdout
    Write a Dockerfile for a model folder

    Examples:
      mlserver dockerfile churn  # write churn/Dockerfile
      mlserver dockerfile churn --server registry.example.com/mlserver:slim

    Usage: mlserver dockerfile [OPTIONS] <FOLDER>

    Arguments:
      <FOLDER>  Folder with the models

    Options:
      -o, --output <FILE>         File to write, or `-` for standard output [default: `Dockerfile` in
                                  the folder]
      -i, --include-dockerignore  Also write a `.dockerignore` file: in the folder, or with --output
                                  next to FILE as `FILE.dockerignore`
          --force                 Replace files that were not generated by this command
          --base <IMAGE>          Base image [default: none for native models, otherwise one with
                                  Python]
          --python <VERSION>      Version of Python of the default base image, such as 3.10 [default:
                                  that of the project, otherwise 3.12]
          --server <IMAGE>        Image to copy the server from [default: mlserver:[VERSION]-slim]
          --color <WHEN>          When to use colors; `auto` means on a terminal, unless `NO_COLOR` is
                                  set [default: auto] [possible values: auto, always, never]
      -h, --help                  Print help
    --- stderr
    ");
}

#[test]
fn help_of_init_snapshot() {
    insta::assert_snapshot!(Case::new().run(&["init", "--help"]), @"
    status: 0
    --- stdout
    Create a project that is ready to serve, test and build

    Examples:
      mlserver init churn  # a Python model
      mlserver init churn --from churn.joblib  # a project from a model file
      mlserver init --list

    Usage: mlserver init [OPTIONS] [FOLDER]

    Arguments:
      [FOLDER]  Folder of the project [default: the project's name]

    Options:
      -t, --template <TEMPLATE>  Name of a template, a folder, or an archive (.zip, .tar, .tar.gz) or
                                 its URL [default: custom]
          --from <MODEL_FILE>    Create a project from a copy of a model file, instead of a template
          --name <NAME>          Name of the project and its model [default: the folder's name, or
                                 `my-model`]
          --list                 List the templates
          --format <FORMAT>      Output format of --list [default: text] [possible values: text, json]
          --dockerfile           Also write a Dockerfile and a `.dockerignore` file, as `mlserver
                                 dockerfile --include-dockerignore` does
          --force                Overwrite existing files
          --color <WHEN>         When to use colors; `auto` means on a terminal, unless `NO_COLOR` is
                                 set [default: auto] [possible values: auto, always, never]
      -h, --help                 Print help
    --- stderr
    ");
}

#[test]
fn help_of_config_snapshot() {
    insta::assert_snapshot!(Case::new().run(&["config", "--help"]), @"
    status: 0
    --- stdout
    Inspect settings

    Examples:
      mlserver config show .  # the effective settings and their sources
      mlserver config explain http_port
      mlserver config list

    Usage: mlserver config [OPTIONS] <COMMAND>

    Commands:
      show     Print every effective setting and its source
      list     List all settings with their types, defaults and environment variables
      explain  Explain one setting
      help     Print this message or the help of the given subcommand(s)

    Options:
          --color <WHEN>  When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set
                          [default: auto] [possible values: auto, always, never]
      -h, --help          Print help
    --- stderr
    ");
}

#[test]
fn help_of_config_show_snapshot() {
    insta::assert_snapshot!(Case::new().run(&["config", "show", "--help"]), @"
    status: 0
    --- stdout
    Print every effective setting and its source

    Examples:
      mlserver config show . --format json --set http_port=9000

    Usage: mlserver config show [OPTIONS] [FOLDER]

    Arguments:
      [FOLDER]  Folder with the models, or its URI in an object store [default: .]

    Options:
          --strict           Reject unknown keys in settings files
          --format <FORMAT>  Output format [default: text] [possible values: text, json]
          --color <WHEN>     When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set
                             [default: auto] [possible values: auto, always, never]
      -h, --help             Print help

    Settings:
          --settings <FILE>       Settings file of the operator (`MLSERVER_SETTINGS_FILE`), above the
                                  `settings.json` of the folder, which may then not set access, TLS,
                                  addresses and ports
          --set <KEY=VALUE>       Change a setting; may be repeated, and the last value is used. Keys
                                  inside objects are separated by dots, lists are JSON. `mlserver config
                                  list` prints all settings
          --host <ADDRESS>        Address to listen on, like `--set host=ADDRESS`
          --http-port <PORT>      Port of the REST server; 0 means any free port
          --grpc-port <PORT>      Port of the gRPC server; 0 means any free port
          --metrics-port <PORT>   Port of the metrics server; 0 means any free port
          --debug                 Log at debug level, including an access log
          --log-level <LEVEL>     Lowest severity of log lines to write [possible values: debug, info,
                                  warning, error]
          --parallel-workers <N>  Worker processes per pool of Python models; 0 means one worker that
                                  runs plain functions inline
    --- stderr
    ");
}

#[test]
fn usage_errors_exit_with_2() {
    for arguments in [&[] as &[&str], &["bogus"], &["start"], &["config"], &["config", "show", "--format", "xml"]] {
        let shown = Case::new().run(arguments);
        assert!(shown.starts_with("status: 2\n--- stdout\n--- stderr\n"), "{arguments:?}: {shown}");
    }
}
