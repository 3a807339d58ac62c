//! `mlserver build` with a real Docker engine, which `tests/image/engine` starts and `MLSERVER_TEST_ENGINE` names.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, LogsOptions, RemoveContainerOptions, StartContainerOptions,
};
use futures_util::StreamExt;
use mlserver::image::{BuildContext, BuildRequest, DockerEngine, Dockerfile, IgnoreRules};
use serde_json::json;

use crate::support::{Client, Folder, announced_address, mlserver_command, repository_path, skipped};

/// Debian with Python; see `tests/image/engine`.
const BASE: &str = "mlserver-test-base";

/// How long a container may take to become ready: others are built and started concurrently.
const START: Duration = Duration::from_mins(3);

/// Returns the address of the engine, or `None` if there is none.
fn engine() -> Option<String> {
    let named = std::env::vars_os().find(|(name, _)| name == "MLSERVER_TEST_ENGINE").map(|(_, host)| host);
    if named.is_none() {
        skipped("no Docker engine is named in MLSERVER_TEST_ENGINE; see tests/image/engine");
    }
    named.map(|host| host.into_string().unwrap())
}

fn mlserver(engine: &str, folder: &Folder, arguments: &[&str]) -> Output {
    mlserver_command(folder.root(), arguments).env("DOCKER_HOST", engine).output().unwrap()
}

