//! What differs between operating systems: memory files, the end of a parent, tables of processes, limits of memory, owners of ports.
//!
//! `linux` reads `/proc` and control groups and uses the calls that only Linux has. `portable` is for macOS and other Unix systems: it
//! needs POSIX, and the programs `ps`, `lsof` and `sysctl` where POSIX has no call. `build.rs` sets `cfg(portable)` for this crate, on all
//! systems but Linux, and on Linux with the feature `portable`, with which the tests run there. The rest of the code knows no systems: it calls the functions below,
//! and what a system cannot tell is `None`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, SendAncillaryBuffer, SendAncillaryMessage, recvmsg, sendmsg,
};
use rustix::process::Pid;

#[cfg(not(portable))]
mod linux;
#[cfg(portable)]
mod portable;

#[cfg(not(portable))]
use linux as system;
#[cfg(portable)]
use portable as system;

/// Whether this process can be the parent of all orphans below it: see [`adopt_orphans`].
pub const ADOPTS_ORPHANS: bool = system::ADOPTS_ORPHANS;

/// How often the memory of a process may be measured: it costs microseconds on Linux, and a process elsewhere.
pub const MEMORY_INTERVAL: Duration = system::MEMORY_INTERVAL;

/// The most files that [`receive_files`] takes. The system closes further ones.
pub const MAX_FILES: usize = 2;

/// A row of the table of processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessRow {
    pub id: i32,
    pub parent: i32,
    /// Distinguishes the process from another one that gets its id later: ticks since the system was started, or seconds since 1970.
    pub started: u64,
    /// It has exited and has not been reaped.
    pub is_zombie: bool,
}

/// A process that listens on a port.
#[derive(Debug, PartialEq, Eq)]
pub struct PortOwner {
    pub id: u32,
    pub name: String,
}

/// A kernel control group that limits the memory of a process and of those that it starts. Removed when it is dropped, which must be after
/// its processes have ended.
#[derive(Debug)]
pub struct MemoryGroup(system::MemoryGroup);

impl MemoryGroup {
    /// Creates a group with a limit in bytes, and moves a process to it. Returns `None` if the system has none, or does not permit it,
    /// which is usual outside of containers for users other than root: then processes are only watched.
    pub fn create(process: Pid, limit: u64) -> Option<Self> {
        system::MemoryGroup::create(process, limit).map(Self)
    }

    /// Returns how many processes of the group the kernel has killed because of the limit.
    pub fn oom_kills(&self) -> u64 {
        self.0.oom_kills()
    }
}

/// Returns how many processes of this process's control group the kernel has killed for lack of memory.
pub fn oom_kills() -> Option<u64> {
    system::oom_kills()
}

/// Returns the memory that the control group, or else the machine, allows this process, in bytes. `None` if neither is known.
pub fn memory_limit() -> Option<u64> {
    system::memory_limit()
}

/// Returns the resident memory of a process, in bytes. May block for as long as a process takes to start.
pub fn resident_memory(id: i32) -> Option<u64> {
    system::resident_memory(id)
}

/// Creates a file of so many zeros that has no name and is shared by passing its descriptor. It is in memory if the system has such files, and
/// otherwise in the folder for temporary files.
///
/// # Errors
///
/// Fails if there is no memory, or no room.
pub fn memory_file(name: &str, bytes: u64) -> io::Result<File> {
    let file = system::memory_file(name)?;
    file.set_len(bytes)?;
    Ok(file)
}

/// Has this process killed when its parent, the process `parent`, ends.
///
/// # Errors
///
/// Fails if the parent has ended already.
pub fn end_with_parent(parent: u32) -> io::Result<()> {
    let check = || {
        let found = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
        if found == Some(parent) { Ok(()) } else { Err(io::Error::other("the parent process has ended")) }
    };
    // Before, so that a wrong parent is an error, and after, because it may have ended in between.
    check()?;
    system::end_with_parent(parent)?;
    check()
}

/// Makes this process the parent of all orphans below it, if the system can do that. They are its to reap.
pub fn adopt_orphans() {
    system::adopt_orphans();
}

/// Returns all processes, except those that this function starts. It may miss processes of other users.
pub fn processes() -> Vec<ProcessRow> {
    system::processes()
}

/// Returns the processes with these ids that exist.
pub fn processes_of(ids: &BTreeSet<i32>) -> Vec<ProcessRow> {
    if ids.is_empty() { Vec::new() } else { system::processes_of(ids) }
}

/// Returns those of some processes that were started with `variable`, which is `NAME=VALUE` without spaces, in their environment.
pub fn with_variable(ids: &BTreeSet<i32>, variable: &str) -> BTreeSet<i32> {
    if ids.is_empty() { BTreeSet::new() } else { system::with_variable(ids, variable) }
}

/// Returns the process that listens on a TCP port of this machine, or `None` if it cannot be found: it may belong to another user,
/// or run in another namespace.
pub fn port_owner(port: u16) -> Option<PortOwner> {
    system::port_owner(port)
}

/// Reports whether this process was started with SIGHUP ignored. False if that is not known.
pub fn ignores_hangup() -> bool {
    system::ignores_hangup()
}

/// Returns a path that starts this executable again, also after its file has been replaced if the system can do that.
///
/// # Errors
///
/// Fails if the path is not known.
pub fn own_executable() -> io::Result<PathBuf> {
    system::own_executable()
}

