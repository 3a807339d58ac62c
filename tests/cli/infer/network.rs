//! The HTTP client of `mlserver infer`: proxies, credentials, certificates, encodings, redirects and timeouts.

use std::fs;
use std::net::{SocketAddr, TcpListener};

use serde_json::json;

use super::{InferCommand, number, numbers, values};
use crate::support::scripted::{Received, Reply, ScriptedServer};
use crate::support::{gzip, repository_path};

/// `me:s3cret`, as Basic auth sends it.
const BASIC: &str = "bWU6czNjcmV0";

/// A command that sends `input` to the model `m` of a server whose address may be any text.
fn infer(url: &str, input: &str) -> InferCommand {
    InferCommand::new(input).flags(&["-u", url, "-m", "m", "-i", "in.jsonl", "-o", "out.jsonl", "-r", "1"])
}

/// An address that nothing listens on.
fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn fixture(name: &str) -> String {
    repository_path("tests/fixtures/tls").join(name).to_str().unwrap().to_owned()
}

#[test]
fn infer_uses_the_proxy_of_the_environment() {
    let proxy = ScriptedServer::serve(Received::echo);
    let address = format!("http://{}", proxy.address);
    let ran = infer("http://model.example:8080", &number(0, 7)).env("HTTP_PROXY", &address).run();
    assert_eq!(values(&ran.lines(0)), [Some(7)]);
    let received = proxy.received().remove(0);
    assert_eq!(received.path, "http://model.example:8080/v2/models/m/infer");
    assert_eq!(received.header("host"), "model.example:8080");

    let server = ScriptedServer::serve(Received::echo);
    let direct = infer(&server.address.to_string(), &number(0, 8));
    let direct = direct.env("HTTP_PROXY", &address).env("NO_PROXY", "127.0.0.1");
    assert_eq!(values(&direct.run().lines(0)), [Some(8)]);
    assert_eq!((proxy.received().len(), server.received().len()), (1, 1));
}

#[test]
fn infer_unreachable_proxy_is_named_without_its_password() {
    let free = free_address();
    let infer = infer("http://model.example:8080", &number(0, 7));
    let ran = infer.env("ALL_PROXY", &format!("http://me:s3cret@{free}")).run();
    assert_eq!(ran.code, Some(1));
    let expected = format!("cannot connect to model.example:8080 through the proxy {free}: connection refused");
    assert!(ran.stderr.contains(&expected), "{}", ran.stderr);
    assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
}

#[test]
fn infer_proxy_that_rejects_a_tunnel_ends_the_run() {
    for (status, expected) in [(407, "proxy authorization required; add USER:PASSWORD@"), (403, "does the proxy allow")]
    {
        let proxy = ScriptedServer::serve(move |_| Reply::Bytes(status, Vec::new(), Vec::new()));
        let ran = infer("https://model.example", &number(0, 7)).flags(&["--insecure"]);
        let ran = ran.env("HTTPS_PROXY", &format!("http://{}", proxy.address)).run();
        assert_eq!(ran.code, Some(1));
        assert!(ran.stderr.contains("cannot connect to model.example:443 through the proxy "), "{}", ran.stderr);
        assert!(ran.stderr.contains(expected), "{}", ran.stderr);
        assert_eq!(proxy.received().remove(0).path, "model.example:443");
    }
}

#[test]
fn infer_sends_a_user_agent() {
    let server = ScriptedServer::serve(Received::echo);
    infer(&server.address.to_string(), &number(0, 1)).run().lines(0);
    infer(&server.address.to_string(), &number(0, 1)).flags(&["-H", "User-Agent: mine"]).run().lines(0);
    let received = server.received();
    assert_eq!(received[0].header("user-agent"), concat!("mlserver/", env!("CARGO_PKG_VERSION")));
    assert_eq!(received[1].header("user-agent"), "mine");
}

#[test]
fn infer_credentials_are_sent_and_never_shown() {
    let server = ScriptedServer::serve(|request| match request.echo() {
        Reply::Answer(status, _, body) => Reply::Answer(status, "set-cookie: session=c00kie", body),
        other => other,
    });
    let url = format!("http://me:s3cret@{}", server.address);
    let ran = infer(&url, &number(0, 1)).flags(&["-vv", "-H", "X-Api-Key: t0ken"]).run();
    ran.lines(0);
    let received = server.received().remove(0);
    assert_eq!(received.header("authorization"), format!("Basic {BASIC}"));
    assert_eq!(received.header("x-api-key"), "t0ken");
    for line in ["> authorization: <hidden>\n", "> x-api-key: <hidden>\n", "< set-cookie: <hidden>\n"] {
        assert!(ran.stderr.contains(line), "{}", ran.stderr);
    }
    for secret in ["s3cret", BASIC, "t0ken", "c00kie"] {
        assert!(!ran.stderr.contains(secret), "{secret}: {}", ran.stderr);
    }

    let ran = infer(&url, &number(0, 1)).flags(&["-vv", "-H", "Authorization: Bearer t0ken"]).run();
    assert_eq!(server.received()[1].header("authorization"), "Bearer t0ken", "a header overrides the address");
    assert!(!ran.stderr.contains("t0ken"), "{}", ran.stderr);
}