/// Builds a project and returns the output on standard error.
#[track_caller]
fn build(engine: &str, folder: &Folder, project: &str, tag: &str, flags: &[&str]) -> String {
    let arguments = [&["build", project, "--tag", tag, "--network", "host"], flags].concat();
    let output = mlserver(engine, folder, &arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{tag}\n"));
    stderr
}

fn size(engine: &str, tag: &str) -> i64 {
    let inspected = block_on(async { connect(engine).inspect_image(tag).await.unwrap() });
    inspected.size.unwrap()
}

fn connect(engine: &str) -> Docker {
    Docker::connect_with_host(engine).unwrap()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(work)
}

/// Returns the size of the executable, with that of the libraries in an image that contains nothing else.
fn server_size(with_libraries: bool) -> i64 {
    let executable = fs::metadata(env!("CARGO_BIN_EXE_mlserver")).unwrap().len();
    let libraries = if with_libraries { 8 << 20 } else { 0 };
    i64::try_from(executable).unwrap() + libraries
}

/// Runs an image as a user that does not exist in it, and checks that the model `churn` answers a request.
fn serves_as(engine: &str, tag: &str, user: &str, request: &[u8]) {
    serves(engine, tag, user, &[], None, request);
}

/// Runs an image with additional variables and a folder mounted at `/mnt/models`, and checks that the model `churn`
/// answers a request.
fn serves(engine: &str, tag: &str, user: &str, own: &[&str], mounted: Option<&Path>, request: &[u8]) {
    block_on(async {
        let docker = connect(engine);
        let variables =
            ["MLSERVER_HTTP_PORT=0", "MLSERVER_GRPC_PORT=0", "MLSERVER_METRICS_PORT=0", "MLSERVER_HOST=127.0.0.1"];
        let body = ContainerCreateBody {
            image: Some(tag.to_owned()),
            user: Some(user.to_owned()),
            env: Some(variables.iter().chain(own).map(|&variable| variable.to_owned()).collect()),
            host_config: Some(HostConfig {
                network_mode: Some("host".to_owned()),
                binds: mounted.map(|folder| vec![format!("{}:/mnt/models:ro", folder.display())]),
                ..HostConfig::default()
            }),
            ..ContainerCreateBody::default()
        };
        let id = docker.create_container(None::<CreateContainerOptions>, body).await.unwrap().id;
        docker.start_container(&id, None::<StartContainerOptions>).await.unwrap();
        let options = LogsOptions { follow: true, stdout: true, stderr: true, ..LogsOptions::default() };
        let mut logs = docker.logs(&id, Some(options));
        let mut log = String::new();
        let address = loop {
            let Ok(Some(Ok(piece))) = tokio::time::timeout(START, logs.next()).await else {
                unreachable!("the container does not listen: {log}")
            };
            log += &piece.to_string();
            if let Some(address) = announced_address(&log, "HTTP") {
                break address;
            }
        };
        let client = Client::new(address);
        let end = Instant::now() + START;
        loop {
            let asking = client.clone();
            let status = tokio::task::spawn_blocking(move || asking.get("/v2/health/ready").status).await;
            if status.is_ok_and(|status| status == 200) || Instant::now() > end {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let (path, request) = ("/v2/models/churn/infer", request.to_vec());
        let answered = tokio::task::spawn_blocking(move || client.post(path, request)).await;
        let top = docker.inspect_container(&id, None::<InspectContainerOptions>).await.unwrap();
        let force = RemoveContainerOptions { force: true, ..RemoveContainerOptions::default() };
        docker.remove_container(&id, Some(force)).await.unwrap();
        assert_eq!(top.config.unwrap().user.as_deref(), Some(user));
        assert_eq!(answered.unwrap().status, 200, "{log}");
    });
}

fn project(engine: &str, template: &str, name: &str) -> Folder {
    let folder = Folder::new();
    let made = mlserver(engine, &folder, &["init", name, "--name", "churn", "--template", template]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    folder
}

#[test]
fn build_native_project_contains_only_the_server() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "xgboost", "a folder");
    let tag = "mlserver-test-native:1";
    let log = build(&engine, &folder, "a folder", tag, &["--check"]);
    assert!(log.starts_with("Building `mlserver-test-native:1`: native model, no Python needed\n#1 "), "{log}");
    assert!(log.ends_with("Checked: the image is ready; sample requests answered: 1\n"), "{log}");
    let size = size(&engine, tag);
    assert!(size < server_size(true), "{size} bytes");
    serves_as(&engine, tag, "4242:4243", &fs::read(folder.path("a folder/request.json")).unwrap());
}

#[test]
fn build_documented_commands_work() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "sklearn", "my-model");
    let text = fs::read_to_string(repository_path("docs/images.md")).unwrap();
    let command = text.lines().find_map(|line| line.strip_prefix("mlserver ")).unwrap();
    // The tests' engine has no network of its own.
    let arguments: Vec<_> = command.split(' ').chain(["--network", "host"]).collect();
    let output = mlserver(&engine, &folder, &arguments);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && log.contains("Checked: the image is ready"), "{command}: {log}");
    assert_eq!(output.stdout, b"my-model:1\n");
}

#[test]
fn build_classic_builder_makes_the_same_image() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "sklearn", "p");
    let tag = "mlserver-test-classic:1";
    let log = build(&engine, &folder, "p", tag, &["--check", "--classic"]);
    assert!(log.contains("\nStep 1/"), "{log}");
    assert!(log.ends_with("Checked: the image is ready; sample requests answered: 1\n"), "{log}");
    assert!(size(&engine, tag) < server_size(true));
}

#[test]
fn build_python_project_contains_its_packages() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "custom", "p");
    let tag = "mlserver-test-custom:1";
    let log = build(&engine, &folder, "p", tag, &["--base", BASE, "--check"]);
    assert!(log.ends_with("Checked: the image is ready; sample requests answered: 1\n"), "{log}");
    let added = size(&engine, tag) - size(&engine, BASE) - server_size(false);
    assert!(added < 100_000_000, "{added} bytes in addition to the server");
    // OpenShift assigns arbitrary user ids in group 0.
    let request = fs::read(folder.path("p/request.json")).unwrap();
    serves_as(&engine, tag, "1000650000:0", &request);
    serves_as(&engine, tag, "4242:4243", &request);

    // A change in the code does not reinstall the packages.
    let code = fs::read_to_string(folder.path("p/models.py")).unwrap();
    fs::write(folder.path("p/models.py"), code.replace("self._slope * inputs", "1 + self._slope * inputs")).unwrap();
    let log = build(&engine, &folder, "p", tag, &["--base", BASE]);
    let step = log.lines().find(|line| line.contains("pip install")).unwrap().split(' ').next().unwrap().to_owned();
    assert!(log.lines().any(|line| line == format!("{step} cached")), "{log}");
}

