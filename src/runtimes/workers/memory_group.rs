//! A kernel control group that limits the memory of a worker and of the processes that it starts.
//!
//! Where control groups cannot be created, which is usual outside of containers for users other than root, workers are
//! only watched.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::process::Pid;

/// A control group below this process's own. Removed when it is dropped, which must be after its processes have ended.
#[derive(Debug)]
pub(super) struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Creates a group with a limit in bytes, and moves a process to it. Returns `None` if that is not permitted.
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

    /// Returns how many processes of the group the kernel has killed because of the limit.
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

/// Returns how many processes of this process's control group the kernel has killed for lack of memory.
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
    let folders: Vec<PathBuf> = groups
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
            if controllers.is_empty() {
                return Some(Path::new("/sys/fs/cgroup").join(path));
            }
            let memory = controllers.split(',').any(|name| name == "memory");
            memory.then(|| Path::new("/sys/fs/cgroup/memory").join(path))
        })
        // In a container, the path is often that of the host, and the group itself is mounted as the root.
        .chain([PathBuf::from("/sys/fs/cgroup/memory"), PathBuf::from("/sys/fs/cgroup")])
        .collect();
    folders.into_iter()
}

/// Reads a small file of `/proc` or `/sys`.
pub(super) fn read_small(path: &Path) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(64 << 10).read_to_string(&mut text).ok()?;
    Some(text)
}