#[test]
fn infer_errors_hide_credentials() {
    for url in [format!("http://me:s3cret@{}", free_address()), "ftp://me:s3cret@h".to_owned()] {
        let ran = infer(&url, &number(0, 1)).run();
        assert!(ran.code.is_some_and(|code| code > 0), "{ran:?}");
        assert!(!ran.stderr.contains("s3cret"), "{}", ran.stderr);
    }
}

#[test]
fn infer_gzip_answer_is_decoded() {
    let server = ScriptedServer::serve(|request| match request.echo() {
        Reply::Answer(status, _, body) => {
            Reply::Bytes(status, vec!["content-encoding: gzip".to_owned()], gzip(body.as_bytes()))
        }
        other => other,
    });
    let ran = infer(&server.address.to_string(), &number(0, 5)).run();
    assert_eq!(values(&ran.lines(0)), [Some(5)]);
}

#[test]
fn infer_gzip_bomb_is_rejected() {
    let bomb = gzip(&vec![b' '; 1 << 20]).repeat(65);
    assert!(bomb.len() < 1 << 20);
    let server =
        ScriptedServer::serve(move |_| Reply::Bytes(200, vec!["content-encoding: gzip".to_owned()], bomb.clone()));
    let lines = infer(&server.address.to_string(), &number(0, 5)).run().lines(4);
    let expected = "the response has more than 67108864 bytes: send fewer rows per request";
    assert_eq!(lines[0]["error"]["msg"], expected);
}