#[test]
fn build_requirements_error_is_printed_last() {
    let Some(engine) = engine() else { return };
    let folder =
        project(&engine, "custom", "p").file("p/requirements.txt", "numpy\nno-such-package-of-mlserver==1.0\n");
    for flags in [&[][..], &["--classic"]] {
        let arguments =
            [&["build", "p", "--tag", "mlserver-test-broken", "--network", "host", "--base", BASE], flags].concat();
        let output = mlserver(&engine, &folder, &arguments);
        assert_eq!(output.status.code(), Some(1));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains("error: the build failed at `"), "{stderr}");
        let last = stderr.lines().next_back().unwrap();
        assert_eq!(last, "ERROR: No matching distribution found for no-such-package-of-mlserver==1.0", "{stderr}");
        assert_eq!(output.stdout, b"");
    }
}

#[test]
fn build_check_rejects_an_image_that_does_not_serve() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "streaming", "p");
    let code = fs::read_to_string(folder.path("p/models.py")).unwrap();
    fs::write(folder.path("p/models.py"), format!("import no_such_module\n{code}")).unwrap();
    let tag = "mlserver-test-failing";
    let arguments = ["build", "p", "--tag", tag, "--network", "host", "--base", BASE, "--check"];
    let output = mlserver(&engine, &folder, &arguments);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("error: the image failed to start: it exited with code 1; the last lines of its log:\n"),
        "{stderr}"
    );
    assert!(stderr.contains("no_such_module"), "{stderr}");
}

/// The packages are left out: they take gigabytes, and are tested with the frameworks.
#[test]
fn server_image_serves_kserve_mount() {
    let Some(engine) = engine() else { return };
    let (server, tag) = ("mlserver-test-server:1", "mlserver-test-all:1");
    build(&engine, &Folder::new(), ".", server, &[]);
    let dockerfile = fs::read_to_string(repository_path("docker/all.Dockerfile")).unwrap();
    let folder = Folder::new().file("docker/requirements.txt", "");
    let context = BuildContext {
        // Our build contexts have the folder in `project`.
        dockerfile: Dockerfile { text: dockerfile.replace("COPY docker/", "COPY project/docker/"), images: Vec::new() },
        folder: Some(folder.root().to_owned()),
        ignore: IgnoreRules::default(),
        files: Vec::new(),
        server: Vec::new(),
    };
    let arguments = [("BASE", BASE), ("SERVER", server)].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let request = BuildRequest {
        tag: tag.to_owned(),
        arguments: HashMap::from(arguments),
        network: Some("host".to_owned()),
        ..BuildRequest::default()
    };
    block_on(async {
        let variables = HashMap::from([("DOCKER_HOST".to_owned(), engine.clone())]);
        DockerEngine::connect(&variables).await.unwrap().build(&request, context, drop).await.unwrap();
    });
    // The variables that KServe and Seldon set for a model without its own settings.
    let variables = [
        "MODELS_DIR=/mnt/models",
        "MLSERVER_MODEL_NAME=churn",
        "MLSERVER_MODEL_URI=/mnt/models",
        "MLSERVER_MODEL_IMPLEMENTATION=mlserver_xgboost.XGBoostModel",
    ];
    let artifact = fs::read(repository_path("examples/quickstart/iris-xgboost/model.json")).unwrap();
    let models = Folder::new().file("model.json", artifact);
    fs::set_permissions(models.root(), fs::Permissions::from_mode(0o755)).unwrap();
    let inputs = json!([{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [5.1, 3.5, 1.4, 0.2]}]);
    let request = json!({"inputs": inputs}).to_string();
    serves(&engine, tag, "1000", &variables, Some(models.root()), request.as_bytes());
}

