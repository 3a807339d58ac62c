//! Registry credentials, as `docker login` stores them: in Docker's configuration file or in a credential helper.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bollard::auth::DockerCredentials;
use docker_credential::{CredentialRetrievalError, DockerCredential, get_credential_from_reader};

/// The key under which `docker login` stores the credentials of Docker Hub.
const DOCKER_HUB: &str = "https://index.docker.io/v1/";
/// The host that `BuildKit` asks for credentials of Docker Hub.
const DOCKER_HUB_HOST: &str = "registry-1.docker.io";
/// Other names of Docker Hub.
const DOCKER_HUB_ALIASES: [&str; 3] = ["docker.io", "index.docker.io", DOCKER_HUB_HOST];
/// What a credential helper prints if it has no credentials for a registry.
const NOT_FOUND: &str = "credentials not found in native keychain";

/// Why the credentials of a registry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot get the credentials of registry `{registry}` (configured in `{}`)", path.display())]
    Lookup { registry: String, path: PathBuf, source: CredentialRetrievalError },
}

/// A registry of images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ImageRegistry<'a>(&'a str);

impl<'a> ImageRegistry<'a> {
    /// Returns the registry of an image: the host in front of the first slash, or Docker Hub if there is none.
    pub(super) fn of_image(name: &'a str) -> Self {
        match name.split_once('/') {
            Some((host, _)) if DOCKER_HUB_ALIASES.contains(&host) => Self(DOCKER_HUB),
            Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => Self(host),
            _ => Self(DOCKER_HUB),
        }
    }

    /// Returns the names under which an engine looks up the registry's credentials.
    pub(super) fn engine_keys(self) -> impl Iterator<Item = &'a str> {
        [self.0].into_iter().chain((self.0 == DOCKER_HUB).then_some(DOCKER_HUB_HOST))
    }

    /// Returns the keys to try in the configuration file. A key with a scheme matches its host in any case.
    fn config_keys(self) -> Vec<String> {
        if self.0 == DOCKER_HUB {
            return vec![DOCKER_HUB.to_owned(), DOCKER_HUB_ALIASES[0].to_owned()];
        }
        ["", "/", "/v1/", "/v2/"].map(|path| format!("{}{path}", self.0)).into()
    }

    /// Looks the credentials up in Docker's configuration file, and in the credential helpers that it names. Blocks.
    ///
    /// Returns `None` if there are no credentials for the registry.
    ///
    /// # Errors
    ///
    /// Fails if the file or the registry's entry cannot be read, or a credential helper fails.
    pub(super) fn credentials(self, config: &Path) -> Result<Option<DockerCredentials>, CredentialsError> {
        let text = match fs::read(config) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(CredentialsError::Read { path: config.to_owned(), source }),
        };
        for key in self.config_keys() {
            match get_credential_from_reader(text.as_slice(), &key) {
                Ok(credential) => return Ok(Some(self.to_engine(credential))),
                Err(CredentialRetrievalError::NoCredentialConfigured) => {}
                Err(CredentialRetrievalError::HelperFailure { stdout, .. }) if stdout.trim() == NOT_FOUND => {
                    return Ok(None);
                }
                Err(source) => {
                    let (registry, path) = (self.0.to_owned(), config.to_owned());
                    return Err(CredentialsError::Lookup { registry, path, source });
                }
            }
        }
        Ok(None)
    }

    fn to_engine(self, credential: DockerCredential) -> DockerCredentials {
        let server = DockerCredentials { serveraddress: Some(self.0.to_owned()), ..DockerCredentials::default() };
        match credential {
            DockerCredential::IdentityToken(token) => DockerCredentials { identitytoken: Some(token), ..server },
            DockerCredential::UsernamePassword(username, password) => {
                DockerCredentials { username: Some(username), password: Some(password), ..server }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks up the credentials of an image's registry in a configuration file.
    fn lookup(config: &str, image: &str) -> Result<Option<DockerCredentials>, CredentialsError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.json");
        fs::write(&path, config).unwrap();
        ImageRegistry::of_image(image).credentials(&path)
    }

    #[test]
    fn registry_of_image_is_the_host_or_docker_hub() {
        let cases = [
            ("m", DOCKER_HUB),
            ("user/m:1", DOCKER_HUB),
            ("docker.io/user/m", DOCKER_HUB),
            ("index.docker.io/user/m", DOCKER_HUB),
            ("registry-1.docker.io/user/m", DOCKER_HUB),
            ("localhost:5000/m", "localhost:5000"),
            ("localhost/m", "localhost"),
            ("r.io/a/m:2.0", "r.io"),
        ];
        for (image, expected) in cases {
            assert_eq!(ImageRegistry::of_image(image), ImageRegistry(expected), "{image}");
        }
        assert_eq!(ImageRegistry(DOCKER_HUB).engine_keys().collect::<Vec<_>>(), [DOCKER_HUB, DOCKER_HUB_HOST]);
    }

    #[test]
    fn credentials_are_found_under_every_form_of_key() {
        let cases = [
            ("r.io", "r.io/m"),
            ("https://r.io", "r.io/m"),
            ("https://r.io/v2/", "r.io/m"),
            ("r.io/v1/", "r.io/m"),
            ("https://index.docker.io/v1/", "m"),
            ("https://index.docker.io/v1/", "docker.io/user/m"),
            ("docker.io", "user/m"),
        ];
        for (key, image) in cases {
            let config = format!(r#"{{"auths": {{"{key}": {{"auth": "dXNlcjpwYXNz"}}}}}}"#);
            let found = lookup(&config, image).unwrap().unwrap_or_else(|| panic!("{key} for {image}"));
            assert_eq!((found.username.as_deref(), found.password.as_deref()), (Some("user"), Some("pass")));
            assert_eq!(lookup(&config, "other.io/m").unwrap(), None);
        }
        let token = r#"{"auths": {"r.io": {"auth": "dXNlcjpwYXNz", "identitytoken": "t"}}}"#;
        assert_eq!(lookup(token, "r.io/m").unwrap().unwrap().identitytoken.as_deref(), Some("t"));
    }

    #[test]
    fn credentials_missing_file_or_empty_entry_is_none() {
        assert_eq!(ImageRegistry("r.io").credentials(Path::new("/no/such/config.json")).unwrap(), None);
        assert_eq!(lookup(r#"{"auths": {"r.io": {}}}"#, "r.io/m").unwrap(), None);
        assert_eq!(lookup("{}", "r.io/m").unwrap(), None);
    }

    #[test]
    fn credentials_broken_entry_fails_only_its_own_registry() {
        for entry in ["%%", "dXNlcg=="] {
            let config = format!(r#"{{"auths": {{"r.io": {{"auth": "{entry}"}}}}}}"#);
            let error = lookup(&config, "r.io/m").unwrap_err().to_string();
            assert!(error.starts_with("cannot get the credentials of registry `r.io` (configured in `"), "{error}");
            assert_eq!(lookup(&config, "other.io/m").unwrap(), None);
        }
        lookup("{", "r.io/m").unwrap_err();
    }

    #[test]
    fn credentials_missing_helper_fails_only_its_own_registry() {
        let config = r#"{"credHelpers": {"r.io": "mlserver-test-missing"}}"#;
        let error = lookup(config, "r.io/m").unwrap_err();
        assert!(matches!(error, CredentialsError::Lookup { .. }), "{error}");
        assert_eq!(lookup(config, "other.io/m").unwrap(), None);
    }
}
