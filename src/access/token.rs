//! Tokens of an `OpenID` Connect issuer: JSON Web Tokens (RFC 7519) with a signature of one of three algorithms.
//!
//! The algorithm belongs to the key, not to the token: a token names one, and only keys of that kind are tried. So neither `none`
//! nor a MAC with a public key as its secret can pass. Of a token's header, only `alg`, `kid` and `crit` are read: keys that a
//! token brings along, or points to, are ignored.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::{Scope, ScopeSet};
use crate::types::text::{self, is_deceptive};

/// The most keys of an issuer.
const MAX_KEYS: usize = 100;
/// How far the clocks of the issuer and the server may differ, in seconds.
const SKEW: i64 = 60;
/// The longest name of a sender, in bytes.
const MAX_SUBJECT: usize = 256;

/// What tokens must contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRules {
    pub issuer: String,
    pub audience: String,
    /// The claim with the scopes.
    pub scope_claim: String,
}

/// Why a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("it is not a JSON Web Token")]
    Malformed,
    #[error("its algorithm is not RS256, ES256 or EdDSA")]
    Algorithm,
    #[error("it has critical extensions, which are not supported")]
    Critical,
    #[error("the issuer has no such key")]
    UnknownKey,
    #[error("its signature is invalid")]
    Signature,
    #[error("it is from another issuer")]
    Issuer,
    #[error("it is for another audience")]
    Audience,
    #[error("it has no valid `exp`")]
    NoExpiry,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    TooEarly,
    #[error("it has no valid `sub`")]
    Subject,
}

/// What a valid token says.
#[derive(Debug, PartialEq, Eq)]
pub struct TokenClaims {
    pub subject: String,
    pub scopes: ScopeSet,
    /// When the token expires, in seconds since 1970.
    pub expires: i64,
}

/// The public keys of an issuer (RFC 7517).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TokenKeySet(Vec<TokenKey>);

#[derive(Debug, PartialEq, Eq)]
struct TokenKey {
    id: Option<String>,
    key: PublicKey,
}

#[derive(Debug, PartialEq, Eq)]
enum PublicKey {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// An uncompressed point.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct JwkSet<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

/// The members of a key that are read. Private ones are never needed.
#[derive(Deserialize)]
struct Jwk {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    #[serde(default)]
    crit: Option<serde::de::IgnoredAny>,
}

impl TokenKeySet {
    /// Reads a set of keys. Keys for other purposes or of other kinds are ignored.
    ///
    /// # Errors
    ///
    /// Fails if the text is not a set of keys, or has none that can be used.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let text = text::without_mark(text).map_err(|error| error.to_string())?;
        let set: JwkSet<'_> =
            serde_json::from_slice(text).map_err(|error| format!("it is not a JSON Web Key Set: {error}"))?;
        if set.keys.len() > MAX_KEYS {
            return Err(format!("it has more than {MAX_KEYS} keys"));
        }
        let keys: Vec<_> = set.keys.iter().filter_map(|key| TokenKey::parse(key.get())).collect();
        if keys.is_empty() { Err("it has no keys for RS256, ES256 or EdDSA".to_owned()) } else { Ok(Self(keys)) }
    }

    /// Finds the key of a token: that with its id, or else the only one for its algorithm.
    fn find(&self, algorithm: &str, id: Option<&str>) -> Result<&PublicKey, TokenError> {
        let of_algorithm = self.0.iter().filter(|key| key.key.algorithm() == algorithm);
        let mut found = of_algorithm.filter(|key| id.is_none() || key.id.as_deref() == id);
        match (found.next(), found.next()) {
            (Some(key), None) => Ok(&key.key),
            _ => Err(TokenError::UnknownKey),
        }
    }
}

impl TokenKey {
    fn parse(text: &str) -> Option<Self> {
        let jwk: Jwk = serde_json::from_str(text).ok()?;
        let decode = |text: Option<String>| URL_SAFE_NO_PAD.decode(text?).ok();
        let key = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            // Some issuers write the octet in front that the sign of an integer needs in DER.
            ("RSA", _) => PublicKey::Rsa { n: without_zeros(decode(jwk.n)?), e: without_zeros(decode(jwk.e)?) },
            ("EC", Some("P-256")) => {
                let (x, y) = (decode(jwk.x)?, decode(jwk.y)?);
                let is_point = x.len() == 32 && y.len() == 32;
                PublicKey::P256(is_point.then(|| [&[4], &x[..], &y[..]].concat())?)
            }
            ("OKP", Some("Ed25519")) => PublicKey::Ed25519(decode(jwk.x).filter(|x| x.len() == 32)?),
            _ => return None,
        };
        let signs = jwk.usage.is_none_or(|usage| usage == "sig") && jwk.alg.is_none_or(|alg| alg == key.algorithm());
        signs.then_some(Self { id: jwk.kid, key })
    }
}

