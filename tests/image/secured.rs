//! An image that runs as `packaging/deploy/secured.yaml` describes: without privileges, with mounted certificates and keys.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bollard::models::{ContainerCreateBody, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, InspectContainerOptions, LogsOptions, StartContainerOptions};
use futures_util::StreamExt;
use serde_json::Value;

use super::{RunningContainer, START, block_on, build, connect, engine, project};
use crate::support::{Folder, announced_address, pause, repository_path, run_mlserver};

/// The mode of a secret's files, as `defaultMode` has it.
const SECRET_MODE: u32 = 0o440;

/// Returns a document of the manifest.
fn document(manifest: &str, kind: &str) -> Value {
    let documents = manifest.split("\n---\n").map(|text| serde_saphyr::from_str::<Value>(text).unwrap());
    documents.into_iter().find(|document| document["kind"] == kind).unwrap()
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
}

/// Makes the folder of a mounted secret as Kubernetes does: the names are links into a folder that a link names.
fn mount_secret(folder: &Folder, name: &str, group: u32, files: &[(&str, &str)]) -> String {
    let root = folder.path(name);
    fs::create_dir_all(root.join("..1")).unwrap();
    symlink("..1", root.join("..data")).unwrap();
    for (mounted, source) in files {
        let file = root.join("..1").join(mounted);
        fs::copy(folder.path(source), &file).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(SECRET_MODE)).unwrap();
        chown(&file, Some(0), Some(group)).unwrap();
        symlink(Path::new("..data").join(mounted), root.join(mounted)).unwrap();
    }
    root.to_str().unwrap().to_owned()
}