/// Returns the files of the libraries that this process has loaded, with their loader.
///
/// # Errors
///
/// Fails if the system does not tell.
pub fn loaded_libraries() -> io::Result<Vec<PathBuf>> {
    system::loaded_libraries()
}

/// Renames a file, unless there is one at `to`.
///
/// # Errors
///
/// Fails with `AlreadyExists` if there is one.
pub fn rename_to_new(from: &Path, to: &Path) -> io::Result<()> {
    system::rename_to_new(from, to)
}

/// Sends bytes, and a file with the first of them, over a socket. Returns how many bytes have been sent.
///
/// # Errors
///
/// Fails if the other end is closed.
pub fn send_with_file(socket: &UnixStream, bytes: &[u8], file: &impl AsFd) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors: [BorrowedFd<'_>; 1] = [file.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, system::SEND_FLAGS)?)
}

/// Receives bytes, and the files that come with them, which processes that this one starts do not inherit. Returns the number of bytes.
///
/// # Errors
///
/// Fails if the other end has reset the connection.
pub fn receive_files(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, system::RECEIVE_FLAGS)?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            files.extend(descriptors);
        }
    }
    for file in &files {
        // Linux has done it while it received them, so that no other thread starts a process in between.
        fcntl_setfd(file, FdFlags::CLOEXEC)?;
    }
    Ok((received.bytes, files))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;
    use std::os::unix::fs::FileExt;
    use std::process::{Child, Command};
    use std::thread;

    use rustix::io::fcntl_getfd;

    use super::*;

    fn own_id() -> i32 {
        rustix::process::getpid().as_raw_nonzero().get()
    }

    fn id(child: &Child) -> i32 {
        i32::try_from(child.id()).unwrap()
    }

    #[test]
    fn platform_memory_file_is_shared_by_descriptor() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = memory_file("test", 4096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4096);
        assert_eq!(send_with_file(&ours, b"first", &file).unwrap(), 5);
        (&ours).write_all(b"second").unwrap();
        let mut bytes = [0; 5];
        let (count, files) = receive_files(&theirs, &mut bytes).unwrap();
        assert_eq!((count, &bytes, files.len()), (5, b"first", 1));
        assert!(fcntl_getfd(&files[0]).unwrap().contains(FdFlags::CLOEXEC));
        assert!(fcntl_getfd(&file).unwrap().contains(FdFlags::CLOEXEC));
        let received = File::from(files.into_iter().next().unwrap());
        received.write_all_at(b"abc", 4000).unwrap();
        let mut read = [0; 4];
        file.read_exact_at(&mut read, 3999).unwrap();
        assert_eq!(&read, b"\0abc");
        file.set_len(8).unwrap();
        assert_eq!(received.metadata().unwrap().len(), 8);
        // Another one shares nothing with it.
        memory_file("test", 8).unwrap().read_exact_at(&mut read, 0).unwrap();
        assert_eq!(read, [0; 4]);
    }

    #[test]
    fn platform_lists_processes_until_they_are_reaped() {
        let mut child = Command::new("/bin/sleep").arg("1000").spawn().unwrap();
        let (ours, others) = (id(&child), BTreeSet::from([id(&child), own_id()]));
        let found = |rows: Vec<ProcessRow>| rows.into_iter().find(|row| row.id == ours);
        let row = found(processes()).unwrap();
        assert_eq!((row.parent, row.is_zombie), (own_id(), false));
        let again = processes_of(&others);
        assert_eq!(again.len(), 2);
        // The start that `ps` computes on Linux may change by a second.
        assert!(found(again).unwrap().started.abs_diff(row.started) <= 1);
        child.kill().unwrap();
        while !found(processes()).unwrap().is_zombie {
            thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(found(processes()), None);
        assert_eq!(found(processes_of(&others)), None);
        assert!(processes_of(&BTreeSet::new()).is_empty());
    }

    #[test]
    fn platform_finds_processes_by_their_variable() {
        let mut child = Command::new("/bin/sleep").arg("1000").env("_MLSERVER_TEST", "platform-1").spawn().unwrap();
        let ids = BTreeSet::from([id(&child), own_id()]);
        // The environment is that of this process until the child runs its program.
        while with_variable(&ids, "_MLSERVER_TEST=platform-1").is_empty() {
            thread::yield_now();
        }
        assert_eq!(with_variable(&ids, "_MLSERVER_TEST=platform-1"), BTreeSet::from([id(&child)]));
        for other in ["_MLSERVER_TEST=platform-", "_MLSERVER_TEST=platform-10", "MLSERVER_TEST=platform-1"] {
            assert!(with_variable(&ids, other).is_empty(), "{other}");
        }
        assert!(with_variable(&BTreeSet::from([own_id()]), "_MLSERVER_TEST=platform-1").is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn platform_measures_memory() {
        let before = resident_memory(own_id()).unwrap();
        assert!(before > 1 << 20, "{before}");
        let taken = vec![1_u8; 64 << 20];
        let after = resident_memory(own_id()).unwrap();
        assert!(after > before + (32 << 20), "{before} {after} {}", taken.len());
        assert_eq!(resident_memory(i32::MAX), None);
        assert!(memory_limit().unwrap() > 16 << 20);
    }

    #[test]
    fn platform_port_owner_is_this_process() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let owner = port_owner(listener.local_addr().unwrap().port()).unwrap();
        assert_eq!(owner.id, std::process::id());
        assert!(!owner.name.is_empty());
    }
}