fn without_zeros(mut number: Vec<u8>) -> Vec<u8> {
    number.drain(..number.iter().take_while(|&&byte| byte == 0).count());
    number
}

impl PublicKey {
    const fn algorithm(&self) -> &'static str {
        match self {
            Self::Rsa { .. } => "RS256",
            Self::P256(_) => "ES256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    fn verify(&self, message: &[u8], signature: &[u8]) -> Result<(), TokenError> {
        let verified = match self {
            Self::Rsa { n, e } => {
                RsaPublicKeyComponents { n, e }.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
            }
            Self::P256(point) => UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature),
            Self::Ed25519(key) => UnparsedPublicKey::new(&ED25519, key).verify(message, signature),
        };
        verified.map_err(|_| TokenError::Signature)
    }
}

/// Reports whether credentials have the form of a token.
pub(super) fn is_token(presented: &[u8]) -> bool {
    presented.split(|&byte| byte == b'.').count() == 3
}

/// Verifies a token at a time, in seconds since 1970.
///
/// # Errors
///
/// Fails if the token does not follow the rules, or no key has signed it.
pub fn verify_token(token: &[u8], keys: &TokenKeySet, rules: &TokenRules, now: i64) -> Result<TokenClaims, TokenError> {
    let text = std::str::from_utf8(token).map_err(|_| TokenError::Malformed)?;
    let (signed, signature) = text.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, payload) = signed.split_once('.').ok_or(TokenError::Malformed)?;
    let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed);
    let header: TokenHeader = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::Malformed)?;
    if !["RS256", "ES256", "EdDSA"].contains(&header.alg.as_str()) {
        return Err(TokenError::Algorithm);
    }
    if header.crit.is_some() {
        return Err(TokenError::Critical);
    }
    keys.find(&header.alg, header.kid.as_deref())?.verify(signed.as_bytes(), &decode(signature)?)?;
    let claims: Map<String, Value> = serde_json::from_slice(&decode(payload)?).map_err(|_| TokenError::Malformed)?;
    read_claims(&claims, rules, now)
}

fn read_claims(claims: &Map<String, Value>, rules: &TokenRules, now: i64) -> Result<TokenClaims, TokenError> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(&rules.issuer) {
        return Err(TokenError::Issuer);
    }
    let is_audience = |value: &Value| value.as_str() == Some(&rules.audience);
    let for_us = match claims.get("aud") {
        Some(Value::Array(audiences)) => audiences.iter().any(is_audience),
        Some(audience) => is_audience(audience),
        None => false,
    };
    if !for_us {
        return Err(TokenError::Audience);
    }
    let expires = claims.get("exp").and_then(seconds).ok_or(TokenError::NoExpiry)?.saturating_add(SKEW);
    if now >= expires {
        return Err(TokenError::Expired);
    }
    if let Some(begin) = claims.get("nbf")
        && seconds(begin).is_none_or(|begin| now < begin.saturating_sub(SKEW))
    {
        return Err(TokenError::TooEarly);
    }
    let is_name =
        |subject: &&str| !subject.is_empty() && subject.len() <= MAX_SUBJECT && !subject.chars().any(is_deceptive);
    let subject = text("sub").filter(is_name).ok_or(TokenError::Subject)?.to_owned();
    let scopes = match claims.get(&rules.scope_claim) {
        Some(Value::String(scopes)) => scopes.split(' ').filter_map(Scope::find).collect(),
        Some(Value::Array(scopes)) => scopes.iter().filter_map(|scope| Scope::find(scope.as_str()?)).collect(),
        _ => ScopeSet::default(),
    };
    Ok(TokenClaims { subject, scopes, expires })
}

