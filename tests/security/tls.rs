//! TLS of the REST, gRPC and metrics servers.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::authority::{Authority, Validity, curl, s_client};
use crate::support::{Client, Folder, PATIENCE, ServerBuilder, TestServer, pause, wait_until};

/// Starts a server with the certificate `server` of an authority and more settings.
fn serve(authority: &Authority, settings: &Value) -> TestServer {
    builder(authority, settings).listen()
}

fn builder(authority: &Authority, settings: &Value) -> ServerBuilder {
    let mut all = json!({"tls_certificate": authority.text("server.pem"), "tls_key": authority.text("server.key")});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    ServerBuilder::new(Folder::iris().settings(&all))
}

/// An empty message of gRPC.
const EMPTY_MESSAGE: &str = "\0\0\0\0\0";

#[test]
fn tls_serves_rest_and_grpc_with_alpn_and_leaves_metrics_plain() {
    let authority = Authority::new();
    authority.server("server");
    let server = serve(&authority, &json!({}));
    wait_until("ready", || authority.curl(server.http, "/v2/health/ready", &[]).unwrap().0 == 200);
    for (option, version) in [("--http1.1", "1.1"), ("--http2", "2")] {
        let options = [option, "--write-out", "\n%{http_version}\n%{http_code}"];
        let (status, body) = authority.curl(server.http, "/v2/models/iris-xgboost", &options).unwrap();
        assert_eq!(status, 200);
        assert!(body.ends_with(&format!("\n{version}")), "{body}");
    }
    let frame = authority.path("frame");
    fs::write(&frame, EMPTY_MESSAGE).unwrap();
    let body = format!("@{}", frame.display());
    let options = ["--http2", "--include", "--header", "content-type: application/grpc", "--data-binary", &body];
    let (status, answer) =
        authority.curl(server.grpc, "/inference.GRPCInferenceService/ServerReady", &options).unwrap();
    assert_eq!(status, 200);
    assert!(answer.starts_with("HTTP/2") && answer.contains("\u{8}\u{1}"), "{answer:?}");
    assert_eq!(Client::new(server.metrics.unwrap()).get("/metrics").status, 200);
    let plain = curl(&[&format!("http://{}/v2/health/live", server.http)]);
    assert!(plain.is_err(), "{plain:?}");
    for line in
        ["HTTP server running on https://", "gRPC server running on https://", "Metrics server running on http://"]
    {
        assert!(server.log().contains(line), "{line}");
    }
}

#[test]
fn tls_metrics_uses_the_same_certificate() {
    let authority = Authority::new();
    authority.server("server");
    let server = serve(&authority, &json!({"tls_metrics": true}));
    let (status, body) = authority.curl(server.metrics.unwrap(), "/metrics", &[]).unwrap();
    assert!(status == 200 && body.contains("connections_open"), "{body}");
}

#[test]
fn tls_min_version_refuses_older_clients() {
    let authority = Authority::new();
    authority.server("server");
    let handshake = |server: &TestServer, version: &str| {
        s_client(server.http, &authority.path("ca.pem"), &[version]).status.success()
    };
    let server = serve(&authority, &json!({}));
    assert!(handshake(&server, "-tls1_2") && handshake(&server, "-tls1_3"));
    assert!(!handshake(&server, "-tls1_1"));
    let server = serve(&authority, &json!({"tls_min_version": "1.3"}));
    assert!(handshake(&server, "-tls1_3") && !handshake(&server, "-tls1_2"));
}

