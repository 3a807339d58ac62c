//! The file that `--port-file` names: the server's addresses, for the process that started it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use serde_json::{Map, Value};

use crate::commands::CommandError;
use crate::file_access;

/// A file that appears at its path, complete, when the server is up. Until then, its content is in a temporary file next to it.
#[derive(Debug)]
pub(super) struct PortFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl PortFile {
    /// Creates the temporary file, and removes the file of an earlier server.
    ///
    /// # Errors
    ///
    /// Fails if the folder cannot be written to, or if the path is something other than a file.
    pub(super) fn create(path: &Path) -> Result<Self, CommandError> {
        let cannot = || format!("cannot write the port file `{}`", path.display());
        let Some(name) = path.file_name() else {
            return Err(anyhow!("{}: it has no file name", cannot()).into());
        };
        let replaced = match fs::symlink_metadata(path) {
            Ok(found) if !found.is_file() => {
                return Err(anyhow!("{}: it exists and is not a regular file", cannot()).into());
            }
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(cannot).map_err(CommandError::from),
        };
        let temporary = path.with_file_name(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
        // An earlier server with the same process id may have left it. A link must not lead to another file.
        let _ = fs::remove_file(&temporary);
        let file =
            file_access::options_for(replaced.as_ref()).create_new(true).open(&temporary).with_context(cannot)?;
        let created = Self { path: path.to_owned(), temporary, file };
        if let Some(replaced) = replaced {
            // Those who could read the file can read the new one.
            file_access::keep_where_permitted(&created.file, &replaced).with_context(cannot)?;
            // What waits for the file must not read the addresses of another server.
            fs::remove_file(path).with_context(cannot)?;
        }
        Ok(created)
    }

    /// Writes the addresses and moves the file to its path.
    ///
    /// # Errors
    ///
    /// Fails if the disk is full, or the folder is no longer there.
    pub(super) fn publish(mut self, addresses: &ListenerAddresses) -> Result<(), CommandError> {
        let cannot = || format!("cannot write the port file `{}`", self.path.display());
        writeln!(self.file, "{}", addresses.to_json()).with_context(cannot)?;
        fs::rename(&self.temporary, &self.path).with_context(cannot)?;
        Ok(())
    }
}

impl Drop for PortFile {
    fn drop(&mut self) {
        // It is gone once it has been published.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// The addresses of the listeners, by the name of their transport: `http`, `grpc`, `metrics` and `admin`.
#[derive(Debug, Clone, Default)]
pub(super) struct ListenerAddresses(pub(super) Vec<(&'static str, SocketAddr)>);

impl ListenerAddresses {
    /// Returns the address under which programs on this machine reach a listener.
    pub(super) fn reachable(&self, transport: &str) -> Option<SocketAddr> {
        self.0.iter().find(|(name, _)| *name == transport).map(|(_, address)| reachable(*address))
    }

    /// Returns the addresses under which programs on this machine reach the listeners.
    fn to_json(&self) -> Value {
        let reachable =
            self.0.iter().map(|(name, address)| ((*name).to_owned(), reachable(*address).to_string().into()));
        Value::Object(reachable.collect::<Map<String, Value>>())
    }
}

/// Replaces the address of all interfaces with that of the loopback interface.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    use super::*;

    fn addresses() -> ListenerAddresses {
        ListenerAddresses(vec![("http", "0.0.0.0:8080".parse().unwrap()), ("grpc", "[::]:8081".parse().unwrap())])
    }

    #[test]
    fn port_file_is_complete_or_absent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ports.json");
        fs::write(&path, "of an earlier server").unwrap();
        let file = PortFile::create(&path).unwrap();
        assert!(!path.exists());
        file.publish(&addresses()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "{\"http\":\"127.0.0.1:8080\",\"grpc\":\"[::1]:8081\"}\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn port_file_keeps_owner_group_and_mode_of_an_earlier_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ports.json");
        // Only root may give files away.
        let is_root = rustix::process::geteuid().is_root();
        for mode in [0o600, 0o640, 0o666] {
            fs::write(&path, "of an earlier server").unwrap();
            if is_root {
                std::os::unix::fs::chown(&path, Some(12_345), Some(23_456)).unwrap();
            }
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let access =
                |path: &Path| fs::metadata(path).map(|found| (found.uid(), found.gid(), found.mode())).unwrap();
            let before = access(&path);
            let file = PortFile::create(&path).unwrap();
            assert_eq!(access(&file.temporary), before);
            file.publish(&addresses()).unwrap();
            assert_eq!(access(&path), before);
        }
    }

    #[test]
    fn port_file_of_a_failed_start_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        drop(PortFile::create(&folder.path().join("ports.json")).unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn port_file_overwrites_no_other_file() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("ports.json"), folder.path().join("other"));
        let temporary = folder.path().join(format!(".ports.json.{}.tmp", std::process::id()));
        fs::write(&other, "kept").unwrap();
        for link in [|from, to| std::os::unix::fs::symlink(from, to), |from, to| fs::hard_link(from, to)] {
            link(&other, &temporary).unwrap();
            PortFile::create(&path).unwrap().publish(&addresses()).unwrap();
            assert_eq!(fs::read_to_string(&other).unwrap(), "kept");
            assert!(fs::symlink_metadata(&path).unwrap().is_file() && !temporary.exists());
        }
    }

    #[test]
    fn port_file_must_be_writable() {
        let folder = tempfile::tempdir().unwrap();
        for path in [folder.path().to_owned(), folder.path().join("none/ports.json"), PathBuf::from("/")] {
            let failed = PortFile::create(&path).unwrap_err();
            assert!(failed.error.to_string().starts_with("cannot write the port file `/"), "{}", failed.error);
        }
    }
}
