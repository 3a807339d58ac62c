//! `mlserver infer` against a server with TLS and keys, and the warning of a server that is open to everybody.

use std::fs;

use serde_json::json;

use super::authority::Authority;
use crate::support::{Folder, IRIS, ServerBuilder, TestServer, mlserver_command};

/// A request for the iris model.
const ROW: &str = r#"{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[5.1,3.5,1.4,0.2]}]}"#;

/// Serves the iris model with mutual TLS, and a key `ci`, which is returned.
fn serve(authority: &Authority) -> (TestServer, String) {
    authority.server("server");
    authority.client("client", "someone");
    let settings = json!({
        "tls_certificate": authority.text("server.pem"),
        "tls_key": authority.text("server.key"),
        "tls_client_ca": authority.text("ca.pem"),
        "api_keys_file": "keys.json",
    });
    let folder = Folder::iris().settings(&settings).file("in.jsonl", ROW);
    let created = mlserver_command(folder.root(), &["keys", "create", "--name", "ci", "--scope", "infer"]).output();
    let key = String::from_utf8(created.unwrap().stdout).unwrap().trim_end().to_owned();
    (ServerBuilder::new(folder).listen(), key)
}

#[test]
fn infer_with_token_and_client_certificate_reaches_both_transports() {
    let authority = Authority::new();
    let (server, key) = serve(&authority);
    let (ca, cert, private) = (authority.text("ca.pem"), authority.text("client.pem"), authority.text("client.key"));
    server.wait_for_log("Loaded model");
    for (transport, address) in [("rest", server.http), ("grpc", server.grpc)] {
        let url = format!("https://localhost:{}", address.port());
        let mut flags =
            vec!["infer", "-u", &url, "-m", IRIS, "-i", "in.jsonl", "-o", "out.jsonl", "-t", transport, "-r", "1"];
        flags.extend(["--ca", &ca, "--cert", &cert, "--key", &private, "-vv"]);
        let run = |token: Option<&str>, variable: Option<&str>| {
            let token: Vec<&str> = token.into_iter().flat_map(|token| ["--token", token]).collect();
            let mut command = mlserver_command(server.folder.root(), &[&flags[..], &token].concat());
            command.envs(variable.map(|value| ("MLSERVER_INFER_TOKEN", value))).env("NO_PROXY", "*");
            let output = command.output().unwrap();
            let shown =
                format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            let answers = fs::read_to_string(server.folder.path("out.jsonl")).unwrap_or_default();
            // A file that exists is not overwritten silently.
            let _ = fs::remove_file(server.folder.path("out.jsonl"));
            assert!(!shown.contains(&key) && !answers.contains(&key), "the key is never shown: {shown}");
            (answers, shown)
        };
        for (answers, shown) in [run(Some(&key), None), run(None, Some(&key)), run(Some(&key), Some("mls_wrong"))] {
            assert!(answers.contains("\"outputs\""), "{transport}: {answers} {shown}");
        }
        for (answers, shown) in [run(None, None), run(Some("mls_wrong"), None)] {
            let shown = format!("{answers}{shown}");
            assert!(shown.contains("no credentials") || shown.contains("the key is unknown"), "{transport}: {shown}");
        }
    }
}

#[test]
fn infer_trusts_a_self_signed_certificate_of_openssl() {
    let folder = Folder::iris().file("in.jsonl", ROW).with_self_signed_certificate();
    let folder = folder.settings(&json!({"tls_certificate": "server.pem", "tls_key": "server.key"}));
    let server = ServerBuilder::new(folder).listen();
    server.wait_for_log("Loaded model");
    let run = |host: &str, flags: &[&str], file: Option<&str>, port: u16, transport: &str| {
        let url = format!("https://{host}:{port}");
        let common = ["infer", "-u", &url, "-m", IRIS, "-i", "in.jsonl", "-o", "-", "-r", "1", "-t", transport];
        let mut command = mlserver_command(server.folder.root(), &[&common[..], flags].concat());
        command.envs(file.map(|file| ("SSL_CERT_FILE", file))).env("NO_PROXY", "*");
        let output = command.output().unwrap();
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    for (port, transport) in [(server.http.port(), "rest"), (server.grpc.port(), "grpc")] {
        let shown = run("localhost", &["--ca", "server.pem"], None, port, transport);
        assert!(shown.contains("\"outputs\""), "{shown}");
        let shown = run("localhost", &[], Some("server.pem"), port, transport);
        assert!(shown.contains("\"outputs\""), "{shown}");
        let shown = run("127.0.0.1", &["--ca", "server.pem"], None, port, transport);
        assert!(shown.contains("NotValidForName") || shown.contains("not valid for name"), "{shown}");
    }
    let other = Authority::new();
    let shown = run("localhost", &["--ca", &other.text("ca.pem")], None, server.http.port(), "rest");
    assert!(!shown.contains("\"outputs\""), "{shown}");
}

#[test]
fn start_warns_if_everybody_may_load_models() {
    let serve = |settings: serde_json::Value| {
        let folder = Folder::iris().settings(&settings).file("keys.json", "[]");
        ServerBuilder::new(folder).without("MLSERVER_HOST").listen().log()
    };
    let warning = "WARNING - Anyone who can reach";
    let log = serve(json!({"host": "0.0.0.0"}));
    assert_eq!(log.matches(warning).count(), 1, "{log}");
    assert!(log.contains("Anyone who can reach 0.0.0.0 can load and unload models: set `api_keys_file`"), "{log}");
    for settings in [
        json!({"host": "127.0.0.1"}),
        json!({"host": "localhost"}),
        json!({"host": "0.0.0.0", "repository_api": false}),
        json!({"host": "0.0.0.0", "api_keys_file": "keys.json"}),
    ] {
        assert!(!serve(settings.clone()).contains(warning), "{settings}");
    }
}
