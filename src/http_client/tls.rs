//! Certificates: those that are trusted, and the client's own.

use std::fs;
use std::path::Path;

use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::crypto::ring;

use super::{HttpError, HttpOptions, last_cause};

/// Applies the options to a client. Without `needs_roots`, the certificates of the system are not read: an image that only sends
/// requests without TLS may have none.
pub(super) fn configure(
    builder: ClientBuilder,
    options: &HttpOptions,
    needs_roots: bool,
) -> Result<ClientBuilder, HttpError> {
    // It fails if there is a provider already, which is `ring` as well.
    let _ = ring::default_provider().install_default();
    let extra = match &options.ca {
        Some(path) => certificates(path)?,
        None => Vec::new(),
    };
    let mut builder = if options.insecure {
        builder.tls_danger_accept_invalid_certs(true)
    } else if needs_roots {
        builder.tls_certs_merge(extra)
    } else {
        builder.tls_certs_only(extra)
    };
    if let Some(path) = &options.certificate {
        builder = builder.identity(identity(path, options.key.as_deref())?);
    }
    Ok(builder)
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, HttpError> {
    fs::read(path).map_err(|error| HttpError::Pem { what, path: path.to_owned(), cause: last_cause(&error) })
}

fn certificates(path: &Path) -> Result<Vec<Certificate>, HttpError> {
    const WHAT: &str = "certificates";
    let failed = |cause: String| HttpError::Pem { what: WHAT, path: path.to_owned(), cause };
    let certificates = Certificate::from_pem_bundle(&read(WHAT, path)?).map_err(|error| failed(last_cause(&error)))?;
    if certificates.is_empty() {
        return Err(failed("it has no PEM certificates".to_owned()));
    }
    Ok(certificates)
}

fn identity(certificate: &Path, key: Option<&Path>) -> Result<Identity, HttpError> {
    const WHAT: &str = "client certificate";
    let mut pem = read(WHAT, certificate)?;
    if let Some(key) = key {
        pem.push(b'\n');
        pem.extend(read("key", key)?);
    }
    Identity::from_pem(&pem).map_err(|_| HttpError::Pem {
        what: WHAT,
        path: certificate.to_owned(),
        cause: "expected PEM with a certificate and its private key, which may be in a file of its own".to_owned(),
    })
}
