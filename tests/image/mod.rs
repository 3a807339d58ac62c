//! `mlserver build` with a real Docker engine, which `tests/image/engine` starts and `MLSERVER_TEST_ENGINE` names.

mod secured;

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, InspectContainerOptions, ListContainersOptions, LogsOptions, RemoveContainerOptions,
    StartContainerOptions,
};
use futures_util::StreamExt;
use mlserver::image::docker::{BuildContext, BuildRequest, DockerEngine};
use mlserver::image::{Dockerfile, IgnoreRules};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::python::environments::pythons;
use crate::support::{Client, Folder, announced_address, mlserver_command, pause, repository_path, skipped};

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
/// answers a request. Returns the log until it listens.
fn serves(engine: &str, tag: &str, user: &str, own: &[&str], mounted: Option<&Path>, request: &[u8]) -> String {
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
        log
    })
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
    for template in ["xgboost", "catboost", "onnx"] {
        let folder = project(&engine, template, "a folder");
        let tag = format!("mlserver-test-native-{template}:1");
        let log = build(&engine, &folder, "a folder", &tag, &["--check"]);
        assert!(log.starts_with(&format!("Building `{tag}`: native model, no Python needed\n#1 ")), "{log}");
        assert!(log.ends_with("Checked: the image is ready; sample requests answered: 1\n"), "{log}");
        let size = size(&engine, &tag);
        assert!(size < server_size(true), "{size} bytes");
        serves_as(&engine, &tag, "4242:4243", &fs::read(folder.path("a folder/request.json")).unwrap());
    }
}

