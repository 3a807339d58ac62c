//! Finds the engine: `DOCKER_HOST`, Docker's contexts, and the sockets of Docker, rootless Docker and Podman.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The socket of an engine that belongs to root.
const SYSTEM_SOCKET: &str = "/var/run/docker.sock";
/// The socket of a Podman service that belongs to root.
const SYSTEM_PODMAN_SOCKET: &str = "/run/podman/podman.sock";
/// Sockets of engines that belong to the user, in `XDG_RUNTIME_DIR`.
const USER_SOCKETS: [&str; 2] = ["docker.sock", "podman/podman.sock"];
/// The context that stands for the sockets.
const DEFAULT_CONTEXT: &str = "default";

/// Why the address of the engine cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("cannot read `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("invalid JSON in `{}`", path.display())]
    Syntax { path: PathBuf, source: serde_json::Error },
    #[error(
        "Docker context `{name}` ({origin}) does not exist in `{}`: choose another one with `docker context use`, or set `DOCKER_HOST`",
        folder.display()
    )]
    NoContext { name: String, origin: String, folder: PathBuf },
    #[error(
        "Docker context `{name}` has the address `{host}`, which is not supported: set `DOCKER_HOST` to a `unix://` or `tcp://` address"
    )]
    Unsupported { name: String, host: String },
}

/// The part of Docker's configuration file that chooses a context.
#[derive(Debug, Deserialize)]
struct DockerConfig {
    #[serde(rename = "currentContext")]
    current_context: Option<String>,
}

/// The description of a context.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContextFile {
    name: String,
    #[serde(default)]
    endpoints: HashMap<String, ContextEndpoint>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ContextEndpoint {
    host: Option<String>,
}

/// Returns the addresses to try in this order, at least one: as Docker's command line would choose, then other sockets that exist.
///
/// `config` is the folder of Docker's configuration, if any.
///
/// # Errors
///
/// Fails if Docker's configuration cannot be read, or its context does not exist.
pub(super) fn engine_addresses(
    variables: &HashMap<String, String>,
    config: Option<&Path>,
) -> Result<Vec<String>, EndpointError> {
    let variable = |name: &str| variables.get(name).filter(|value| !value.is_empty());
    if let Some(host) = variable("DOCKER_HOST") {
        return Ok(vec![host.clone()]);
    }
    if let Some(config) = config {
        let context = match variable("DOCKER_CONTEXT") {
            Some(name) => Some((name.clone(), "from `DOCKER_CONTEXT`".to_owned())),
            None => current_context(&config.join("config.json"))?,
        };
        if let Some((name, origin)) = context.filter(|(name, _)| name != DEFAULT_CONTEXT) {
            return Ok(vec![context_address(&config.join("contexts/meta"), name, origin)?]);
        }
    }
    let of_user = variable("XDG_RUNTIME_DIR")
        .into_iter()
        .flat_map(|folder| USER_SOCKETS.map(|name| Path::new(folder).join(name)));
    let sockets = [SYSTEM_SOCKET.into()].into_iter().chain(of_user).chain([SYSTEM_PODMAN_SOCKET.into()]);
    let mut found: Vec<_> =
        sockets.filter(|path: &PathBuf| path.exists()).map(|path| format!("unix://{}", path.display())).collect();
    if found.is_empty() {
        found.push(format!("unix://{SYSTEM_SOCKET}"));
    }
    Ok(found)
}

/// Returns the context that Docker's configuration file names, and where it comes from.
fn current_context(path: &Path) -> Result<Option<(String, String)>, EndpointError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(EndpointError::Read { path: path.to_owned(), source }),
    };
    let config: DockerConfig =
        serde_json::from_slice(&text).map_err(|source| EndpointError::Syntax { path: path.to_owned(), source })?;
    let name = config.current_context.filter(|name| !name.is_empty());
    Ok(name.map(|name| (name, format!("`currentContext` in `{}`", path.display()))))
}

