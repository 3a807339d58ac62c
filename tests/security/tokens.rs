//! Tokens of an `OpenID` Connect issuer.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use crate::support::scripted::{Reply, ScriptedServer};
use crate::support::{Answer, Client, Folder, ServerBuilder, TestServer, wait_until};

const ISSUER: &str = "https://issuer.example";

/// A key of the issuer.
struct IssuerKey {
    id: &'static str,
    pair: Ed25519KeyPair,
}

impl IssuerKey {
    fn new(id: &'static str) -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self { id, pair: Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap() }
    }

    fn public(&self) -> Value {
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": URL_SAFE_NO_PAD.encode(self.pair.public_key())})
    }

    /// Signs a token of `alice` with these scopes and other claims.
    fn token(&self, scope: &str, others: &Value) -> String {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
        let mut claims = json!({"iss": ISSUER, "aud": "mlserver", "sub": "alice", "exp": now + 600, "scope": scope});
        claims.as_object_mut().unwrap().extend(others.as_object().unwrap().clone());
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&json!({"alg": "EdDSA", "kid": self.id})), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(self.pair.sign(signed.as_bytes()));
        format!("{signed}.{signature}")
    }
}

fn key_set(keys: &[&IssuerKey]) -> String {
    json!({"keys": keys.iter().map(|key| key.public()).collect::<Vec<_>>()}).to_string()
}

fn serve(settings: &Value, jwks: &str) -> TestServer {
    let mut all = json!({"jwt_issuer": ISSUER, "jwt_audience": "mlserver"});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    ServerBuilder::new(Folder::iris().file("jwks.json", jwks).settings(&all)).env("NO_PROXY", "*").start()
}

fn metadata(server: &TestServer, token: &str) -> Answer {
    let authorization = format!("Bearer {token}");
    server.request(&http::Method::GET, "/v2", &[("authorization", &authorization)], b"")
}

#[test]
fn token_of_the_issuer_has_its_scopes() {
    let key = IssuerKey::new("a");
    let settings =
        json!({"jwks_file": "jwks.json", "key_rate_limit": {"requests_per_second": 0.001, "burst": 3}, "debug": true});
    let server = serve(&settings, &key_set(&[&key]));
    assert_eq!(metadata(&server, &key.token("openid read", &json!({}))).status, 200);
    let message = metadata(&server, &key.token("infer", &json!({}))).error(403);
    assert_eq!(message, "`token:alice` does not have the scope `read`");
    let answer = metadata(&server, &key.token("read", &json!({"aud": "other"})));
    assert_eq!(answer.error(401), "the token is invalid: it is for another audience");
    assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"mlserver\", error=\"invalid_token\"");
    assert_eq!(metadata(&server, &key.token("read", &json!({"exp": 1_000_000}))).status, 401);
    assert_eq!(metadata(&server, &IssuerKey::new("a").token("read", &json!({}))).status, 401, "the signature is wrong");
    assert_eq!(metadata(&server, "mls_key").error(401), "the key is unknown");
    // The limit is that of the sender, whatever its tokens.
    assert_eq!(metadata(&server, &key.token("read", &json!({"jti": "2"}))).status, 200);
    assert_eq!(metadata(&server, &key.token("read", &json!({"jti": "3"}))).status, 200);
    assert_eq!(metadata(&server, &key.token("read", &json!({"jti": "4"}))).status, 429);
    assert!(server.wait_for_log("status_code=200").contains("alice"));
}

#[test]
fn token_principals_and_keys_have_different_names() {
    let key = IssuerKey::new("a");
    let hash = mlserver::access::KeyHash::of(b"secret-of-alice").to_string();
    let keys = json!([{"name": "alice", "hash": hash, "scopes": ["read", "metrics"]}]);
    let settings = json!({"jwks_file": "jwks.json", "api_keys_file": "keys.json", "debug": true});
    let mut all = json!({"jwt_issuer": ISSUER, "jwt_audience": "mlserver"});
    all.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let folder = Folder::iris().file("jwks.json", key_set(&[&key])).file("keys.json", keys.to_string()).settings(&all);
    let server = ServerBuilder::new(folder).env("NO_PROXY", "*").start();
    assert_eq!(metadata(&server, &key.token("read", &json!({}))).status, 200);
    assert_eq!(metadata(&server, "secret-of-alice").status, 200);
    let hostile = key.token("read", &json!({"sub": "ci\u{202e}ecila"}));
    assert_eq!(metadata(&server, &hostile).error(401), "the token is invalid: it has no valid `sub`");
    let authorization = "Bearer secret-of-alice";
    let headers = [("authorization", authorization)];
    let metrics = Client::new(server.metrics.unwrap()).request(&http::Method::GET, "/metrics", &headers, b"");
    for principal in ["alice", "token:alice"] {
        let line = format!("access_requests_total{{principal=\"{principal}\"}} ");
        let count = metrics.text().lines().filter(|found| found.starts_with(&line)).count();
        assert_eq!(count, 1, "{line} in\n{}", metrics.text());
    }
    assert!(!server.log().contains('\u{202e}'));
}