/// Moves the model of a project to a web server, which the returned process is.
#[cfg(feature = "storage")]
fn move_to_a_server(folder: &Folder, project: &str) -> Child {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    fs::create_dir(folder.path("store")).unwrap();
    fs::rename(folder.path(&format!("{project}/model.json")), folder.path("store/model.json")).unwrap();
    let mut server = Command::new("python3")
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"])
        .arg(folder.path("store"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let port = line.split(" port ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let path = folder.path(&format!("{project}/model-settings.json"));
    let mut settings: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    settings["parameters"]["uri"] = format!("http://127.0.0.1:{port}/model.json").into();
    fs::write(path, settings.to_string()).unwrap();
    server
}

#[cfg(feature = "storage")]
#[test]
fn build_puts_models_of_stores_into_the_image() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "xgboost", "p");
    let mut server = move_to_a_server(&folder, "p");
    let settings = fs::read(folder.path("p/model-settings.json")).unwrap();
    let tag = "mlserver-test-offline-models";
    let command = |flags: &[&str]| {
        let arguments = [&["build", "p", "--tag", tag, "--network", "host", "--check"], flags].concat();
        let mut command = mlserver_command(folder.root(), &arguments);
        command.env("DOCKER_HOST", &engine).env("MLSERVER_STORAGE_CACHE", folder.path("cache")).output().unwrap()
    };
    let remote = command(&[]);
    let stderr = String::from_utf8(remote.stderr).unwrap();
    assert!(remote.status.success(), "{stderr}");
    assert!(stderr.starts_with("Model `churn` stays in `http://127.0.0.1:"), "{stderr}");
    let offline = command(&["--offline-models"]);
    let stderr = String::from_utf8(offline.stderr).unwrap();
    assert!(offline.status.success(), "{stderr}");
    assert!(stderr.starts_with("Model `churn` is in the image, instead of in its object store\n"), "{stderr}");
    server.kill().unwrap();
    server.wait().unwrap();
    serves_as(&engine, tag, "4242:4243", &fs::read(folder.path("p/request.json")).unwrap());
    assert_eq!(fs::read(folder.path("p/model-settings.json")).unwrap(), settings, "the folder is as it was");
}

/// Returns the commands after `<!-- engine -->` in a document.
fn documented_commands() -> Vec<String> {
    let text = fs::read_to_string(repository_path("docs/images.md")).unwrap();
    let blocks = text.split("<!-- engine -->\n```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// Runs `docker` and `mlserver` with the network of the host, because the tests' engine has no other, and on free ports.
fn with_host_network(docker: &str) -> Folder {
    let ports = "--env MLSERVER_HTTP_PORT=0 --env MLSERVER_GRPC_PORT=0 --env MLSERVER_METRICS_PORT=0";
    let docker = format!(
        "#!/bin/sh\nsub=$1; shift\ncase $sub in\nrun) exec '{docker}' run --network host {ports} \"$@\" ;;\n\
         *) exec '{docker}' \"$sub\" --network host \"$@\" ;;\nesac\n"
    );
    let mlserver = format!(
        "#!/bin/sh\ncase $1 in build) exec '{0}' \"$@\" --network host ;; *) exec '{0}' \"$@\" ;; esac\n",
        env!("CARGO_BIN_EXE_mlserver")
    );
    let folder = Folder::new().file("docker", docker).file("mlserver", mlserver);
    for name in ["docker", "mlserver"] {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    folder
}

/// Removes a container when it is dropped, so that one of a failed test does not keep running.
struct RunningContainer<'a> {
    engine: &'a str,
    image: &'a str,
}

impl Drop for RunningContainer<'_> {
    fn drop(&mut self) {
        for id in containers(self.engine, "ancestor", self.image) {
            let force = RemoveContainerOptions { force: true, ..RemoveContainerOptions::default() };
            // It may have ended by itself.
            let _ = block_on(async { connect(self.engine).remove_container(&id, Some(force)).await });
        }
    }
}

/// Returns the ids of the containers that a filter selects, running or not.
fn containers(engine: &str, filter: &str, value: &str) -> Vec<String> {
    let filters = HashMap::from([(filter.to_owned(), vec![value.to_owned()])]);
    let options = ListContainersOptions { all: true, filters: Some(filters), ..ListContainersOptions::default() };
    let listed = block_on(async { connect(engine).list_containers(Some(options)).await.unwrap() });
    listed.into_iter().filter_map(|container| container.id).collect()
}

/// The commands of the documentation, with Docker's own command line: base image, Dockerfile, build, run.
#[test]
fn documented_commands_build_and_run_an_image() {
    let Some(engine) = engine() else { return };
    let docker = ["/usr/bin/docker", "/usr/local/bin/docker"].into_iter().find(|path| Path::new(path).is_file());
    let Some(docker) = docker else { return skipped("Docker's command line is not installed") };
    let shims = with_host_network(docker);
    let mut blocks = 0;
    for commands in documented_commands() {
        // Every block makes the image from scratch. The settings must not fix the port.
        let settings = json!({"http_port": 1, "host": "127.0.0.1"});
        let folder = project(&engine, "xgboost", "my-model").file("my-model/settings.json", settings.to_string());
        let (setup, run) = commands.trim_end().rsplit_once('\n').unwrap();
        assert!(run.starts_with("docker run "), "{run}");
        let image = run.split(' ').next_back().unwrap();
        let command = |script: &str| {
            let mut command = Command::new("bash");
            command.args(["-euo", "pipefail", "-c", script]).current_dir(folder.root()).env_clear();
            let path = format!("{}:/usr/local/bin:/usr/bin:/bin", shims.root().display());
            command
                .env("PATH", path)
                .env("DOCKER_HOST", &engine)
                .env("HOME", folder.root())
                .env("DOCKER_BUILDKIT", "0");
            command
        };
        let output = command(setup).output().unwrap();
        assert!(output.status.success(), "{setup}\n{}", String::from_utf8_lossy(&output.stderr));

        let container = RunningContainer { engine: &engine, image };
        let mut running = command(&format!("{run} 2>&1")).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines();
        let mut log = String::new();
        let address = loop {
            let Some(line) = lines.next() else { unreachable!("{run}\n{log}") };
            log += &(line.unwrap() + "\n");
            if let Some(address) = announced_address(&log, "HTTP") {
                break address;
            }
        };
        let reader = std::thread::spawn(move || lines.for_each(drop));
        let client = Client::new(address);
        let end = Instant::now() + START;
        while client.get("/v2/health/ready").status != 200 {
            assert!(Instant::now() < end, "{log}");
            pause(Duration::from_millis(50));
        }
        let request = fs::read(folder.path("my-model/request.json")).unwrap();
        assert_eq!(client.post("/v2/models/churn/infer", request).status, 200);
        drop(container);
        running.wait().unwrap();
        reader.join().unwrap();
        blocks += 1;
    }
    assert_eq!(blocks, 2);
}

/// Starts a build without waiting for it.
fn start_build(engine: &str, folder: &Folder, arguments: &[&str]) -> Child {
    let arguments = [&["build", "p", "--network", "host", "--base", BASE], arguments].concat();
    let mut command = mlserver_command(folder.root(), &arguments);
    command.env("DOCKER_HOST", engine).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Interrupts a build and returns its exit code and what it reported.
fn interrupt(child: Child, signal: Signal) -> (Option<i32>, String) {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn build_check_interrupted_leaves_no_container() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "streaming", "p");
    // Loads without an end, and logs all the time.
    let code = "import time\nwhile True:\n    print('loading', flush=True)\n    time.sleep(0.01)\n";
    fs::write(folder.path("p/models.py"), code).unwrap();
    let tag = "mlserver-test-interrupted:1";
    let mut child = start_build(&engine, &folder, &["--tag", tag, "--check"]);
    let label = format!("mlserver.check={tag}");
    let is_running = || {
        containers(&engine, "label", &label).iter().any(|id| {
            let inspecting = async { connect(&engine).inspect_container(id, None::<InspectContainerOptions>).await };
            block_on(inspecting).is_ok_and(|found| found.state.is_some_and(|state| state.running == Some(true)))
        })
    };
    let end = Instant::now() + START;
    while !is_running() {
        assert!(child.try_wait().unwrap().is_none(), "the build ended: {:?}", child.wait_with_output());
        assert!(Instant::now() < end, "the check does not run its container");
        pause(Duration::from_millis(50));
    }
    let (code, stderr) = interrupt(child, Signal::INT);
    assert_eq!(code, Some(130), "{stderr}");
    assert!(stderr.ends_with("error: interrupted by SIGINT\n"), "{stderr}");
    assert_eq!(containers(&engine, "label", &label), Vec::<String>::new());
}

#[test]
fn build_interrupted_cancels_the_engine_s_step() {
    let Some(engine) = engine() else { return };
    // A package that connects to the test while it is installed, and then waits until the test hangs up.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let backend = format!("import socket\nsocket.create_connection(('127.0.0.1', {port})).recv(1)\n");
    let package = "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n";
    let folder = project(&engine, "custom", "p")
        .file("p/requirements.txt", "./own\n")
        .file("p/own/pyproject.toml", package)
        .file("p/own/backend.py", backend);
    let mut child = start_build(&engine, &folder, &["--tag", "mlserver-test-cancelled:1", "--no-cache"]);
    let end = Instant::now() + START;
    let mut connection = loop {
        if let Ok((connection, _)) = listener.accept() {
            break connection;
        }
        assert!(child.try_wait().unwrap().is_none(), "the build ended: {:?}", child.wait_with_output());
        assert!(Instant::now() < end, "the package is not installed");
        pause(Duration::from_millis(50));
    };
    let (code, stderr) = interrupt(child, Signal::TERM);
    assert_eq!(code, Some(143), "{stderr}");
    // The connection ends only with its process.
    connection.set_nonblocking(false).unwrap();
    connection.set_read_timeout(Some(START)).unwrap();
    let mut sent = Vec::new();
    let ended = connection.read_to_end(&mut sent);
    let is_closed = ended.as_ref().map_or_else(|error| error.kind() == ErrorKind::ConnectionReset, |_| true);
    assert!(is_closed, "{ended:?}");
}

#[test]
fn build_check_encodes_names_and_respects_versions() {
    let Some(engine) = engine() else { return };
    let tag = "mlserver-test-versions:1";
    let mut folder = Folder::new();
    for (version, model, request) in
        [("v 1", "iris-xgboost", "iris-request.json"), ("v2", "breast-cancer-lightgbm", "breast-cancer-request.json")]
    {
        let source = |file: &str| fs::read(repository_path("examples/quickstart").join(file)).unwrap();
        let text = source(&format!("{model}/model-settings.json"));
        let mut settings: Value = serde_json::from_slice(&text).unwrap();
        settings["name"] = json!("my model/ü");
        settings["parameters"]["version"] = json!(version);
        let artifact = settings["parameters"]["uri"].as_str().unwrap().trim_start_matches("./").to_owned();
        folder = folder
            .file(&format!("p/{version}/model-settings.json"), settings.to_string())
            .file(&format!("p/{version}/{artifact}"), source(&format!("{model}/{artifact}")))
            .file(&format!("p/{version}/request.json"), source(request));
    }
    let log = build(&engine, &folder, "p", tag, &["--check"]);
    assert!(log.ends_with("Checked: the image is ready; sample requests answered: 2\n"), "{log}");
}

/// The files of certificates and keys are not in the image.
#[test]
fn build_check_turns_tls_and_access_control_off() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "xgboost", "p").file(
        "p/settings.json",
        json!({
            "tls_certificate": "/run/tls.crt", "tls_key": "/run/tls.key", "tls_client_ca": "/run/ca.crt", "tls_metrics": true,
            "tls_client_scopes": {"ci": ["infer"]}, "api_keys_file": "/run/keys.json",
            "key_rate_limit": {"requests_per_second": 1}, "jwt_issuer": "https://issuer.example", "jwt_audience": "mlserver",
            "jwks_file": "/run/jwks.json",
        })
        .to_string(),
    );
    let tag = "mlserver-test-secured:1";
    let log = build(&engine, &folder, "p", tag, &["--check"]);
    let checked = "Checked: the image is ready (without TLS and access control); sample requests answered: 1\n";
    assert!(log.ends_with(checked), "{log}");
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

/// Makes the image of Docker Hub for a version of Python out of one of this machine, which the base image lacks. Returns the version,
/// or `None` if there is none.
fn import_python(engine: &str) -> Option<&'static str> {
    let mut found = ["3.13", "3.10"].into_iter();
    let Some((path, version)) = found.find_map(|wanted| pythons().iter().find(|(_, version)| version == wanted)) else {
        skipped("the image of a project with another Python: neither CPython 3.13 nor 3.10 is installed");
        return None;
    };
    let docker = ["/usr/bin/docker", "/usr/local/bin/docker"].into_iter().find(|path| Path::new(path).is_file());
    let Some(docker) = docker else {
        skipped("Docker's command line is not installed");
        return None;
    };
    let script = format!(
        "prefix=$('{}' -c 'import sys; print(sys.base_prefix)')\nmkdir python\ncp -a \"$prefix/bin\" \"$prefix/lib\" python/\n\
         rm -rf python/lib/python{version}/test python/lib/python{version}/site-packages/[!p]*\n\
         '{docker}' build --network host --tag python:{version}-slim .\n",
        path.display()
    );
    let dockerfile = format!("FROM {BASE}\nCOPY python /usr/local\nRUN ldconfig\n");
    let folder = Folder::new().file("Dockerfile", dockerfile).file(".dockerignore", "**/__pycache__\n");
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).current_dir(folder.root());
    let made = command.env("DOCKER_HOST", engine).env("DOCKER_BUILDKIT", "0").output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some(version)
}