#[test]
fn infer_trusts_the_certificates_of_a_file() {
    let server = ScriptedServer::serve_tls(Received::echo);
    let url = format!("https://localhost:{}", server.address.port());
    let ran = infer(&url, &number(0, 5)).flags(&["--ca", &fixture("certificate.pem")]).run();
    assert_eq!(values(&ran.lines(0)), [Some(5)]);
    let ran = infer(&url, &number(0, 5)).env("MLSERVER_INFER_CA", &fixture("certificate.pem")).run();
    assert_eq!(values(&ran.lines(0)), [Some(5)]);
    let broken = infer(&url, &number(0, 5)).flags(&["--ca", "in.jsonl"]);
    let ran = broken.run();
    assert_eq!(ran.code, Some(1));
    let expected = "error: cannot read the certificates in `in.jsonl`: it has no PEM certificates\n";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    let damaged = infer(&url, &number(0, 5)).flags(&["--ca", "damaged.pem"]);
    fs::write(damaged.path("damaged.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let ran = damaged.run();
    assert!(ran.stderr.contains("error: cannot read the certificates in `damaged.pem`: "), "{}", ran.stderr);
    let ran = infer(&url, &number(0, 5)).flags(&["--ca", "none.pem"]).run();
    assert!(ran.stderr.contains("in `none.pem`: no such file or directory"), "{}", ran.stderr);
}

#[test]
fn infer_presents_a_client_certificate() {
    let server = ScriptedServer::serve_mutual_tls(Received::echo);
    let url = format!("https://localhost:{}", server.address.port());
    let (ca, key) = (fixture("certificate.pem"), fixture("key.pem"));
    let ran = infer(&url, &number(0, 5)).flags(&["--ca", &ca, "--cert", &ca, "--key", &key]).run();
    assert_eq!(values(&ran.lines(0)), [Some(5)]);
    let both = [fs::read(&ca).unwrap(), fs::read(&key).unwrap()].concat();
    let command = infer(&url, &number(0, 5)).flags(&["--ca", &ca, "--cert", "both.pem"]);
    fs::write(command.path("both.pem"), both).unwrap();
    assert_eq!(values(&command.run().lines(0)), [Some(5)]);
    let ran = infer(&url, &number(0, 5)).flags(&["--ca", &ca]).run();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert_eq!(server.received().len(), 2, "the last request has no certificate");
    let ran = infer(&url, &number(0, 5)).flags(&["--ca", &ca, "--cert", &ca]).run();
    assert!(ran.stderr.contains("expected PEM with a certificate and its private key"), "{}", ran.stderr);
}

#[test]
fn infer_redirect_ends_the_run() {
    let server = ScriptedServer::serve(|request| {
        Reply::Bytes(308, vec![format!("location: https://model.example{}", request.path)], Vec::new())
    });
    let ran = infer(&format!("{}/seldon", server.address), &numbers(20)).flags(&["-s", "20"]).run();
    assert_eq!((ran.code, ran.output.as_str()), (Some(1), ""));
    let expected = "the server redirects to https://model.example/seldon: use that address (308)\n";
    assert!(ran.stderr.contains(expected), "{}", ran.stderr);
    assert_eq!(server.received().len(), 1, "it is neither followed nor sent in halves");
}

#[test]
fn infer_status_that_concerns_no_row_ends_the_run() {
    for (status, hint) in [(407, "HTTP_PROXY"), (501, "Open Inference"), (505, "--http2"), (511, "login")] {
        let server = ScriptedServer::serve(move |_| Reply::Bytes(status, Vec::new(), Vec::new()));
        let ran = infer(&server.address.to_string(), &numbers(20)).flags(&["-s", "20"]).run();
        assert_eq!(ran.code, Some(1), "{}", ran.stderr);
        assert!(ran.stderr.contains(hint) && ran.stderr.contains(&format!("({status})")), "{}", ran.stderr);
        assert_eq!(server.received().len(), 1, "{status}");
    }
}

#[test]
fn infer_timeout_is_not_split_with_all_retries() {
    // A proxy's timeout, which unlike the client's own does not depend on how busy this machine is.
    let server = ScriptedServer::serve(|request| match request.path.as_str() {
        "/v2/models/m/ready" => Reply::Answer(200, "", String::new()),
        _ if request.numbers().contains(&1) => Reply::error(504, "upstream timed out"),
        _ => request.echo(),
    });
    let lines = InferCommand::of(server.address, numbers(2)).flags(&["-s", "2", "-r", "2"]).run().lines(4);
    assert_eq!(values(&lines), [Some(0), None]);
    assert_eq!(lines[1]["error"]["msg"], "upstream timed out");
    let sent = server.received().iter().filter(|request| request.path.ends_with("/infer")).count();
    assert_eq!(sent, 4, "both rows twice, and each of them once");
}

#[test]
fn infer_retry_after_may_be_a_date() {
    let server = ScriptedServer::serve(|request| match request.number {
        0 => {
            let date = |second: u32| format!("Fri, 01 Jan 2027 00:00:{second:02} GMT");
            let headers = vec![format!("retry-after: {}", date(12)), format!("date: {}", date(10))];
            Reply::Bytes(503, headers, b"busy".to_vec())
        }
        _ => request.echo(),
    });
    let ran = InferCommand::of(server.address, numbers(1)).run();
    assert_eq!(values(&ran.lines(0)), [Some(0)]);
    assert!(ran.stderr.contains("warning: busy (503); retrying in 2.0 s"), "{}", ran.stderr);
}

#[test]
fn infer_server_text_is_printable_and_short() {
    let text = format!("\u{1b}]0;title\u{7}\u{1b}[2J{}", "x".repeat(1_000_000));
    let server = ScriptedServer::serve(move |_| Reply::Answer(400, "", json!({"error": text}).to_string()));
    let ran = infer(&server.address.to_string(), &number(0, 1)).flags(&["-vv"]).run();
    let lines = ran.lines(4);
    let message = lines[0]["error"]["msg"].as_str().unwrap();
    assert!(message.starts_with("\\u{1b}]0;title\\u{7}\\u{1b}[2Jxxx") && message.ends_with("x…"), "{message}");
    assert_eq!(message.chars().count(), 2001);
    assert!(!ran.stderr.contains(['\u{1b}', '\u{7}']) && ran.stderr.len() < 20_000, "{}", ran.stderr.len());
}

#[test]
fn infer_without_certificates_of_the_system_names_the_flag() {
    let server = ScriptedServer::serve(Received::echo);
    // A file without certificates, in place of those of the system.
    let without = |url: &str| infer(url, &number(0, 1)).env("SSL_CERT_FILE", "in.jsonl").env("SSL_CERT_DIR", "none");
    assert_eq!(values(&without(&server.address.to_string()).run().lines(0)), [Some(1)], "HTTP needs none");
    let ran = without("https://localhost:1").run();
    assert_eq!(ran.code, Some(1));
    assert!(ran.stderr.contains("cannot set up TLS: no CA certificates were loaded"), "{}", ran.stderr);
    assert!(ran.stderr.contains("or name a file with `--ca FILE`"), "{}", ran.stderr);
}
