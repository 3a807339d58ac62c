//! Certificates: those that are trusted, and the client's own.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use reqwest::ClientBuilder;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::{HttpError, HttpOptions, last_cause};
use crate::tls::CertificateInfo;

/// Applies the options to a client. Without `needs_roots`, the certificates of the system are not read: an image that only sends
/// requests without TLS may have none.
pub(super) fn configure(
    builder: ClientBuilder,
    options: &HttpOptions,
    needs_roots: bool,
) -> Result<ClientBuilder, HttpError> {
    let provider = Arc::new(ring::default_provider());
    let failed = |error: rustls::Error| HttpError::Setup { cause: last_cause(&error) };
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let config = config.map_err(failed)?.dangerous();
    let config = config.with_custom_certificate_verifier(verifier(options, needs_roots, provider)?);
    let mut config = match &options.certificate {
        None => config.with_no_client_auth(),
        Some(path) => {
            let (chain, key) = identity(path, options.key.as_deref())?;
            config.with_client_auth_cert(chain, key).map_err(|_| no_identity(path))?
        }
    };
    let protocols: &[&[u8]] = if options.http2 { &[b"h2"] } else { &[b"h2", b"http/1.1"] };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(builder.tls_backend_preconfigured(config))
}

fn verifier(
    options: &HttpOptions,
    needs_roots: bool,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, HttpError> {
    let mut roots = RootCertStore::empty();
    let mut trusted = match &options.ca {
        Some(path) => certificates(path, &mut roots)?,
        None => Vec::new(),
    };
    if options.insecure {
        return Ok(Arc::new(Unverified(provider)));
    }
    if needs_roots {
        let of_system = rustls_native_certs::load_native_certs().certs;
        // Those that are invalid are not the user's fault.
        roots.add_parsable_certificates(of_system.iter().cloned());
        trusted.extend(of_system);
        if roots.is_empty() {
            return Err(HttpError::Setup { cause: "no CA certificates were loaded from the system".to_owned() });
        }
    }
    // Fails without roots, and then no server can be verified.
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build().ok();
    Ok(Arc::new(TrustedCertificates { trusted, inner, provider }))
}

/// Verifies servers as usual. A certificate that is trusted itself is also accepted from the server that it is for, even if it is
/// that of an authority: `openssl req -x509` makes such ones.
#[derive(Debug)]
struct TrustedCertificates {
    trusted: Vec<CertificateDer<'static>>,
    /// `None` if there are no roots.
    inner: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl TrustedCertificates {
    /// Checks the name and the date of a certificate that is trusted itself.
    fn check_trusted(
        certificate: &CertificateDer<'_>,
        server: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        verify_server_name(&ParsedCertificate::try_from(certificate)?, server)?;
        let info = CertificateInfo::read(certificate).map_err(|_| CertificateError::BadEncoding)?;
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now > info.not_after {
            return Err(CertificateError::Expired.into());
        }
        if now < info.not_before {
            return Err(CertificateError::NotValidYet.into());
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for TrustedCertificates {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.trusted.contains(certificate) {
            return Self::check_trusted(certificate, server, now);
        }
        let Some(inner) = &self.inner else { return Err(CertificateError::UnknownIssuer.into()) };
        inner.verify_server_cert(certificate, intermediates, server, ocsp, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Accepts every server, as the user asks.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, HttpError> {
    fs::read(path).map_err(|error| HttpError::Pem { what, path: path.to_owned(), cause: last_cause(&error) })
}

/// Reads the certificates of a file, and adds them to the roots.
fn certificates(path: &Path, roots: &mut RootCertStore) -> Result<Vec<CertificateDer<'static>>, HttpError> {
    const WHAT: &str = "certificates";
    let failed = |cause: String| HttpError::Pem { what: WHAT, path: path.to_owned(), cause };
    let pem = read(WHAT, path)?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|error| failed(last_cause(&error)))?;
    if certificates.is_empty() {
        return Err(failed("it has no PEM certificates".to_owned()));
    }
    for certificate in &certificates {
        roots.add(certificate.clone()).map_err(|error| failed(last_cause(&error)))?;
    }
    Ok(certificates)
}

fn identity(
    certificate: &Path,
    key: Option<&Path>,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), HttpError> {
    let pem = read(IDENTITY, certificate)?;
    let key = match key {
        Some(key) => read("key", key)?,
        None => pem.clone(),
    };
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    chain.zip(PrivateKeyDer::from_pem_slice(&key).ok()).ok_or_else(|| no_identity(certificate))
}

const IDENTITY: &str = "client certificate";

fn no_identity(path: &Path) -> HttpError {
    HttpError::Pem {
        what: IDENTITY,
        path: path.to_owned(),
        cause: "expected PEM with a certificate and its private key; `--key` names a separate file with the key"
            .to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};

    use super::*;

    const NOW: Duration = Duration::from_secs(1_790_000_000);

    /// A certificate as `openssl req -x509` makes it: its own authority.
    fn certificate(name: &str, years: (i32, i32)) -> rcgen::Certificate {
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (parameters.not_before, parameters.not_after) = (date_time_ymd(years.0, 1, 1), date_time_ymd(years.1, 1, 1));
        parameters.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn tls_own_certificate_of_the_server_is_trusted_if_the_user_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        let valid = certificate("host.example", (2020, 2090));
        let other = certificate("host.example", (2020, 2090));
        let (expired, future) = (certificate("host.example", (2019, 2020)), certificate("host.example", (2080, 2090)));
        let verify = |named: &[&rcgen::Certificate], shown: &rcgen::Certificate, host: &str| {
            fs::write(&path, named.iter().map(|certificate| certificate.pem()).collect::<String>()).unwrap();
            let options = HttpOptions { ca: Some(path.clone()), ..HttpOptions::new(Duration::ZERO, 0) };
            let verifier = verifier(&options, false, Arc::new(ring::default_provider())).unwrap();
            let host = ServerName::try_from(host.to_owned()).unwrap();
            let now = UnixTime::since_unix_epoch(NOW);
            verifier.verify_server_cert(shown.der(), &[], &host, &[], now).map_err(|error| error.to_string())
        };
        for named in [&[&valid][..], &[&other, &valid]] {
            verify(named, &valid, "host.example").unwrap();
        }
        for (named, shown, host, expected) in [
            (&valid, &valid, "other.example", "not valid for name"),
            (&expired, &expired, "host.example", "Expired"),
            (&future, &future, "host.example", "NotValidYet"),
            (&valid, &other, "host.example", "CaUsedAsEndEntity"),
        ] {
            let error = verify(&[named], shown, host).unwrap_err();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