#[test]
fn build_uses_the_python_of_the_project() {
    let Some(engine) = engine() else { return };
    let Some(version) = import_python(&engine) else { return };
    let folder = project(&engine, "custom", "p").file("p/.python-version", format!("{version}\n"));
    // Its packages have other distributions for other versions.
    let check = format!("import sys\n\nassert \"%d.%d\" % sys.version_info[:2] == \"{version}\", sys.version\n");
    let code = fs::read_to_string(folder.path("p/models.py")).unwrap();
    let (docstring, rest) = code.split_once("\n\n").unwrap();
    fs::write(folder.path("p/models.py"), format!("{docstring}\n\n{check}{rest}")).unwrap();
    let tag = "mlserver-test-python:1";
    let log = build(&engine, &folder, "p", tag, &["--check"]);
    assert!(log.lines().next().unwrap().contains(&format!("in Python {version} (`")), "{log}");
    assert!(log.ends_with("Checked: the image is ready; sample requests answered: 1\n"), "{log}");
    serves_as(&engine, tag, "4242:4243", &fs::read(folder.path("p/request.json")).unwrap());
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

#[test]
fn build_check_reports_a_container_that_cannot_be_reached() {
    let Some(engine) = engine() else { return };
    let folder = project(&engine, "streaming", "p");
    let tag = "mlserver-test-unreachable";
    let arguments = ["build", "p", "--tag", tag, "--network", "none", "--base", BASE, "--check"];
    let output = mlserver(&engine, &folder, &arguments);
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(
        stderr.contains("but cannot be reached from this machine: the engine has not published port 8080"),
        "{stderr}"
    );
    assert!(stderr.contains("use `--network host`"), "{stderr}");
}

/// Builds an image from a Dockerfile that copies nothing but the folder's files.
fn build_text(engine: &str, text: &str, folder: &Folder, request: &BuildRequest) {
    let context = BuildContext {
        dockerfile: Dockerfile { text: text.to_owned(), images: Vec::new() },
        folder: Some(folder.root().to_owned()),
        ignore: IgnoreRules::default(),
        with_cache: false,
        added: Vec::new(),
        replaced: BTreeMap::new(),
        files: Vec::new(),
        server: Vec::new(),
    };
    block_on(async {
        let variables = HashMap::from([("DOCKER_HOST".to_owned(), engine.to_owned())]);
        DockerEngine::connect(&variables).await.unwrap().build(request, context, drop).await.unwrap();
    });
}

/// The packages are left out: they take gigabytes, and are tested with the frameworks.
#[test]
fn build_base_images_serve_kserve_mount() {
    let Some(engine) = engine() else { return };
    let folder = Folder::new().file("requirements.txt", "");
    let (repository, version) = ("mlserver-test-bases", env!("CARGO_PKG_VERSION"));
    let arguments = ["build", "--base-images", "--tag", repository, "--base", BASE, "--network", "host"];
    let flags = ["--requirements", "requirements.txt", "--quiet", "--format", "json"];
    let output = mlserver(&engine, &folder, &[&arguments[..], &flags].concat());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.lines().all(|line| line.starts_with("warning: this executable is linked dynamically")), "{stderr}");
    let tag = &format!("{repository}:{version}");
    let lines = String::from_utf8(output.stdout).unwrap();
    let built: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(built.len(), 3, "{lines}");
    for (built, tag) in built.iter().zip([&format!("{tag}-slim"), &format!("{tag}-python"), tag]) {
        let inspected = block_on(async { connect(&engine).inspect_image(tag).await.unwrap() });
        assert_eq!(built["id"], json!(inspected.id));
        assert_eq!(built["size"], json!(inspected.size));
        assert!(built["tags"].as_array().unwrap().contains(&json!(tag)), "{built}");
    }
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
    for tag in [tag, &format!("{tag}-python")] {
        serves(&engine, tag, "1000", &variables, Some(models.root()), request.as_bytes());
    }
}