/// Returns the container of the manifest's pod.
fn container(image: &str, deployment: &Value, secrets: &HashMap<&str, String>) -> ContainerCreateBody {
    let pod = &deployment["spec"]["template"]["spec"];
    let (of_pod, container) = (&pod["securityContext"], &pod["containers"][0]);
    let own = &container["securityContext"];
    assert_eq!((&of_pod["runAsNonRoot"], &own["allowPrivilegeEscalation"]), (&true.into(), &false.into()));
    let variables = container["env"].as_array().unwrap().iter();
    let variables = variables.map(|variable| (variable["name"].as_str().unwrap(), variable["value"].as_str().unwrap()));
    // The tests' engine has no network but the host's.
    let local = [
        ("MLSERVER_HOST", "127.0.0.1"),
        ("MLSERVER_HTTP_PORT", "0"),
        ("MLSERVER_GRPC_PORT", "0"),
        ("MLSERVER_METRICS_PORT", "0"),
    ];
    let (mut binds, mut empty) = (Vec::new(), HashMap::new());
    for mount in container["volumeMounts"].as_array().unwrap() {
        let (name, path) = (mount["name"].as_str().unwrap(), mount["mountPath"].as_str().unwrap());
        match secrets.get(name) {
            Some(folder) => {
                assert_eq!(mount["readOnly"], true);
                binds.push(format!("{folder}:{path}:ro"));
            }
            None => drop(empty.insert(path.to_owned(), "mode=1777".to_owned())),
        }
    }
    ContainerCreateBody {
        image: Some(image.to_owned()),
        user: Some(of_pod["runAsUser"].to_string()),
        env: Some(variables.chain(local).map(|(name, value)| format!("{name}={value}")).collect()),
        host_config: Some(HostConfig {
            network_mode: Some("host".to_owned()),
            group_add: Some(vec![of_pod["fsGroup"].to_string()]),
            readonly_rootfs: own["readOnlyRootFilesystem"].as_bool(),
            cap_drop: Some(texts(&own["capabilities"]["drop"])),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            binds: Some(binds),
            tmpfs: Some(empty),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    }
}

#[test]
fn image_runs_without_privileges_with_tls_and_keys() {
    let Some(engine) = engine() else { return };
    let manifest = fs::read_to_string(repository_path("packaging/deploy/secured.yaml")).unwrap();
    assert_eq!(manifest.matches("defaultMode: 0440").count(), 2);
    let (deployment, certificate) = (document(&manifest, "Deployment"), document(&manifest, "Certificate"));
    let folder = project(&engine, "xgboost", "p");
    let tag = "mlserver-test-hardened:1";
    build(&engine, &folder, "p", tag, &["--check"]);

    let host = certificate["spec"]["dnsNames"][0].as_str().unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &format!("/CN={host}")])
        .args(["-addext", &format!("subjectAltName=DNS:{host}"), "-keyout", "tls.key", "-out", "tls.crt"])
        .current_dir(folder.root())
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let create = ["keys", "create", "--name", "ci", "--scope", "infer", "--file", "keys.json"];
    let key = String::from_utf8(run_mlserver(folder.root(), &create).stdout).unwrap().trim_end().to_owned();
    let group = deployment["spec"]["template"]["spec"]["securityContext"]["fsGroup"].as_u64().unwrap();
    let mount = |name, files: &[_]| mount_secret(&folder, name, u32::try_from(group).unwrap(), files);
    let secrets = HashMap::from([
        ("tls", mount("mounted-tls", &[("tls.crt", "tls.crt"), ("tls.key", "tls.key")])),
        ("keys", mount("mounted-keys", &[("keys.json", "keys.json")])),
    ]);
    fs::set_permissions(folder.root(), fs::Permissions::from_mode(0o755)).unwrap();

    let _container = RunningContainer { engine: &engine, image: tag };
    let (address, process) = block_on(async {
        let docker = connect(&engine);
        let body = container(tag, &deployment, &secrets);
        let id = docker.create_container(None::<CreateContainerOptions>, body).await.unwrap().id;
        docker.start_container(&id, None::<StartContainerOptions>).await.unwrap();
        let options = LogsOptions { follow: true, stdout: true, stderr: true, ..LogsOptions::default() };
        let (mut logs, mut log) = (docker.logs(&id, Some(options)), String::new());
        let address = loop {
            let Ok(Some(Ok(piece))) = tokio::time::timeout(START, logs.next()).await else {
                unreachable!("the container does not listen: {log}")
            };
            log += &piece.to_string();
            if let Some(address) = announced_address(&log, "HTTP") {
                break address;
            }
        };
        assert!(log.contains("HTTP server running on https://"), "{log}");
        let inspected = docker.inspect_container(&id, None::<InspectContainerOptions>).await.unwrap();
        (address, inspected.state.unwrap().pid.unwrap())
    });

    let curl = |path: &str, options: &[&str]| {
        let (url, resolve) =
            (format!("https://{host}:{}{path}", address.port()), format!("{host}:{}:127.0.0.1", address.port()));
        let mut command = Command::new("curl");
        command.args([
            "--silent",
            "--show-error",
            "--max-time",
            "30",
            "--write-out",
            "\n%{http_code}",
            "--resolve",
            &resolve,
        ]);
        let output =
            command.arg("--cacert").arg(folder.path("tls.crt")).args(options).arg(&url).env("NO_PROXY", "*").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let (body, status) = text.rsplit_once('\n').unwrap();
        (status.parse::<u16>().unwrap(), body.to_owned())
    };
    let end = Instant::now() + START;
    while curl("/v2/health/ready", &[]).0 != 200 {
        assert!(Instant::now() < end);
        pause(Duration::from_millis(50));
    }
    let request = format!("@{}", folder.path("p/request.json").display());
    let infer = |options: &[&str]| curl("/v2/models/churn/infer", &[&["--json", &request], options].concat());
    let (status, body) = infer(&["--header", &format!("authorization: Bearer {key}")]);
    assert!(status == 200 && body.contains("\"outputs\""), "{status} {body}");
    let (status, body) = infer(&[]);
    assert!(status == 401 && body.contains("no credentials"), "{status} {body}");

    let read = |file: &str| fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
    let status = read("status");
    let fields: HashMap<&str, &str> = status.lines().filter_map(|line| line.split_once(":\t")).collect();
    assert!(fields["Uid"].split('\t').all(|id| id == "1000"), "{status}");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(fields[set].trim_start_matches('0'), "", "{set}: {status}");
    }
    assert_eq!(fields["NoNewPrivs"], "1");
    let mounts = read("mountinfo");
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/")).unwrap();
    assert!(root.split(' ').nth(5).unwrap().split(',').any(|option| option == "ro"), "{root}");
}
