//! Certificates that tests make, and the commands that connect with them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use chrono::Datelike;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// An authority, and the folder for its files.
pub(super) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: tempfile::TempDir,
}

/// When a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Validity {
    Now,
    Expired,
    /// It ends in a week.
    Soon,
    Future,
}

impl Authority {
    /// Creates an authority, whose certificate is `ca.pem`.
    pub(super) fn new() -> Self {
        // Its name is its own, so that clients of other authorities do not try its key.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let mut parameters = CertificateParams::default();
        let name = format!("authority {}", NUMBER.fetch_add(1, Ordering::Relaxed));
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Writes `NAME.pem` and `NAME.key` for a server on `localhost` and 127.0.0.1.
    pub(super) fn server(&self, name: &str) {
        self.issue(name, name, &["localhost", "127.0.0.1"], Validity::Now);
    }

    /// Writes `NAME.pem` and `NAME.key` for a client with a common name.
    pub(super) fn client(&self, name: &str, common_name: &str) {
        self.issue(name, common_name, &[], Validity::Now);
    }

    /// Writes the certificate `FILE.pem` and its key `FILE.key`.
    pub(super) fn issue(&self, file: &str, common_name: &str, names: &[&str], validity: Validity) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(DnType::CommonName, common_name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let (begin, end) = match validity {
            Validity::Now | Validity::Soon => (2020, 2090),
            Validity::Expired => (2019, 2020),
            Validity::Future => (2089, 2090),
        };
        parameters.not_before = date_time_ymd(begin, 1, 1);
        parameters.not_after = match validity {
            Validity::Soon => {
                let end =
                    chrono::DateTime::<chrono::Utc>::from(std::time::SystemTime::now()) + chrono::Duration::days(7);
                date_time_ymd(end.year(), u8::try_from(end.month()).unwrap(), u8::try_from(end.day()).unwrap())
            }
            _ => date_time_ymd(end, 1, 1),
        };
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        fs::write(self.path(&format!("{file}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{file}.key")), key.serialize_pem()).unwrap();
    }

    /// Requests a path of a server on `localhost` with curl, and returns the status and the body, or the error.
    pub(super) fn curl(&self, address: SocketAddr, path: &str, options: &[&str]) -> Result<(u16, String), String> {
        let url = format!("https://localhost:{}{path}", address.port());
        curl(&[&["--cacert", &self.text("ca.pem")], options, &[&url]].concat())
    }
}

/// Runs curl, and returns the status and the body, or the error.
pub(super) fn curl(options: &[&str]) -> Result<(u16, String), String> {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error", "--max-time", "30", "--write-out", "\n%{http_code}"]).args(options);
    let output = command.env("NO_PROXY", "*").output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let (body, status) = text.rsplit_once('\n').unwrap();
    Ok((status.parse().unwrap(), body.to_owned()))
}

/// Makes a handshake with `openssl s_client`, and returns its output.
pub(super) fn s_client(address: SocketAddr, ca: &Path, options: &[&str]) -> Output {
    let mut command = Command::new("openssl");
    command.args(["s_client", "-connect", &address.to_string(), "-verify_return_error", "-CAfile"]).arg(ca);
    command.args(options).stdin(Stdio::null()).output().unwrap()
}
