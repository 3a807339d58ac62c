//! What the machine allows this process.

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Where control groups are mounted.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Returns the memory that the control group, or else the machine, allows this process, in bytes. `None` if neither is known.
pub fn memory_limit() -> Option<u64> {
    let groups = read_small(Path::new("/proc/self/cgroup")).unwrap_or_default();
    let by_group = group_limits(&groups, Path::new(CGROUPS));
    let of_machine = read_small(Path::new("/proc/meminfo")).and_then(|text| mem_total(&text));
    by_group.into_iter().chain(of_machine).min()
}

/// Returns the limits of the groups in `/proc/self/cgroup` and of those around them, below `mounted`.
fn group_limits(groups: &str, mounted: &Path) -> Vec<u64> {
    let mut limits = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let (root, file) = match controllers {
            "" => (mounted.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (mounted.join("memory"), "memory.limit_in_bytes")
            }
            _ => continue,
        };
        // In a container, the path may be that of the host, while the group is mounted at the root.
        let mut group = Path::new(path.trim_start_matches('/'));
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
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
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
    fn memory_of_this_machine_is_known() {
        assert_eq!(mem_total("MemTotal:       24000000 kB\nMemFree: 1 kB\n"), Some(24_576_000_000));
        assert!(memory_limit().unwrap() > 16 << 20);
    }
}