#[test]
fn token_scopes_may_come_from_another_claim() {
    let key = IssuerKey::new("a");
    let server = serve(&json!({"jwks_file": "jwks.json", "jwt_scope_claim": "roles"}), &key_set(&[&key]));
    assert_eq!(metadata(&server, &key.token("read", &json!({"roles": ["infer"]}))).status, 403);
    assert_eq!(metadata(&server, &key.token("", &json!({"roles": ["read"]}))).status, 200);
}

#[test]
fn jwks_file_reloads() {
    let (first, second) = (IssuerKey::new("first"), IssuerKey::new("second"));
    let server = serve(&json!({"jwks_file": "jwks.json"}), &key_set(&[&first]));
    let (of_first, of_second) = (first.token("read", &json!({})), second.token("read", &json!({})));
    assert_eq!((metadata(&server, &of_first).status, metadata(&server, &of_second).status), (200, 401));
    fs::write(server.folder.path("jwks.json"), key_set(&[&second])).unwrap();
    wait_until("the second key is known", || metadata(&server, &of_second).status == 200);
    assert_eq!(metadata(&server, &of_first).status, 401, "tokens of a withdrawn key are forgotten");
}

/// An issuer that counts how often its keys are fetched.
fn issuer(keys: &Arc<Mutex<String>>) -> (String, Arc<AtomicU32>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/keys", listener.local_addr().unwrap());
    let fetched = Arc::new(AtomicU32::new(0));
    let (keys, count) = (Arc::clone(keys), Arc::clone(&fetched));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
            count.fetch_add(1, Ordering::SeqCst);
            let body = keys.lock().unwrap().clone();
            let length = body.len();
            // The server may have gone.
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}");
        }
    });
    (url, fetched)
}

#[test]
fn unknown_key_id_fetches_the_keys_at_most_once_in_ten_seconds() {
    let (first, second) = (IssuerKey::new("first"), IssuerKey::new("second"));
    let keys = Arc::new(Mutex::new(key_set(&[&first])));
    let (url, fetched) = issuer(&keys);
    let server = serve(&json!({"jwks_url": url}), "");
    wait_until("the keys are fetched", || metadata(&server, &first.token("read", &json!({}))).status == 200);
    *keys.lock().unwrap() = key_set(&[&first, &second]);
    let began = std::time::Instant::now();
    let token = second.token("read", &json!({}));
    for _ in 0..20 {
        assert_eq!(metadata(&server, &token).status, 401, "the keys were fetched a moment ago");
    }
    assert_eq!(fetched.load(Ordering::SeqCst), 1);
    wait_until("the new key is known", || metadata(&server, &token).status == 200);
    assert!(began.elapsed().as_secs() < 12);
    assert_eq!(fetched.load(Ordering::SeqCst), 2);
}

#[test]
fn issuer_with_a_self_signed_certificate_is_trusted_if_it_is_named() {
    let key = IssuerKey::new("a");
    let keys = key_set(&[&key]);
    let certificates = Folder::new().with_self_signed_certificate();
    let issuer = ScriptedServer::serve_tls_of(certificates.root(), move |_| Reply::Answer(200, "", keys.clone()));
    let url = format!("https://localhost:{}/keys", issuer.address.port());
    let settings = json!({"jwt_issuer": ISSUER, "jwt_audience": "mlserver", "jwks_url": url});
    let starting = || ServerBuilder::new(Folder::iris().settings(&settings)).env("NO_PROXY", "*");
    let certificate = certificates.path("server.pem");
    let trusting = starting().env("SSL_CERT_FILE", certificate.to_str().unwrap()).start();
    let token = key.token("read", &json!({}));
    wait_until("the keys are fetched", || metadata(&trusting, &token).status == 200);
    let other = starting().start();
    other.wait_for_log("Cannot fetch the keys of tokens");
    assert_ne!(metadata(&other, &token).status, 200);
}

#[test]
fn incomplete_token_settings_end_the_start_with_code_1() {
    for (settings, expected) in [
        (json!({"jwt_issuer": ISSUER}), "`jwt_audience` is not set: tokens need it"),
        (json!({"jwt_issuer": ISSUER, "jwt_audience": "a"}), "`jwks_url` is not set: tokens need it"),
        (json!({"jwks_file": "jwks.json"}), "`jwt_issuer` is not set: tokens need it"),
        (json!({"jwt_issuer": ISSUER, "jwt_audience": "a", "jwks_file": "settings.json"}), "`jwks_file`: cannot use `"),
        (
            json!({"jwt_issuer": ISSUER, "jwt_audience": "a", "jwks_url": "http://issuer.example/"}),
            "`jwks_url`: expected a URL",
        ),
    ] {
        let exit = ServerBuilder::new(Folder::iris().settings(&settings)).run();
        assert_eq!(exit.code, Some(1), "{exit:?}");
        assert!(exit.stderr.contains(expected), "{}", exit.stderr);
    }
}
