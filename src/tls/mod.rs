//! TLS of the server: its configuration from PEM files, and what certificates contain.

mod certificate;
mod config;

pub use certificate::{CertificateError, CertificateInfo, ClientNames};
pub use config::{ServerTls, TlsError, TlsFiles};
