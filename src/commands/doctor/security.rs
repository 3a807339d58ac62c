//! What is wrong with TLS and access control.

use std::fmt::Display;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::SystemTime;

use chrono::{DateTime, Utc};
use rustls::pki_types::CertificateDer;

use super::findings::Findings;
use crate::access::AccessFiles;
use crate::reload::SettingFile;
use crate::server::ForwardedHeaders;
use crate::settings::Settings;
use crate::tls::{CertificateInfo, TlsFiles};

/// Certificates and keys are reported when they have less time left, in seconds: two weeks.
const SOON: i64 = 14 * 24 * 3600;
/// The most expired keys that are named.
const MAX_NAMED: usize = 5;

/// Examines the settings of TLS and access control. Files are relative to a folder.
pub(super) fn examine(settings: &Settings, folder: &Path, findings: &mut Findings) {
    let problem = |findings: &mut Findings, error: &dyn Display| findings.problem(format_args!("settings: {error}"));
    match TlsFiles::new(&settings.tls, folder) {
        Err(error) => problem(findings, &error),
        Ok(None) => {}
        Ok(Some(files)) => {
            if let Err(error) = files.check() {
                problem(findings, &error);
            } else {
                certificate(&files, settings, findings);
                check_mode(&files.key, findings);
            }
        }
    }
    match AccessFiles::new(&settings.access, &settings.tls, folder) {
        Err(error) => problem(findings, &error),
        Ok(None) => {}
        Ok(Some(files)) => keys(&files, findings),
    }
    if let Err(error) = ForwardedHeaders::of(&settings.access, &settings.tls) {
        problem(findings, &error);
    }
}

/// Examines the server's own certificate.
fn certificate(files: &TlsFiles, settings: &Settings, findings: &mut Findings) {
    let shown = files.certificate.path.display();
    let chain = files.chain().unwrap_or_default();
    let Some(info) = chain.first().and_then(|own| CertificateInfo::read(own).ok()) else { return };
    let now = DateTime::<Utc>::from(SystemTime::now()).timestamp();
    for (index, other) in chain.iter().enumerate().skip(1) {
        validity(&format!("certificate {} in `{shown}`", index + 1), other, now, findings);
    }
    if let Some(file) = &files.client_ca {
        let shown = file.path.display();
        for authority in files.client_authorities().unwrap_or_default() {
            validity(&format!("the authority of clients in `{shown}`"), &authority, now, findings);
        }
    }
    let end = date(info.not_after);
    if let Some(problem) = info.problem_at(now) {
        let begin = date(info.not_before);
        findings.warning(format_args!(
            "the certificate in `{shown}` {problem}: it is valid from {begin} to {end}, and clients reject it"
        ));
    } else if info.not_after - now < SOON {
        findings.warning(format_args!("the certificate in `{shown}` expires soon, on {end}"));
    } else {
        let names: Vec<&str> = info.hosts().collect();
        findings.ok(format_args!("TLS with the certificate in `{shown}` for {}, until {end}", list(&names)));
    }
    if info.hosts().next().is_none() {
        findings.warning(format_args!(
            "the certificate in `{shown}` has no DNS names and no IP addresses (subjectAltName): clients reject it"
        ));
    } else if let Some(host) = named_host(settings)
        && !info.is_for(host)
    {
        findings.warning(format_args!(
            "the certificate in `{shown}` is not for `{host}`, the setting `host`: clients that connect to it reject it"
        ));
    }
}

/// Warns if a certificate is not valid, or will not be soon.
fn validity(what: &str, certificate: &CertificateDer<'_>, now: i64, findings: &mut Findings) {
    let Ok(info) = CertificateInfo::read(certificate) else { return };
    let (begin, end) = (date(info.not_before), date(info.not_after));
    if let Some(problem) = info.problem_at(now) {
        findings.warning(format_args!("{what} {problem}: it is valid from {begin} to {end}"));
    } else if info.not_after - now < SOON {
        findings.warning(format_args!("{what} expires soon, on {end}"));
    }
}

/// Returns the address that clients connect to, if the settings name one.
fn named_host(settings: &Settings) -> Option<&str> {
    let host = settings.host.trim_start_matches('[').trim_end_matches(']');
    (!["0.0.0.0", "::", ""].contains(&host)).then_some(host)
}

fn keys(files: &AccessFiles, findings: &mut Findings) {
    let Some(file) = files.key_file() else { return };
    let keys = match files.read_keys() {
        Ok(keys) => keys.unwrap_or_default(),
        Err(error) => return findings.problem(format_args!("settings: {error}")),
    };
    check_mode(file, findings);
    let shown = file.path.display();
    let now = DateTime::<Utc>::from(SystemTime::now()).timestamp();
    if keys.0.is_empty() {
        findings.warning(format_args!(
            "`{shown}` has no keys, so the server rejects all requests: `mlserver keys create` adds a key"
        ));
    } else {
        findings.ok(format_args!("{} API keys in `{shown}`", keys.0.len()));
    }
    let mut warn_of = |what: &str, from: i64, until: i64| {
        let found = keys.0.iter().filter(|key| key.expires_at().is_some_and(|time| from < time && time <= until));
        let found: Vec<&str> = found.map(|key| key.name.as_str()).collect();
        if !found.is_empty() {
            let more = found.len().saturating_sub(MAX_NAMED);
            let more = if more > 0 { format!(" and {more} others") } else { String::new() };
            let named = list(&found[..found.len().min(MAX_NAMED)]);
            findings.warning(format_args!("{what} in `{shown}`: {named}{more}"));
        }
    };
    warn_of("expired keys", i64::MIN, now);
    warn_of("keys that expire within 14 days", now, now + SOON);
}

/// Warns if everybody on the machine may read a file with secrets.
fn check_mode(file: &SettingFile, findings: &mut Findings) {
    let Ok(metadata) = file.path.metadata() else { return };
    if metadata.permissions().mode() & 0o004 != 0 {
        let shown = file.path.display();
        findings.warning(format_args!("every user of this machine can read `{shown}`: run `chmod 600` on it"));
    }
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

/// Formats a time, in seconds since 1970.
fn date(seconds: i64) -> String {
    DateTime::from_timestamp(seconds, 0)
        .map_or_else(|| "an unknown date".to_owned(), |time| time.format("%Y-%m-%d").to_string())
}