/// Reads a time, which may have a fraction.
fn seconds(value: &Value) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    value.as_i64().or_else(|| value.as_f64().map(|seconds| seconds.floor() as i64))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
    use serde_json::json;

    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn base64(bytes: impl AsRef<[u8]>) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    fn rules() -> TokenRules {
        let text = str::to_owned;
        TokenRules { issuer: text("https://issuer"), audience: text("mlserver"), scope_claim: text("scope") }
    }

    fn claims() -> Value {
        json!({"iss": "https://issuer", "aud": "mlserver", "sub": "alice", "exp": NOW + 100, "scope": "openid infer read"})
    }

    fn ed25519() -> Ed25519KeyPair {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap()
    }

    fn set_of(key: &Ed25519KeyPair) -> TokenKeySet {
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "kid": "ed", "x": base64(key.public_key())});
        TokenKeySet::parse(json!({ "keys": [jwk] }).to_string().as_bytes()).unwrap()
    }

    fn sign(key: &Ed25519KeyPair, header: &Value, claims: &Value) -> String {
        let signed = format!("{}.{}", base64(header.to_string()), base64(claims.to_string()));
        format!("{signed}.{}", base64(key.sign(signed.as_bytes())))
    }

    fn check(token: &str, keys: &TokenKeySet) -> Result<TokenClaims, TokenError> {
        verify_token(token.as_bytes(), keys, &rules(), NOW)
    }

    #[test]
    fn token_signatures_of_all_algorithms_are_verified() {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let ec = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random).unwrap();
        let point = ec.public_key().as_ref();
        let ed = ed25519();
        let keys = json!({"keys": [
            {"kty": "EC", "crv": "P-256", "kid": "ec", "use": "sig", "x": base64(&point[1..33]), "y": base64(&point[33..])},
            {"kty": "OKP", "crv": "Ed25519", "kid": "ed", "alg": "EdDSA", "x": base64(ed.public_key())},
            {"kty": "EC", "crv": "P-384", "kid": "ignored", "x": "", "y": ""},
            {"kty": "oct", "k": "secret"},
            {"kty": "OKP", "crv": "Ed25519", "kid": "encrypts", "use": "enc", "x": base64(ed.public_key())},
        ]});
        let keys = TokenKeySet::parse(keys.to_string().as_bytes()).unwrap();
        assert_eq!(keys.0.len(), 2);
        let signed =
            format!("{}.{}", base64(json!({"alg": "ES256", "kid": "ec"}).to_string()), base64(claims().to_string()));
        let signature = ec.sign(&random, signed.as_bytes()).unwrap();
        let found = check(&format!("{signed}.{}", base64(signature.as_ref())), &keys).unwrap();
        assert_eq!(found.subject, "alice");
        assert!(found.scopes.contains(Scope::Infer) && found.scopes.contains(Scope::Read));
        assert!(!found.scopes.contains(Scope::Admin) && !found.scopes.contains(Scope::Open));
        assert_eq!(found.expires, NOW + 160);
        assert!(check(&sign(&ed, &json!({"alg": "EdDSA", "kid": "ed"}), &claims()), &keys).is_ok());
        assert!(check(&sign(&ed, &json!({"alg": "EdDSA"}), &claims()), &keys).is_ok(), "the only key of the algorithm");
    }

    #[test]
    fn token_rs256_of_a_real_issuer_is_verified() {
        // The example of RFC 7515, section A.2, whose claims have no audience.
        let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
        let keys = json!({"keys": [{"kty": "RSA", "n": n, "e": "AQAB"}]});
        let keys = TokenKeySet::parse(keys.to_string().as_bytes()).unwrap();
        let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
        assert_eq!(check(token, &keys), Err(TokenError::Issuer), "the signature is right");
        // As issuers write it that encode the integer of DER.
        let padded = [&[0, 0], &URL_SAFE_NO_PAD.decode(n).unwrap()[..]].concat();
        let padded = json!({"keys": [{"kty": "RSA", "n": base64(padded), "e": "AAEAAQ"}]});
        let padded = TokenKeySet::parse(padded.to_string().as_bytes()).unwrap();
        assert_eq!(check(token, &padded), Err(TokenError::Issuer), "the signature is right");
        let changed = token.replace("eyJpc3MiOiJqb2Ui", "eyJpc3MiOiJqb2Uj");
        assert_eq!(check(&changed, &keys), Err(TokenError::Signature));
    }

    #[test]
    fn token_with_another_algorithm_or_key_is_refused() {
        let key = ed25519();
        let keys = set_of(&key);
        let with = |header: Value| check(&sign(&key, &header, &claims()), &keys);
        assert!(
            with(json!({"alg": "EdDSA", "kid": "ed", "jku": "http://evil", "jwk": {}, "x5u": "http://evil"})).is_ok()
        );
        for alg in ["none", "None", "HS256", "RS384", "ES384", "PS256", ""] {
            assert_eq!(with(json!({"alg": alg, "kid": "ed"})), Err(TokenError::Algorithm), "{alg}");
        }
        for alg in ["RS256", "ES256"] {
            assert_eq!(with(json!({"alg": alg, "kid": "ed"})), Err(TokenError::UnknownKey), "{alg}");
        }
        assert_eq!(with(json!({"alg": "EdDSA", "kid": "other"})), Err(TokenError::UnknownKey));
        assert_eq!(with(json!({"alg": "EdDSA", "kid": "ed", "crit": ["exp"]})), Err(TokenError::Critical));
        assert_eq!(with(json!({"kid": "ed"})), Err(TokenError::Malformed));
        let other = ed25519();
        let forged = sign(&other, &json!({"alg": "EdDSA", "kid": "ed"}), &claims());
        assert_eq!(check(&forged, &keys), Err(TokenError::Signature));
        // Another key of the token's choice does not count.
        let own = json!({"alg": "EdDSA", "jwk": {"kty": "OKP", "crv": "Ed25519", "x": base64(other.public_key())}});
        assert_eq!(check(&sign(&other, &own, &claims()), &keys), Err(TokenError::Signature));
        let none = format!("{}.{}.", base64(json!({"alg": "none"}).to_string()), base64(claims().to_string()));
        assert_eq!(check(&none, &keys), Err(TokenError::Algorithm));
    }

    #[test]
    fn token_claims_are_checked() {
        let key = ed25519();
        let keys = set_of(&key);
        let with = |name: &str, value: Value| {
            let mut claims = claims();
            claims[name] = value;
            check(&sign(&key, &json!({"alg": "EdDSA", "kid": "ed"}), &claims), &keys)
        };
        for (name, value, expected) in [
            ("iss", json!("https://issuer/"), TokenError::Issuer),
            ("iss", json!(null), TokenError::Issuer),
            ("aud", json!("other"), TokenError::Audience),
            ("aud", json!(["other"]), TokenError::Audience),
            ("aud", json!(null), TokenError::Audience),
            ("exp", json!(null), TokenError::NoExpiry),
            ("exp", json!("never"), TokenError::NoExpiry),
            ("exp", json!(NOW - 60), TokenError::Expired),
            ("nbf", json!(NOW + 61), TokenError::TooEarly),
            ("nbf", json!("soon"), TokenError::TooEarly),
            ("sub", json!(null), TokenError::Subject),
            ("sub", json!(""), TokenError::Subject),
            ("sub", json!("a\nb"), TokenError::Subject),
            ("sub", json!("a\u{202e}b"), TokenError::Subject),
            ("sub", json!("a\u{2066}b"), TokenError::Subject),
        ] {
            assert_eq!(with(name, value.clone()), Err(expected), "{name}: {value}");
        }
        for (name, value) in [
            ("aud", json!(["other", "mlserver"])),
            ("exp", json!(NOW - 59)),
            ("exp", json!(1e300)),
            ("exp", json!(i64::MAX)),
            ("nbf", json!(NOW + 60)),
        ] {
            assert!(with(name, value.clone()).is_ok(), "{name}: {value}");
        }
        assert!(with("scope", json!(["admin", 1, "other"])).unwrap().scopes.contains(Scope::Admin));
        assert_eq!(with("scope", json!({})).unwrap().scopes, ScopeSet::default());
    }

    #[test]
    fn token_key_sets_without_usable_keys_are_rejected() {
        for bad in ["", "[]", "{}", r#"{"keys": []}"#, r#"{"keys": [{"kty": "oct", "k": "a"}, 1]}"#] {
            assert!(TokenKeySet::parse(bad.as_bytes()).is_err(), "{bad}");
        }
        let many = json!({"keys": vec![json!({"kty": "RSA", "n": "AQ", "e": "AQ"}); MAX_KEYS + 1]});
        assert!(TokenKeySet::parse(many.to_string().as_bytes()).unwrap_err().contains("more than 100"));
        // A short RSA key is refused when it is used.
        let short = json!({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]});
        let keys = TokenKeySet::parse(short.to_string().as_bytes()).unwrap();
        let token = format!("{}.{}.AAAA", base64(r#"{"alg": "RS256"}"#), base64("{}"));
        assert_eq!(check(&token, &keys), Err(TokenError::Signature));
    }

    proptest! {
        #[test]
        fn token_of_any_bytes_is_refused(token in proptest::collection::vec(any::<u8>(), 0..200), dots in any::<bool>()) {
            let keys = set_of(&ed25519());
            let token = if dots { [&token[..], b".e30.", &token[..]].concat() } else { token };
            prop_assert!(verify_token(&token, &keys, &rules(), NOW).is_err());
        }
    }
}
