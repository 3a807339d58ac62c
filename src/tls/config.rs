//! The configuration of TLS, from PEM files that may change.

use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use tracing::warn;

use super::certificate::CertificateInfo;
use crate::reload::{self, SettingFile, SettingFileError};
use crate::settings::{TlsSettings, TlsVersion};

/// The most bytes of a PEM file: a bundle of all public authorities has a quarter of it.
const MAX_PEM: u64 = 1 << 20;

/// The protocols that ALPN offers.
const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why the settings of TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("`{missing}` is not set: `{setting}` needs it")]
    Missing { missing: &'static str, setting: &'static str },
    #[error(transparent)]
    File(#[from] SettingFileError),
}

/// The files of the server's TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub certificate: SettingFile,
    pub key: SettingFile,
    /// The authorities of client certificates. Without them, clients have no certificates.
    pub client_ca: Option<SettingFile>,
    pub min_version: TlsVersion,
}

/// The current configuration of TLS, which changes with its files. Clones share it.
#[derive(Debug, Clone)]
pub struct ServerTls(Arc<ArcSwap<ServerConfig>>);

impl TlsFiles {
    /// Takes the files of the settings, which are relative to a folder. `None` if the server does not use TLS.
    ///
    /// # Errors
    ///
    /// Fails if a setting needs another one that is missing.
    pub fn new(settings: &TlsSettings, folder: &Path) -> Result<Option<Self>, TlsError> {
        let file = |setting, path: &Path| SettingFile::new(setting, folder, path, MAX_PEM);
        let missing = |missing, setting| Err(TlsError::Missing { missing, setting });
        let (certificate, key) = match (&settings.certificate, &settings.key) {
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) => return missing("tls_key", "tls_certificate"),
            (None, Some(_)) => return missing("tls_certificate", "tls_key"),
            (None, None) if settings.client_ca.is_some() => return missing("tls_certificate", "tls_client_ca"),
            (None, None) if settings.metrics => return missing("tls_certificate", "tls_metrics"),
            (None, None) => return Ok(None),
        };
        Ok(Some(Self {
            certificate: file("tls_certificate", certificate),
            key: file("tls_key", key),
            client_ca: settings.client_ca.as_deref().map(|path| file("tls_client_ca", path)),
            min_version: settings.min_version,
        }))
    }

    fn all(&self) -> Vec<SettingFile> {
        [&self.certificate, &self.key].into_iter().chain(&self.client_ca).cloned().collect()
    }

    /// Reads the certificates of the server, its own first.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or has no certificates.
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, SettingFileError> {
        certificates(&self.certificate, &self.certificate.read()?)
    }

    /// Reads the authorities of client certificates; none if clients need no certificate.
    ///
    /// # Errors
    ///
    /// Fails if the file cannot be read, or has no certificates.
    pub fn client_authorities(&self) -> Result<Vec<CertificateDer<'static>>, SettingFileError> {
        self.client_ca.as_ref().map_or(Ok(Vec::new()), |file| certificates(file, &file.read()?))
    }

    /// Reads the files, and checks that they belong together.
    ///
    /// # Errors
    ///
    /// Fails if one of them is missing or invalid.
    pub fn check(&self) -> Result<(), SettingFileError> {
        self.configure(&reload::read_all(&self.all())?).map(drop)
    }

    /// Creates the configuration from the contents of [`TlsFiles::all`].
    fn configure(&self, contents: &[Vec<u8>]) -> Result<ServerConfig, SettingFileError> {
        let content = |index: usize| contents.get(index).map(Vec::as_slice).unwrap_or_default();
        let chain = certificates(&self.certificate, content(0))?;
        let key = private_key(&self.key, content(1))?;
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder
            .with_protocol_versions(versions(self.min_version))
            .expect("the provider has cipher suites of both versions");
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(file) => builder.with_client_cert_verifier(client_verifier(file, content(2), provider)?),
        };
        let mut config = builder.with_single_cert(chain, key).map_err(|error| match error {
            rustls::Error::InconsistentKeys(_) => {
                self.key.error(&format!("it is not the key of the certificate `{}`", self.certificate.path.display()))
            }
            rustls::Error::InvalidCertificate(_) => self.certificate.error(&error),
            error => self.key.error(&error),
        })?;
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        Ok(config)
    }
}

impl ServerTls {
    /// Reads the files, and reads them again when they change.
    ///
    /// # Errors
    ///
    /// Fails if one of them is missing or invalid.
    pub fn start(files: TlsFiles) -> Result<Self, SettingFileError> {
        let contents = reload::read_all(&files.all())?;
        let shared = Arc::new(ArcSwap::from_pointee(files.configure(&contents)?));
        warn_if_invalid(&files.certificate, &contents);
        let of_watch = Arc::clone(&shared);
        reload::watch(files.all(), &contents, move |contents| {
            of_watch.store(Arc::new(files.configure(contents)?));
            warn_if_invalid(&files.certificate, contents);
            Ok(())
        });
        Ok(Self(shared))
    }

    /// Returns the configuration for a new connection.
    pub fn current(&self) -> Arc<ServerConfig> {
        self.0.load_full()
    }
}

