//! Tokens: any credentials and any set of keys are accepted or refused. The input is a token; a set of keys; and the header and the
//! claims of a token, a line each, which a key of the issuer signs.
#![no_main]

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use mlserver::access::{Scope, TokenKeySet, TokenRules, verify_token};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde_json::json;

const NOW: i64 = 1_800_000_000;

static KEY: LazyLock<Ed25519KeyPair> = LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).expect("a seed"));

static KEYS: LazyLock<TokenKeySet> = LazyLock::new(|| {
    let key = json!({"kty": "OKP", "crv": "Ed25519", "x": URL_SAFE_NO_PAD.encode(KEY.public_key())});
    TokenKeySet::parse(json!({"keys": [key]}).to_string().as_bytes()).expect("a key")
});

static RULES: LazyLock<TokenRules> = LazyLock::new(|| TokenRules {
    issuer: "https://issuer.example".to_owned(),
    audience: "mlserver".to_owned(),
    scope_claim: "scope".to_owned(),
});

fuzz_target!(|bytes: &[u8]| {
    assert!(verify_token(bytes, &KEYS, &RULES, NOW).is_err(), "nothing but the key signs");
    if let Ok(keys) = TokenKeySet::parse(bytes) {
        let token = format!("{}.{}.AAAA", URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256"}"#), URL_SAFE_NO_PAD.encode("{}"));
        assert!(verify_token(token.as_bytes(), &keys, &RULES, NOW).is_err());
    }
    let mut lines = bytes.splitn(2, |&byte| byte == b'\n');
    let (header, claims) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(KEY.sign(signed.as_bytes())));
    if let Ok(claims) = verify_token(token.as_bytes(), &KEYS, &RULES, NOW) {
        assert!(claims.expires > NOW && (1..=256).contains(&claims.subject.len()));
        assert!(!claims.scopes.contains(Scope::Open));
    }
});