/// The compiler is a script: the image with Rust takes gigabytes, and compiling takes long.
#[test]
fn slim_dockerfile_takes_the_server_that_it_compiles() {
    let Some(engine) = engine() else { return };
    let (rust, tag) = ("mlserver-test-rust:1", "mlserver-test-slim:1");
    let compiler = "#!/bin/sh\necho 'host: test-host'\n";
    let cargo = "#!/bin/sh\nmkdir -p target/test-host/dist\necho \"$*\" > target/test-host/dist/mlserver\n";
    let folder = Folder::new().file("rustc", compiler).file("cargo", cargo);
    for name in ["rustc", "cargo"] {
        fs::set_permissions(folder.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let text = format!("FROM {BASE}\nCOPY project/ /usr/bin/\n");
    build_text(&engine, &text, &folder, &BuildRequest { tag: rust.to_owned(), ..BuildRequest::default() });
    let text = fs::read_to_string(repository_path("packaging/docker/slim.Dockerfile")).unwrap();
    let request = BuildRequest {
        tag: tag.to_owned(),
        arguments: HashMap::from([("RUST".to_owned(), rust.to_owned())]),
        network: Some("host".to_owned()),
        ..BuildRequest::default()
    };
    build_text(&engine, &text, &Folder::new(), &request);
    let expected = "build --profile dist --locked --target test-host\n";
    assert_eq!(size(&engine, tag), i64::try_from(expected.len()).unwrap());
}

/// An image of a folder serves another one that is mounted, with the image's implementation and the image's settings.
#[test]
fn image_of_folder_serves_mounted_models() {
    let Some(engine) = engine() else { return };
    // No unprivileged process can listen on port 1, so the variables have to win.
    let settings = json!({"http_port": 1, "use_structured_logging": true});
    let folder = project(&engine, "xgboost", "p").file("p/settings.json", settings.to_string());
    let (plain, tag) = ("mlserver-test-settings:1", "mlserver-test-settings:2");
    build(&engine, &folder, "p", plain, &["--check"]);
    let request = fs::read(folder.path("p/request.json")).unwrap();
    serves_as(&engine, plain, "1000", &request);

    let text = format!("FROM {plain}\nENV MLSERVER_MODEL_IMPLEMENTATION=mlserver_xgboost.XGBoostModel\n");
    build_text(&engine, &text, &Folder::new(), &BuildRequest { tag: tag.to_owned(), ..BuildRequest::default() });
    let artifact = fs::read(folder.path("p/model.json")).unwrap();
    let unnamed = json!({"name": "churn", "parameters": {"uri": "./model.json"}});
    let models = Folder::new().file("model.json", artifact).file("model-settings.json", unnamed.to_string());
    fs::set_permissions(models.root(), fs::Permissions::from_mode(0o755)).unwrap();
    let log = serves(&engine, tag, "1000", &["MLSERVER_MODELS_DIR=/mnt/models"], Some(models.root()), &request);
    assert!(log.lines().all(|line| line.starts_with('{')), "the image's settings apply: {log}");

    // A file that the user mounts overrides the image's, key by key, and the environment.
    let models = models.settings(&json!({"debug": false, "grpc_port": 0, "use_structured_logging": false}));
    let variables = ["MLSERVER_MODELS_DIR=/mnt/models", "MLSERVER_DEBUG=true", "MLSERVER_GRPC_PORT=1"];
    let log = serves(&engine, tag, "1000", &variables, Some(models.root()), &request);
    assert!(log.lines().all(|line| !line.starts_with('{')), "{log}");
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
    let log = build(&engine, &folder, "p", &format!("{}/team/churn:7", registry.address), &["--push"]);
    assert!(log.lines().any(|line| line.starts_with("Pushed 1 of ") && line.contains(" layers")), "{log}");
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
    let text = "FROM scratch\nCOPY project/mlserver /usr/local/bin/mlserver\n";
    let request =
        BuildRequest { tag: server.to_owned(), platform: Some(platform.to_owned()), ..BuildRequest::default() };
    build_text(&engine, text, &folder, &request);
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
