//! Linux: `/proc`, control groups, and calls that other systems do not have.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, MemfdFlags, RenameFlags, memfd_create, renameat_with};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, getpid, set_child_subreaper, set_parent_process_death_signal};

use super::{PortOwner, ProcessRow};

pub(super) const ADOPTS_ORPHANS: bool = true;
pub(super) const MEMORY_INTERVAL: Duration = Duration::from_millis(100);
pub(super) const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL;
pub(super) const RECEIVE_FLAGS: RecvFlags = RecvFlags::CMSG_CLOEXEC;

/// This executable. The name stays valid when the file is replaced while it runs.
const EXECUTABLE: &str = "/proc/self/exe";

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// How many processes are searched for a socket; those of other users cannot be read anyway.
const MAX_SEARCHED: usize = 10_000;

/// The most bytes of an environment that are searched.
const MAX_ENVIRONMENT: u64 = 4 << 20;

#[derive(Debug)]
pub(super) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    pub(super) fn create(process: Pid, limit: u64) -> Option<Self> {
        own_groups().find_map(|own| {
            let limit_file =
                if own.join("memory.limit_in_bytes").exists() { "memory.limit_in_bytes" } else { "memory.max" };
            let group = Self(own.join(format!("mlserver-worker-{}", process.as_raw_nonzero())));
            fs::create_dir(&group.0).ok()?;
            // Without the file, the parent does not let its groups control memory.
            let write = |name: &str, value: String| -> io::Result<()> {
                fs::OpenOptions::new().write(true).open(group.0.join(name))?.write_all(value.as_bytes())
            };
            write(limit_file, limit.to_string()).ok()?;
            write("cgroup.procs", process.as_raw_nonzero().to_string()).ok()?;
            Some(group)
        })
    }

    pub(super) fn oom_kills(&self) -> u64 {
        oom_kills_in(&self.0).unwrap_or_default()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The kernel refuses it until it has noticed the end of the last process; then the empty group remains.
        let _ = fs::remove_dir(&self.0);
    }
}

pub(super) fn oom_kills() -> Option<u64> {
    own_groups().find_map(|group| oom_kills_in(&group))
}

fn oom_kills_in(group: &Path) -> Option<u64> {
    ["memory.events", "memory.oom_control"].into_iter().find_map(|file| {
        let text = read_small(&group.join(file))?;
        let line = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
        line.trim().parse().ok()
    })
}

/// Returns the folders of the control groups of this process that may control memory.
fn own_groups() -> impl Iterator<Item = PathBuf> {
    let groups = read_small(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let mounted = Path::new(CGROUPS);
    let mut folders: Vec<PathBuf> = memory_groups(&groups)
        .map(|(is_unified, path)| if is_unified { mounted.join(path) } else { mounted.join("memory").join(path) })
        .collect();
    // In a container, the path is often that of the host, and the group itself is mounted as the root.
    folders.extend([mounted.join("memory"), mounted.to_owned()]);
    folders.into_iter()
}

/// Returns the groups in `/proc/self/cgroup` that may control memory: whether each is of version 2, and its path without the first slash.
fn memory_groups(groups: &str) -> impl Iterator<Item = (bool, &str)> {
    groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        let is_memory = controllers.split(',').any(|name| name == "memory");
        (controllers.is_empty() || is_memory).then_some((controllers.is_empty(), path))
    })
}