#[test]
fn tls_clients_refuse_wrong_server_certificates() {
    for (validity, names, expected) in [
        (Validity::Expired, &["localhost"], "expired"),
        (Validity::Future, &["localhost"], "not yet valid"),
        (Validity::Now, &["elsewhere.example"], "elsewhere"),
    ] {
        let authority = Authority::new();
        authority.issue("server", "elsewhere", names, validity);
        let server = serve(&authority, &json!({}));
        let error = authority.curl(server.http, "/v2/health/live", &[]).unwrap_err();
        if validity == Validity::Now {
            assert!(error.contains("no alternative certificate subject name matches"), "{error}");
        } else {
            assert!(error.contains(expected), "{error}");
            assert!(server.log().contains("WARNING - `tls_certificate`: the certificate in"), "{}", server.log());
        }
        let other = Authority::new();
        let error = other.curl(server.http, "/v2/health/live", &[]).unwrap_err();
        assert!(error.contains("certificate problem"), "{error}");
    }
}

#[test]
fn tls_client_ca_requires_a_valid_client_certificate() {
    let authority = Authority::new();
    authority.server("server");
    authority.client("client", "ci");
    authority.issue("expired", "ci", &[], Validity::Expired);
    authority.issue("future", "ci", &[], Validity::Future);
    let other = Authority::new();
    other.client("client", "ci");
    let server = serve(&authority, &json!({"tls_client_ca": authority.text("ca.pem")}));
    let request = |pem: &str, key: &str| {
        authority.curl(server.http, "/v2/health/live", &["--cert", pem, "--key", key]).map(|(status, _)| status)
    };
    assert_eq!(request(&authority.text("client.pem"), &authority.text("client.key")), Ok(200));
    assert!(request(&authority.text("expired.pem"), &authority.text("expired.key")).is_err());
    assert!(request(&authority.text("future.pem"), &authority.text("future.key")).is_err());
    assert!(request(&other.text("client.pem"), &other.text("client.key")).is_err(), "another authority");
    assert!(authority.curl(server.http, "/v2/health/live", &[]).is_err(), "without a certificate");
    let without = s_client(server.grpc, &authority.path("ca.pem"), &["-tls1_2"]);
    assert!(!without.status.success(), "gRPC requires certificates, too");
}

#[test]
fn tls_files_that_cannot_be_used_end_the_start_with_code_1() {
    let authority = Authority::new();
    authority.server("server");
    authority.server("other");
    for (settings, expected) in [
        (
            json!({"tls_key": authority.text("none.key")}),
            "`tls_key`: cannot use `[CA]/none.key`: no such file or directory",
        ),
        (
            json!({"tls_key": authority.text("other.key")}),
            "`tls_key`: cannot use `[CA]/other.key`: it is not the key of the certificate `[CA]/server.pem`",
        ),
        (
            json!({"tls_certificate": authority.text("server.key")}),
            "`tls_certificate`: cannot use `[CA]/server.key`: it has no PEM certificates",
        ),
        (
            json!({"tls_client_ca": authority.text("no.pem")}),
            "`tls_client_ca`: cannot use `[CA]/no.pem`: no such file or directory",
        ),
        (json!({"tls_key": null}), "`tls_key` is not set: `tls_certificate` needs it"),
    ] {
        let exit = builder(&authority, &settings).run();
        assert_eq!(exit.code, Some(1), "{exit:?}");
        let stderr = exit.stderr.replace(&authority.text(""), "[CA]/");
        assert!(stderr.contains(expected), "{stderr}");
    }
}

#[test]
fn tls_handshake_ends_with_the_header_timeout() {
    let authority = Authority::new();
    authority.server("server");
    let server = serve(&authority, &json!({"http_header_timeout": 0.5}));
    for address in [server.http, server.grpc] {
        let began = Instant::now();
        let mut silent = TcpStream::connect(address).unwrap();
        silent.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(silent.read(&mut [0]), Ok(0) | Err(_)));
        assert!((Duration::from_millis(400)..Duration::from_secs(10)).contains(&began.elapsed()));
    }
    assert!(server.scrape().text().contains("connections_closed_total{reason=\"header_timeout\"} 2"));
}