/// Returns the address of a context, from the folder with the descriptions of all of them.
fn context_address(folder: &Path, name: String, origin: String) -> Result<String, EndpointError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(EndpointError::NoContext { name, origin, folder: folder.to_owned() });
        }
        Err(source) => return Err(EndpointError::Read { path: folder.to_owned(), source }),
    };
    for entry in entries {
        let path =
            entry.map_err(|source| EndpointError::Read { path: folder.to_owned(), source })?.path().join("meta.json");
        // The folders are named by hashes, and other contexts may be damaged.
        let Ok(text) = fs::read(&path) else { continue };
        let Ok(context) = serde_json::from_slice::<ContextFile>(&text) else { continue };
        if context.name != name {
            continue;
        }
        let host = context.endpoints.get("docker").and_then(|endpoint| endpoint.host.clone()).unwrap_or_default();
        if !host.starts_with("unix://") && !host.starts_with("tcp://") {
            return Err(EndpointError::Unsupported { name, host });
        }
        return Ok(host);
    }
    Err(EndpointError::NoContext { name, origin, folder: folder.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(config: &Path, variables: &[(&str, &str)]) -> Result<Vec<String>, EndpointError> {
        let owned = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        engine_addresses(&owned.collect(), Some(config))
    }

    /// Writes a configuration folder with a context `box`, which is chosen if `current`.
    fn config(host: &str, current: bool) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let meta = folder.path().join("contexts/meta/0a1b");
        fs::create_dir_all(&meta).unwrap();
        fs::create_dir_all(folder.path().join("contexts/meta/damaged")).unwrap();
        fs::write(folder.path().join("contexts/meta/damaged/meta.json"), "{").unwrap();
        let context = serde_json::json!({"Name": "box", "Metadata": {}, "Endpoints": {"docker": {"Host": host}}});
        fs::write(meta.join("meta.json"), context.to_string()).unwrap();
        let chosen = if current { r#"{"currentContext": "box"}"# } else { r#"{"auths": {}}"# };
        fs::write(folder.path().join("config.json"), chosen).unwrap();
        folder
    }

    #[test]
    fn engine_address_is_docker_host_then_the_context() {
        let folder = config("tcp://box:2375", true);
        assert_eq!(addresses(folder.path(), &[]).unwrap(), ["tcp://box:2375"]);
        assert_eq!(addresses(folder.path(), &[("DOCKER_HOST", "unix:///x")]).unwrap(), ["unix:///x"]);
        let error = addresses(folder.path(), &[("DOCKER_CONTEXT", "gone")]).unwrap_err().to_string();
        assert!(error.starts_with("Docker context `gone` (from `DOCKER_CONTEXT`) does not exist in `"), "{error}");
        let folder = config("unix:///run/box.sock", false);
        assert_eq!(addresses(folder.path(), &[("DOCKER_CONTEXT", "box")]).unwrap(), ["unix:///run/box.sock"]);
    }

    #[test]
    fn engine_address_of_unsupported_context_is_rejected() {
        let folder = config("ssh://user@box", true);
        let error = addresses(folder.path(), &[]).unwrap_err().to_string();
        assert!(error.starts_with("Docker context `box` has the address `ssh://user@box`, which is not"), "{error}");
    }

    #[test]
    fn engine_addresses_include_the_user_s_sockets() {
        let folder = config("unix:///x", false);
        let runtime = folder.path().join("run");
        fs::create_dir_all(runtime.join("podman")).unwrap();
        for name in USER_SOCKETS {
            fs::write(runtime.join(name), "").unwrap();
        }
        let variables = [("XDG_RUNTIME_DIR", runtime.to_str().unwrap()), ("DOCKER_CONTEXT", "default")];
        let found = addresses(folder.path(), &variables).unwrap();
        let expected = USER_SOCKETS.map(|name| format!("unix://{}", runtime.join(name).display()));
        let first = found.iter().position(|address| *address == expected[0]).unwrap();
        assert_eq!(found[first..first + 2], expected);
        let missing = addresses(&folder.path().join("missing"), &[]).unwrap();
        assert_eq!(missing[0], "unix:///var/run/docker.sock");
    }
}
