//! Finds the process that listens on a port.

use std::fs;
use std::path::Path;

/// How many processes are looked at; those of other users cannot be read anyway.
const MAX_PROCESSES: usize = 10_000;

/// A process that listens on a port.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PortOwner {
    pub(super) id: u32,
    pub(super) name: String,
}

/// Returns the process that listens on a TCP port of this machine, or `None` if it cannot be found: it may belong to another user,
/// or run in another namespace.
pub(super) fn port_owner(port: u16) -> Option<PortOwner> {
    owner_below(Path::new("/proc"), port)
}

fn owner_below(proc: &Path, port: u16) -> Option<PortOwner> {
    let sockets: Vec<String> = ["net/tcp", "net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(proc.join(table)).ok())
        .flat_map(|table| listening_sockets(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir(proc).ok()?.flatten().take(MAX_PROCESSES);
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).find_map(|id: u32| {
        let folder = proc.join(id.to_string());
        let mut files = fs::read_dir(folder.join("fd")).ok()?.flatten();
        let is_owner = files
            .any(|file| fs::read_link(file.path()).is_ok_and(|link| sockets.iter().any(|socket| *socket == *link)));
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default().trim().to_owned();
        is_owner.then_some(PortOwner { id, name })
    })
}

/// Returns the inodes of the sockets that listen on a port, from a table such as `/proc/net/tcp`.
fn listening_sockets(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let sockets = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (_, found) = fields.get(1)?.rsplit_once(':')?;
        let is_port = u16::from_str_radix(found, 16) == Ok(port);
        if is_port && *fields.get(3)? == LISTEN { Some((*fields.get(9)?).to_owned()) } else { None }
    });
    sockets.collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn port_owner_is_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = port_owner(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(owner.id, std::process::id());
        assert!(!owner.name.is_empty());
    }

    #[test]
    fn port_owner_ignores_other_states_and_odd_lines() {
        let table = "  sl  local_address rem_address   st\n\
            0: 0100007F:1F90 00000000:0000 0A 0:0 00:0 0 0 0 77 1\n\
            1: 0100007F:1F90 00000000:0000 01 0:0 00:0 0 0 0 88 1\n\
            2: odd\n";
        assert_eq!(listening_sockets(table, 8080), ["77"]);
        assert!(listening_sockets(table, 80).is_empty());
    }
}