#[test]
fn tls_handshakes_count_as_connections() {
    let authority = Authority::new();
    authority.server("server");
    let server = serve(&authority, &json!({"max_connections": 2}));
    let mut first = TcpStream::connect(server.http).unwrap();
    let _second = TcpStream::connect(server.http).unwrap();
    wait_until("both are counted", || {
        let open = server.scrape();
        open.text().lines().any(|line| line == "connections_open 3")
    });
    let (status, _) = authority.curl(server.http, "/v2/health/live", &[]).unwrap();
    assert_eq!(status, 200);
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)), "the oldest handshake is evicted");
}

/// A client that trusts one authority, and makes a new connection for every request unless `keeps`.
fn rust_client(authority: &Authority, keeps: bool) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let ca = reqwest::Certificate::from_pem(&fs::read(authority.path("ca.pem")).unwrap()).unwrap();
    let builder = reqwest::Client::builder().tls_certs_only([ca]).no_proxy().timeout(PATIENCE);
    builder.pool_max_idle_per_host(usize::from(keeps)).build().unwrap()
}

/// Returns the serial number of the certificate that a server presents.
fn serial(authority: &Authority, server: &TestServer) -> String {
    let output = s_client(server.http, &authority.path("ca.pem"), &["-showcerts"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let begin = text.find("-----BEGIN CERTIFICATE-----").unwrap_or_else(|| unreachable!("{output:?}"));
    let end = text.find("-----END CERTIFICATE-----").unwrap();
    text[begin..end].to_owned()
}

#[test]
fn tls_rotation_by_symlink_under_load_fails_no_request() {
    let authority = Authority::new();
    // As Kubernetes mounts secrets: files are links into a folder, which is a link that is swapped.
    for generation in ["first", "second"] {
        authority.server("server");
        let folder = authority.path(generation);
        fs::create_dir(&folder).unwrap();
        fs::rename(authority.path("server.pem"), folder.join("tls.crt")).unwrap();
        fs::rename(authority.path("server.key"), folder.join("tls.key")).unwrap();
    }
    symlink("first", authority.path("..data")).unwrap();
    symlink("..data/tls.crt", authority.path("server.pem")).unwrap();
    symlink("..data/tls.key", authority.path("server.key")).unwrap();
    let server = serve(&authority, &json!({}));
    let before = serial(&authority, &server);

    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (stop, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let url = format!("https://localhost:{}/v2/health/live", server.http.port());
    let load = [true, false].map(|keeps| {
        let (client, url) = (rust_client(&authority, keeps), url.clone());
        let (stop, answered) = (Arc::clone(&stop), Arc::clone(&answered));
        runtime.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(client.get(&url).send().await.unwrap().status(), 200);
                answered.fetch_add(1, Ordering::Relaxed);
            }
        })
    });
    symlink("second", authority.path("..new")).unwrap();
    fs::rename(authority.path("..new"), authority.path("..data")).unwrap();
    let swapped = Instant::now();
    wait_until("the new certificate is served", || {
        pause(Duration::from_millis(200));
        serial(&authority, &server) != before
    });
    assert!(swapped.elapsed() < Duration::from_secs(10));
    server.wait_for_log("Reloaded `tls_certificate`");
    let after = answered.load(Ordering::Relaxed);
    wait_until("requests go on", || answered.load(Ordering::Relaxed) > after + 100);
    stop.store(true, Ordering::Relaxed);
    for task in load {
        runtime.block_on(task).unwrap();
    }

    // A file that cannot be used keeps the old one, with one warning.
    let rotated = serial(&authority, &server);
    fs::write(authority.path("second/tls.key"), "damaged").unwrap();
    let warning = server.wait_for_log("WARNING - `tls_key`");
    assert!(
        warning.ends_with("it has no PEM private key. The previous content stays in use until the file is repaired."),
        "{warning}"
    );
    pause(Duration::from_secs(7));
    assert_eq!(server.log().matches("WARNING - `tls_key`").count(), 1);
    assert_eq!(serial(&authority, &server), rotated);
}
