//! macOS and other Unix systems: POSIX, and the programs that list processes and sockets.
//!
//! The calls that return tables of processes differ between these systems and need unsafe code; `ps` prints the same columns on
//! all of them, and on Linux.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use chrono::NaiveDateTime;
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, getpid, getppid, kill_process};

use super::{PortOwner, ProcessRow};

/// Other systems have no call for it that all of them share: init adopts the orphans.
pub(super) const ADOPTS_ORPHANS: bool = false;
pub(super) const MEMORY_INTERVAL: Duration = Duration::from_secs(1);
/// Not every system can suppress SIGPIPE for a call. Rust ignores the signal when the process starts.
pub(super) const SEND_FLAGS: SendFlags = SendFlags::empty();
pub(super) const RECEIVE_FLAGS: RecvFlags = RecvFlags::empty();

/// How often a process looks for its parent.
const PARENT_INTERVAL: Duration = Duration::from_millis(100);

/// Absolute, so that a PATH cannot name other programs.
const PS: [&str; 2] = ["/bin/ps", "/usr/bin/ps"];
const LSOF: [&str; 3] = ["/usr/sbin/lsof", "/usr/bin/lsof", "/usr/local/sbin/lsof"];
const SYSCTL: [&str; 2] = ["/usr/sbin/sysctl", "/sbin/sysctl"];
const GETCONF: [&str; 1] = ["/usr/bin/getconf"];

/// The columns of a [`ProcessRow`]. An empty header for all of them leaves out the line of headers.
const COLUMNS: &str = "pid=,ppid=,stat=,lstart=";

/// There are no control groups: processes are only watched.
#[derive(Debug)]
pub(super) enum MemoryGroup {}

impl MemoryGroup {
    pub(super) const fn create(_process: Pid, _limit: u64) -> Option<Self> {
        None
    }

    pub(super) const fn oom_kills(&self) -> u64 {
        match *self {}
    }
}

pub(super) const fn oom_kills() -> Option<u64> {
    None
}

pub(super) fn memory_limit() -> Option<u64> {
    // It does not change, and is asked for several times.
    static MEMORY: LazyLock<Option<u64>> = LazyLock::new(|| {
        let number = |text: Vec<u8>| String::from_utf8(text).ok()?.trim().parse::<u64>().ok();
        // The names of macOS and of the BSDs.
        let by_name =
            ["hw.memsize", "hw.physmem"].into_iter().find_map(|name| number(output(&SYSCTL, &["-n", name])?.1));
        by_name
            .or_else(|| number(output(&GETCONF, &["_PHYS_PAGES"])?.1)?.checked_mul(rustix::param::page_size() as u64))
    });
    *MEMORY
}

pub(super) fn resident_memory(id: i32) -> Option<u64> {
    let (_, text) = output(&PS, &["-o", "rss=", "-p", &id.to_string()])?;
    // In KiB. A process that has exited has none.
    let size = String::from_utf8(text).ok()?.trim().parse::<u64>().ok()?;
    size.checked_mul(1024)
}

