//! What `mlserver doctor` finds in the files of TLS and access control, and what the server says when it starts.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use super::authority::{Authority, Validity};
use crate::support::{Folder, run_mlserver};

/// Runs `mlserver doctor` for the iris model with these settings and this file of keys, and returns the findings by level.
fn findings(settings: &Value, keys: &Value, mode: u32) -> Vec<(String, String)> {
    let mut all = json!({"host": "localhost", "http_port": 0, "grpc_port": 0, "metrics_port": 0});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let folder = Folder::iris().settings(&all).file("keys.json", keys.to_string());
    fs::set_permissions(folder.path("keys.json"), fs::Permissions::from_mode(mode)).unwrap();
    let output = run_mlserver(folder.root(), &["doctor", "--format", "json"]);
    let found: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| unreachable!("{error}: {output:?}"));
    let text = |finding: &Value, name: &str| finding[name].as_str().unwrap().to_owned();
    found["findings"].as_array().unwrap().iter().map(|one| (text(one, "level"), text(one, "text"))).collect()
}

#[track_caller]
fn assert_found(found: &[(String, String)], level: &str, part: &str) {
    assert!(found.iter().any(|(of, text)| of == level && text.contains(part)), "{level} {part} in {found:#?}");
}

#[test]
fn doctor_reports_problems_with_certificates() {
    let authority = Authority::new();
    authority.server("good");
    authority.issue("expired", "s", &["localhost"], Validity::Expired);
    authority.issue("future", "s", &["localhost"], Validity::Future);
    authority.issue("elsewhere", "s", &["elsewhere.example"], Validity::Now);
    authority.issue("nameless", "localhost", &[], Validity::Now);
    let of = |name: &str| {
        let path = authority.path(&format!("{name}.key"));
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        let files = json!({
            "tls_certificate": authority.text(&format!("{name}.pem")), "tls_key": authority.text(&format!("{name}.key")),
        });
        findings(&files, &json!([]), 0o600)
    };
    let good = of("good");
    assert_found(&good, "ok", "for `localhost`, `127.0.0.1`, until 2090-01-01");
    assert!(!good.iter().any(|(_, text)| text.contains("refuse") || text.contains("chmod")), "{good:#?}");
    assert_found(&of("expired"), "warning", "has expired: it is valid from 2019-01-01 to 2020-01-01");
    assert_found(&of("future"), "warning", "is not valid yet");
    assert_found(&of("elsewhere"), "warning", "is not for `localhost`, the setting `host`");
    assert_found(&of("nameless"), "warning", "has no DNS names and no IP addresses");
    authority.issue("soon", "s", &["localhost"], Validity::Soon);
    assert_found(&of("soon"), "warning", "expires soon, on 2");
    // The other certificates of the files count, too: an intermediate one, and the authority of clients.
    let chain = ["good.pem", "soon.pem", "expired.pem"].map(|name| fs::read_to_string(authority.path(name)).unwrap());
    fs::write(authority.path("chain.pem"), chain.concat()).unwrap();
    fs::copy(authority.path("good.key"), authority.path("chain.key")).unwrap();
    let in_chain = of("chain");
    assert_found(&in_chain, "ok", "until 2090-01-01");
    assert_found(&in_chain, "warning", "certificate 2 in");
    assert_found(&in_chain, "warning", "certificate 3 in");
    let clients = json!({
        "tls_certificate": authority.text("good.pem"), "tls_key": authority.text("good.key"),
        "tls_client_ca": authority.text("expired.pem"),
    });
    assert_found(&findings(&clients, &json!([]), 0o600), "warning", "expired.pem` has expired");
    let mixed = json!({"tls_certificate": authority.text("good.pem"), "tls_key": authority.text("future.key")});
    assert_found(&findings(&mixed, &json!([]), 0o600), "problem", "it is not the key of the certificate");
    fs::set_permissions(authority.path("good.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let open = json!({"tls_certificate": authority.text("good.pem"), "tls_key": authority.text("good.key")});
    assert_found(&findings(&open, &json!([]), 0o600), "warning", "every user of this machine can read");
}

#[test]
fn doctor_reports_problems_with_keys() {
    let key = |name: &str, expires: Value| {
        let hash = mlserver::access::KeyHash::of(name.as_bytes()).to_string();
        json!({"name": name, "hash": hash, "scopes": ["infer"], "expires": expires})
    };
    let settings = json!({"api_keys_file": "keys.json"});
    let soon = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now()) + chrono::Duration::days(13);
    let later = chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now()) + chrono::Duration::days(15);
    let keys = json!([
        key("old", json!("2020-01-01T00:00:00Z")),
        key("soon", json!(soon.format("%Y-%m-%dT%H:%M:%SZ").to_string())),
        key("later", json!(later.format("%Y-%m-%dT%H:%M:%SZ").to_string())),
        key("ci", json!(null)),
    ]);
    let found = findings(&settings, &keys, 0o644);
    assert_found(&found, "ok", "4 API keys in");
    assert_found(&found, "warning", "expired keys in");
    assert_found(&found, "warning", ": `old`");
    assert_found(&found, "warning", "keys that expire within 14 days in");
    assert_found(&found, "warning", ": `soon`");
    assert!(!found.iter().any(|(_, text)| text.contains("`later`") || text.contains("`ci`")), "{found:#?}");
    assert_found(&found, "warning", "run `chmod 600` on it");
    let private = findings(&settings, &keys, 0o600);
    assert!(!private.iter().any(|(_, text)| text.contains("chmod")), "{private:#?}");
    assert_found(&findings(&settings, &json!([]), 0o600), "warning", "rejects all requests");
    assert_found(&findings(&settings, &json!({}), 0o600), "problem", "it is not a JSON list of keys");
    assert_found(&findings(&json!({"forward_headers": ["x"]}), &json!([]), 0o600), "problem", "`forward_headers`");
}