pub(super) fn memory_limit() -> Option<u64> {
    let groups = read_small(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let by_group = group_limits(&groups, Path::new(CGROUPS));
    let of_machine = read_small(Path::new("/proc/meminfo")).and_then(|text| mem_total(&text));
    by_group.into_iter().chain(of_machine).min()
}

/// Returns the limits of the groups in `/proc/self/cgroup` and of those around them, below `mounted`.
fn group_limits(groups: &str, mounted: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    for (is_unified, path) in memory_groups(groups) {
        let (root, file) = if is_unified {
            (mounted.to_owned(), "memory.max")
        } else {
            (mounted.join("memory"), "memory.limit_in_bytes")
        };
        // In a container, the path may be that of the host, while the group is mounted at the root.
        let mut group = Path::new(path);
        loop {
            let text = read_small(&root.join(group).join(file));
            limits.extend(text.and_then(|text| text.trim().parse::<u64>().ok()));
            let Some(parent) = group.parent() else { break };
            group = parent;
        }
    }
    limits
}

/// Reads `MemTotal` from `/proc/meminfo`.
fn mem_total(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

pub(super) fn resident_memory(id: i32) -> Option<u64> {
    let text = read_small(Path::new(&format!("/proc/{id}/statm")))?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages.saturating_mul(rustix::param::page_size() as u64))
}

pub(super) fn memory_file(name: &str) -> io::Result<File> {
    Ok(memfd_create(name, MemfdFlags::CLOEXEC)?.into())
}

pub(super) fn end_with_parent(_parent: u32) -> io::Result<()> {
    Ok(set_parent_process_death_signal(Some(Signal::KILL))?)
}

pub(super) fn adopt_orphans() {
    // Fails only on kernels before 3.4; init adopts them then.
    let _ = set_child_subreaper(Some(getpid()));
}

pub(super) fn processes() -> Vec<ProcessRow> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| row(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

pub(super) fn processes_of(ids: &BTreeSet<i32>) -> Vec<ProcessRow> {
    ids.iter().filter_map(|id| row(*id)).collect()
}

fn row(id: i32) -> Option<ProcessRow> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may contain anything; the state and the parent follow it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (state, parent, started) = (fields.first()?, fields.get(1)?, fields.get(19)?);
    let is_zombie = matches!(*state, "Z" | "X");
    Some(ProcessRow { id, parent: parent.parse().ok()?, started: started.parse().ok()?, is_zombie })
}

pub(super) fn with_variable(ids: &BTreeSet<i32>, variable: &str) -> BTreeSet<i32> {
    ids.iter().copied().filter(|id| has_variable(*id, variable.as_bytes())).collect()
}

fn has_variable(id: i32, wanted: &[u8]) -> bool {
    let mut environment = Vec::new();
    let Ok(file) = File::open(format!("/proc/{id}/environ")) else { return false };
    // Fails if the process has ended.
    let _ = file.take(MAX_ENVIRONMENT).read_to_end(&mut environment);
    environment.split(|&byte| byte == 0).any(|variable| variable == wanted)
}

pub(super) fn port_owner(port: u16) -> Option<PortOwner> {
    let proc = Path::new("/proc");
    let sockets: Vec<String> = ["net/tcp", "net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(proc.join(table)).ok())
        .flat_map(|table| listening_sockets(&table, port))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let processes = fs::read_dir(proc).ok()?.flatten().take(MAX_SEARCHED);
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

pub(super) fn ignores_hangup() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is the first signal.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 != 0)
}

pub(super) fn own_executable() -> io::Result<PathBuf> {
    let fixed = PathBuf::from(EXECUTABLE);
    if fixed.exists() { Ok(fixed) } else { std::env::current_exe() }
}

pub(super) fn loaded_libraries() -> io::Result<Vec<PathBuf>> {
    // The kernel's own mapping is not a file.
    let maps = fs::read_to_string("/proc/self/maps")?;
    let paths: BTreeSet<&str> = maps.lines().filter_map(|line| line.find('/').map(|start| &line[start..])).collect();
    Ok(paths.into_iter().filter(|path| path.contains(".so")).map(PathBuf::from).collect())
}

pub(super) fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can refuse to replace a file.
        Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => fs::rename(from, to),
        Err(Errno::INVAL | Errno::NOSYS) => Err(io::ErrorKind::AlreadyExists.into()),
        renamed => Ok(renamed?),
    }
}

/// Reads a small file of `/proc` or `/sys`.
fn read_small(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(64 << 10).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_limit_is_the_least_of_all_groups() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("outer/memory.max", "1000\n");
        write("outer/inner/memory.max", "max\n");
        assert_eq!(group_limits("0::/outer/inner\n", folder.path()), [1000]);
        // The path of the host does not exist in the container, whose group is the root.
        write("memory.max", "500\n");
        assert_eq!(group_limits("0::/host/only\n", folder.path()), [500]);
        write("memory/pod/memory.limit_in_bytes", "700\n");
        assert_eq!(group_limits("5:cpu:/x\n4:hugetlb,memory:/pod\n", folder.path()), [700]);
        assert_eq!(group_limits("nonsense\n:\n", folder.path()), Vec::<u64>::new());
    }

    #[test]
    fn memory_of_the_machine_is_read() {
        assert_eq!(mem_total("MemTotal:       24000000 kB\nMemFree: 1 kB\n"), Some(24_576_000_000));
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