pub(super) fn memory_file(name: &str) -> io::Result<File> {
    // Objects of `shm_open` can only be mapped on macOS: reading and writing at positions needs a file.
    let path = std::env::temp_dir().join(format!("{name}-{}", uuid::Uuid::new_v4()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// Starts a thread that kills this process when it has another parent. kqueue would report the end at once, through unsafe calls.
#[expect(clippy::disallowed_methods, reason = "a thread of its own waits")]
pub(super) fn end_with_parent(parent: u32) -> io::Result<()> {
    let parent = i32::try_from(parent).ok().and_then(Pid::from_raw);
    let watch = move || {
        while getppid() == parent {
            thread::sleep(PARENT_INTERVAL);
        }
        // Not `exit`, whose handlers may wait for other threads.
        let _ = kill_process(getpid(), Signal::KILL);
    };
    thread::Builder::new().name("parent".to_owned()).spawn(watch).map(drop)
}

pub(super) const fn adopt_orphans() {}

pub(super) fn processes() -> Vec<ProcessRow> {
    rows(output(&PS, &["-A", "-o", COLUMNS]))
}

pub(super) fn processes_of(ids: &BTreeSet<i32>) -> Vec<ProcessRow> {
    let list: Vec<String> = ids.iter().map(i32::to_string).collect();
    rows(output(&PS, &["-o", COLUMNS, "-p", &list.join(",")]))
}

/// Reads the columns of `ps`, without the row of `ps` itself.
fn rows(output: Option<(i32, Vec<u8>)>) -> Vec<ProcessRow> {
    let Some((own, text)) = output else { return Vec::new() };
    String::from_utf8_lossy(&text).lines().filter_map(row).filter(|row| row.id != own).collect()
}

fn row(line: &str) -> Option<ProcessRow> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [id, parent, state, started @ ..] = &fields[..] else { return None };
    let started = NaiveDateTime::parse_from_str(&started.join(" "), "%a %b %d %H:%M:%S %Y").ok()?;
    Some(ProcessRow {
        id: id.parse().ok()?,
        parent: parent.parse().ok()?,
        started: u64::try_from(started.and_utc().timestamp()).ok()?,
        is_zombie: state.starts_with(['Z', 'X']),
    })
}

pub(super) fn with_variable(ids: &BTreeSet<i32>, variable: &str) -> BTreeSet<i32> {
    // `e` adds the environment to the command, and `ww` cuts nothing.
    let Some((_, text)) = output(&PS, &["axeww", "-o", "pid=,command="]) else { return BTreeSet::new() };
    let lines = text.split(|&byte| byte == b'\n');
    let with_variable = lines.filter_map(|line| marked(line, variable.as_bytes()));
    with_variable.filter(|id| ids.contains(id)).collect()
}

/// Returns the id of a line of a process with a variable.
fn marked(line: &[u8], variable: &[u8]) -> Option<i32> {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let id = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    words.any(|word| word == variable).then_some(id)
}

pub(super) fn port_owner(port: u16) -> Option<PortOwner> {
    let (_, text) = output(&LSOF, &["-nP", &format!("-iTCP:{port}"), "-sTCP:LISTEN", "-Fpc"])?;
    owner(&String::from_utf8_lossy(&text))
}

/// Reads the fields of the first process that `lsof -F` prints, each in a line with its letter in front.
fn owner(fields: &str) -> Option<PortOwner> {
    let field = |letter: char| fields.lines().find_map(|line| line.strip_prefix(letter));
    Some(PortOwner { id: field('p')?.parse().ok()?, name: field('c').unwrap_or_default().to_owned() })
}

pub(super) fn ignores_hangup() -> bool {
    let own = getpid().as_raw_nonzero().to_string();
    let Some((_, text)) = output(&PS, &["-o", "ignored=", "-p", &own]) else { return false };
    // SIGHUP is the first signal.
    String::from_utf8(text)
        .ok()
        .and_then(|mask| u64::from_str_radix(mask.trim().trim_start_matches('<'), 16).ok())
        .is_some_and(|mask| mask & 1 != 0)
}

pub(super) fn own_executable() -> io::Result<PathBuf> {
    std::env::current_exe()
}

pub(super) fn loaded_libraries() -> io::Result<Vec<PathBuf>> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system does not list the libraries of a process"))
}

pub(super) fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    match fs::hard_link(from, to) {
        Ok(()) => fs::remove_file(from),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
        // Not every file system has hard links.
        Err(_) if !to.exists() => fs::rename(from, to),
        Err(error) => Err(error),
    }
}

/// Runs the first of some programs that exists, and returns its process id and its standard output, or `None` if it fails. Its
/// environment is empty, so that it is not taken for a worker's process, and prints dates in one form.
fn output(programs: &[&str], arguments: &[&str]) -> Option<(i32, Vec<u8>)> {
    let program = programs.iter().find(|program| Path::new(program).exists())?;
    let mut command = Command::new(program);
    command.args(arguments).env_clear().envs([("LC_ALL", "C"), ("TZ", "UTC")]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let id = i32::try_from(child.id()).ok()?;
    let output = child.wait_with_output().ok()?;
    // `ps` fails if one of several processes does not exist, but prints the others.
    (!output.stdout.is_empty()).then_some((id, output.stdout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_rows_are_read_from_any_ps() {
        let found = row("  501     1 Ss   Sun Nov  9 08:07:06 2025    ").unwrap();
        assert_eq!(found, ProcessRow { id: 501, parent: 1, started: 1_762_675_626, is_zombie: false });
        assert!(row("7 1 Z+ Sun Nov  9 08:07:06 2025").unwrap().is_zombie);
        for line in ["", "7", "7 1 S", "7 1 S Sun Nov", "PID PPID STAT STARTED", "x 1 S Sun Nov  9 08:07:06 2025"] {
            assert_eq!(row(line), None, "{line}");
        }
    }

    #[test]
    fn variables_are_whole_words_after_the_id() {
        let line = b"  77 /usr/bin/python3 -m x HOME=/root MARK=1-2 \xff";
        assert_eq!(marked(line, b"MARK=1-2"), Some(77));
        assert_eq!(marked(line, b"MARK=1"), None);
        assert_eq!(marked(b"MARK=1-2", b"MARK=1-2"), None);
        assert_eq!(marked(b"", b"MARK=1-2"), None);
    }

    #[test]
    fn port_owner_is_read_from_fields() {
        assert_eq!(owner("p12\ncmy server\nf3\n"), Some(PortOwner { id: 12, name: "my server".to_owned() }));
        assert_eq!(owner(""), None);
        assert_eq!(owner("pnone\n"), None);
    }
}