/// An image registry, from the package that `tests/image/engine` installs.
struct Registry {
    process: Child,
    address: SocketAddr,
    _folder: Folder,
}

impl Registry {
    fn start() -> Self {
        let folder = Folder::new();
        let (storage, settings) = (folder.path("images"), folder.path("registry.json"));
        let config = json!({
            "version": 0.1,
            "storage": {"filesystem": {"rootdirectory": storage}},
            "http": {"addr": "127.0.0.1:0"},
        });
        fs::write(&settings, config.to_string()).unwrap();
        let mut command = Command::new("docker-registry");
        let mut process =
            command.arg("serve").arg(settings).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("listening on ")?;
            rest.split('"').next().unwrap().parse().ok()
        });
        let address = address.expect("the registry listens");
        // The pipe has to stay open for further output.
        std::thread::spawn(move || lines.for_each(drop));
        Self { process, address, _folder: folder }
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[test]
fn build_push_sends_to_the_registry_in_the_tag() {
    let Some(engine) = engine() else { return };
    let registry = Registry::start();
    let folder = project(&engine, "xgboost", "p");
    build(&engine, &folder, "p", &format!("{}/team/churn:7", registry.address), &["--push"]);
    let tags = Client::new(registry.address).get("/v2/team/churn/tags/list");
    assert_eq!(tags.ok(), json!({"name": "team/churn", "tags": ["7"]}));

    let address = registry.address;
    drop(registry);
    let tag = format!("{address}/team/churn:8");
    let output = mlserver(&engine, &folder, &["build", "p", "--tag", &tag, "--network", "host", "--push"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains(&format!("error: cannot push `{tag}`")), "{stderr}");
    assert!(stderr.contains("connection refused"), "{stderr}");
}

#[test]
fn build_other_platform_takes_the_server_from_an_image() {
    let Some(engine) = engine() else { return };
    let (platform, server, tag) = ("linux/arm64", "mlserver-test-server:arm64", "mlserver-test-arm64:1");
    // Nothing runs in this image, so any file can stand in for the server.
    let folder = Folder::new().file("mlserver", "an executable for arm64");
    let text = "FROM scratch\nCOPY project/mlserver /usr/local/bin/mlserver\n".to_owned();
    let context = BuildContext {
        dockerfile: Dockerfile { text, images: Vec::new() },
        folder: Some(folder.root().to_owned()),
        ignore: IgnoreRules::default(),
        files: Vec::new(),
        server: Vec::new(),
    };
    let request =
        BuildRequest { tag: server.to_owned(), platform: Some(platform.to_owned()), ..BuildRequest::default() };
    block_on(async {
        let variables = HashMap::from([("DOCKER_HOST".to_owned(), engine.clone())]);
        DockerEngine::connect(&variables).await.unwrap().build(&request, context, drop).await.unwrap();
    });
    let folder = project(&engine, "xgboost", "p");
    build(&engine, &folder, "p", tag, &["--platform", platform, "--server", server]);
    let inspected = block_on(async { connect(&engine).inspect_image(tag).await.unwrap() });
    assert_eq!(inspected.architecture.as_deref(), Some("arm64"));
    assert_eq!(inspected.os.as_deref(), Some("linux"));

    let refused = mlserver(&engine, &folder, &["build", "p", "--tag", tag, "--platform", platform]);
    assert!(!refused.status.success(), "the server of this machine does not run there");
}

#[test]
fn build_without_engine_fails() {
    let folder = Folder::iris();
    let output = mlserver("unix:///no/such/engine.sock", &folder, &["build", ".", "--tag", "x"]);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("error: no Docker engine responds at `unix:///no/such/engine.sock`"), "{stderr}");
}