/// Warns if clients will not accept the server's certificate because of the date.
fn warn_if_invalid(file: &SettingFile, contents: &[Vec<u8>]) {
    let own = contents.first().and_then(|content| CertificateDer::from_pem_slice(content).ok());
    let info = own.and_then(|own| CertificateInfo::read(&own).ok());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    if let Some(problem) = info.and_then(|info| info.problem_at(now)) {
        warn!("`{}`: the certificate in `{}` {problem}. Clients will reject it.", file.setting, file.path.display());
    }
}

/// Both versions of TLS, the newer one first.
static VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];

fn versions(least: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    match least {
        TlsVersion::V1_2 => &VERSIONS,
        TlsVersion::V1_3 => &VERSIONS[..1],
    }
}

fn certificates(file: &SettingFile, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, SettingFileError> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = read.map_err(|error| file.error(&format!("it is not valid PEM: {error}")))?;
    if found.is_empty() {
        return Err(file.error("it has no PEM certificates"));
    }
    for certificate in &found {
        CertificateInfo::read(certificate).map_err(|error| file.error(&error))?;
    }
    Ok(found)
}

fn private_key(file: &SettingFile, pem: &[u8]) -> Result<PrivateKeyDer<'static>, SettingFileError> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        let is_encrypted = pem.windows(9).any(|part| part == b"ENCRYPTED");
        file.error(if is_encrypted {
            "it is encrypted; decrypt it, for example with `openssl pkey`"
        } else {
            "it has no PEM private key"
        })
    })
}

fn client_verifier(
    file: &SettingFile,
    pem: &[u8],
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, SettingFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(file, pem)? {
        roots.add(certificate).map_err(|error| file.error(&error))?;
    }
    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().map_err(|error| file.error(&error))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A folder with `certificate.pem`, `key.pem`, and `other.pem`, the key of another certificate.
    fn folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let (key, other) = (rcgen::KeyPair::generate().unwrap(), rcgen::KeyPair::generate().unwrap());
        let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let write = |name: &str, text: String| fs::write(folder.path().join(name), text).unwrap();
        write("certificate.pem", parameters.self_signed(&key).unwrap().pem());
        write("key.pem", key.serialize_pem());
        write("other.pem", other.serialize_pem());
        write(
            "encrypted.pem",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n".into(),
        );
        write("damaged.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into());
        write("empty.pem", String::new());
        folder
    }

    #[test]
    fn tls_settings_that_need_others_are_rejected() {
        let refused = |settings: TlsSettings, expected: &str| {
            assert_eq!(TlsFiles::new(&settings, Path::new("/")).unwrap_err().to_string(), expected);
        };
        let (preset, pem) = (TlsSettings::default, || Some("a.pem".into()));
        assert!(TlsFiles::new(&preset(), Path::new("/")).unwrap().is_none());
        refused(TlsSettings { certificate: pem(), ..preset() }, "`tls_key` is not set: `tls_certificate` needs it");
        refused(TlsSettings { key: pem(), ..preset() }, "`tls_certificate` is not set: `tls_key` needs it");
        refused(TlsSettings { client_ca: pem(), ..preset() }, "`tls_certificate` is not set: `tls_client_ca` needs it");
        refused(TlsSettings { metrics: true, ..preset() }, "`tls_certificate` is not set: `tls_metrics` needs it");
    }

    #[test]
    fn tls_files_are_rejected_with_setting_path_and_reason() {
        let folder = folder();
        let check = |certificate: &str, key: &str, ca: Option<&str>| {
            let settings = TlsSettings {
                certificate: Some(certificate.into()),
                key: Some(key.into()),
                client_ca: ca.map(Into::into),
                ..TlsSettings::default()
            };
            let files = TlsFiles::new(&settings, folder.path()).unwrap().unwrap();
            files.check().map_err(|error| error.to_string().replace(folder.path().to_str().unwrap(), "DIR"))
        };
        let (good, key) = ("certificate.pem", "key.pem");
        check(good, key, None).unwrap();
        check(good, key, Some(good)).unwrap();
        let refused = |result: Result<(), String>, expected: &str| assert_eq!(result.unwrap_err(), expected);
        refused(
            check("empty.pem", key, None),
            "`tls_certificate`: cannot use `DIR/empty.pem`: it has no PEM certificates",
        );
        refused(
            check("damaged.pem", key, None),
            "`tls_certificate`: cannot use `DIR/damaged.pem`: it is not a valid X.509 certificate",
        );
        refused(
            check(good, "other.pem", None),
            "`tls_key`: cannot use `DIR/other.pem`: it is not the key of the certificate `DIR/certificate.pem`",
        );
        refused(check(good, good, None), "`tls_key`: cannot use `DIR/certificate.pem`: it has no PEM private key");
        refused(
            check(good, "encrypted.pem", None),
            "`tls_key`: cannot use `DIR/encrypted.pem`: it is encrypted; decrypt it, for example with `openssl pkey`",
        );
        refused(check(good, "none.pem", None), "`tls_key`: cannot use `DIR/none.pem`: no such file or directory");
        refused(
            check(good, key, Some("empty.pem")),
            "`tls_client_ca`: cannot use `DIR/empty.pem`: it has no PEM certificates",
        );
    }
}
