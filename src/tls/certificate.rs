//! What an X.509 certificate contains: its names, and when it is valid.

use rustls::pki_types::CertificateDer;
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::ObjectIdentifier;
use x509_cert::der::{Decode, Tag, Tagged};
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::time::Time;

/// The type of a common name in a subject (RFC 4519, section 2.3).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// A certificate cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not a valid X.509 certificate")]
pub struct CertificateError;

/// The names of a certificate, and when it is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// The common name of its subject, then its DNS names.
    pub names: Vec<String>,
    /// How many of the names are common names.
    common_names: usize,
    /// Its IP addresses.
    pub addresses: Vec<String>,
    /// In seconds since 1970.
    pub not_before: i64,
    pub not_after: i64,
}

/// The names of a client's certificate: its common name, then its DNS names.
#[derive(Debug)]
pub struct ClientNames(Vec<String>);

impl ClientNames {
    /// Reads the names of a certificate that has been verified. There are none if it cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(CertificateInfo::read(certificate).map(|info| info.names).unwrap_or_default())
    }

    pub fn names(&self) -> &[String] {
        &self.0
    }
}

impl CertificateInfo {
    /// Reads a certificate.
    ///
    /// # Errors
    ///
    /// Fails if it is malformed.
    pub fn read(der: &CertificateDer<'_>) -> Result<Self, CertificateError> {
        let certificate = CertificateInner::<Raw>::from_der(der).map_err(|_| CertificateError)?;
        let certificate = certificate.tbs_certificate();
        let attributes = certificate.subject().iter().filter(|attribute| attribute.oid == COMMON_NAME);
        let texts = attributes.filter(|attribute| is_text(attribute.value.tag()));
        let common = texts.filter_map(|attribute| std::str::from_utf8(attribute.value.value()).ok());
        let mut names: Vec<String> = common.map(str::to_owned).collect();
        let common_names = names.len();
        let mut addresses = Vec::new();
        let alternative = certificate.get_extension::<SubjectAltName>().map_err(|_| CertificateError)?;
        for name in alternative.iter().flat_map(|(_, names)| &names.0) {
            match name {
                GeneralName::DnsName(name) => names.push(name.to_string()),
                GeneralName::IpAddress(bytes) => addresses.extend(address(bytes.as_bytes())),
                _ => {}
            }
        }
        let seconds = |time: Time| i64::try_from(time.to_unix_duration().as_secs()).map_err(|_| CertificateError);
        let validity = certificate.validity();
        let (not_before, not_after) = (seconds(validity.not_before)?, seconds(validity.not_after)?);
        Ok(Self { names, common_names, addresses, not_before, not_after })
    }

    /// Returns the names and addresses of the servers that the certificate is for.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.dns_names().iter().chain(&self.addresses).map(String::as_str)
    }

    /// Reports whether the certificate is for a server with a name or address.
    pub fn is_for(&self, host: &str) -> bool {
        let is_covered = |name: &str| match name.strip_prefix("*.") {
            Some(domain) => host.split_once('.').is_some_and(|(_, parent)| parent.eq_ignore_ascii_case(domain)),
            None => name.eq_ignore_ascii_case(host),
        };
        self.hosts().any(is_covered)
    }

    fn dns_names(&self) -> &[String] {
        self.names.get(self.common_names..).unwrap_or_default()
    }

    /// Returns why the certificate is not valid at a time, in seconds since 1970.
    pub const fn problem_at(&self, now: i64) -> Option<&'static str> {
        if now > self.not_after {
            Some("has expired")
        } else if now < self.not_before {
            Some("is not valid yet")
        } else {
            None
        }
    }
}

/// Reports whether a value is text whose encoding is ASCII or UTF-8.
const fn is_text(tag: Tag) -> bool {
    matches!(tag, Tag::Utf8String | Tag::PrintableString | Tag::Ia5String | Tag::TeletexString)
}

fn address(bytes: &[u8]) -> Option<String> {
    if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
        return Some(std::net::Ipv4Addr::from(v4).to_string());
    }
    Some(std::net::Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_info_has_names_addresses_and_validity() {
        let names = vec!["iris.example".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        let mut parameters = rcgen::CertificateParams::new(names).unwrap();
        parameters.distinguished_name.push(rcgen::DnType::CommonName, "ci");
        parameters.not_before = rcgen::date_time_ymd(2020, 1, 1);
        parameters.not_after = rcgen::date_time_ymd(2021, 1, 1);
        let certificate = parameters.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let info = CertificateInfo::read(certificate.der()).unwrap();
        assert_eq!(info.names, ["ci", "iris.example"]);
        assert_eq!(info.addresses, ["127.0.0.1", "::1"]);
        let (begin, end) = (1_577_836_800, 1_609_459_200);
        assert_eq!((info.not_before, info.not_after), (begin, end));
        assert_eq!(info.problem_at(begin - 1), Some("is not valid yet"));
        assert_eq!(info.problem_at(begin), None);
        assert_eq!(info.hosts().collect::<Vec<_>>(), ["iris.example", "127.0.0.1", "::1"]);
        assert!(info.is_for("IRIS.example") && info.is_for("::1") && !info.is_for("ci") && !info.is_for("example"));
        assert_eq!(info.problem_at(end + 1), Some("has expired"));
    }

    #[test]
    fn certificate_info_rejects_every_truncation() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        for length in 0..certificate.der().len() {
            let part = CertificateDer::from(&certificate.der()[..length]);
            assert_eq!(CertificateInfo::read(&part), Err(CertificateError), "{length}");
        }
    }
}
