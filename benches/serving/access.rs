//! Times the check of a request's key, among 1 key and among 10,000, in one process.
//!
//! Usage: `cargo run --profile dist --example access [ROUNDS]`. A round checks 1,000 requests.
#![expect(clippy::print_stdout, reason = "the report goes to standard output")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures_util::FutureExt;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};
use mlserver::access::{Access, AccessFiles, AccessMetrics, AccessRequest, KeyHash, Scope};
use mlserver::settings::{AccessSettings, TlsSettings};
use serde_json::{Value, json};

/// As in the executable.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The requests of a round, which have different keys if there are as many.
const REQUESTS: usize = 1000;
const MODEL: &str = "iris-xgboost";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).map_or(Ok(200), |rounds| rounds.parse()).context("ROUNDS")?;
    println!("| keys | median ns a request | shortest |\n|---:|---:|---:|");
    for keys in [1, 10_000] {
        let access = access(keys)?;
        let requests: Vec<HeaderMap> =
            (0..REQUESTS).map(|index| headers(index * 7919 % keys)).collect::<Result<_>>()?;
        let mut times: Vec<Duration> = (0..rounds).map(|_| round(&access, &requests)).collect::<Result<_>>()?;
        times.sort_unstable();
        let (median, shortest) = (times[times.len() / 2].as_nanos(), times[0].as_nanos());
        let requests = REQUESTS as u128;
        println!("| {keys} | {} | {} |", median / requests, shortest / requests);
    }
    Ok(())
}

/// Returns a key as long as those of `mlserver keys create`.
fn key(index: usize) -> String {
    format!("mls_{index:043}")
}

fn headers(index: usize) -> Result<HeaderMap> {
    Ok(HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::try_from(format!("Bearer {}", key(index)))?)]))
}

/// Sets up access control with a file of so many keys.
fn access(keys: usize) -> Result<Access> {
    let folder = tempfile::tempdir()?;
    let entry = |index: usize| {
        let hash = KeyHash::of(key(index).as_bytes()).to_string();
        json!({"name": format!("key-{index}"), "hash": hash, "scopes": ["infer"], "models": ["iris-*"]})
    };
    let entries: Value = (0..keys).map(entry).collect();
    std::fs::write(folder.path().join("keys.json"), entries.to_string())?;
    let settings = AccessSettings { api_keys_file: Some("keys.json".into()), ..AccessSettings::default() };
    let files = AccessFiles::new(&settings, &TlsSettings::default(), folder.path())?.context("keys are on")?;
    Ok(files.start(AccessMetrics::default())?)
}

/// Returns what access control sees of a prediction.
const fn request(headers: &HeaderMap) -> AccessRequest<'_> {
    AccessRequest { headers, certificate: &[], scope: Scope::Infer, model: MODEL, path: "/", address: None }
}

/// Times the checks of all requests.
fn round(access: &Access, requests: &[HeaderMap]) -> Result<Duration> {
    let began = Instant::now();
    for headers in requests {
        let decided = access.authorize(request(black_box(headers)), || ()).now_or_never();
        let grant = decided.context("only tokens wait")??.context("keys are on")?;
        black_box(grant);
    }
    Ok(began.elapsed())
}
