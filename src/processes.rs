//! The processes below this one, which the code of models has started, and which outlive the worker that started them.
//!
//! A process group is not enough: pools, daemons and `start_new_session` leave it. So the server is the parent of all orphans
//! below it (`PR_SET_CHILD_SUBREAPER`), and a variable in the environment, which processes inherit, says which worker they
//! belong to.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, set_child_subreaper, waitid, waitpid,
};

/// How often processes are looked for and killed. Each round ends those that the killed ones have started meanwhile.
const ROUNDS: u32 = 100;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(10);
/// The most bytes of an environment that are searched.
const MAX_ENVIRONMENT: u64 = 4 << 20;

/// A process that has not exited. Its start distinguishes it from another one that gets its id later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningProcess {
    id: i32,
    /// In ticks of the clock since the system was started.
    started: u64,
}

impl RunningProcess {
    /// Returns the process id.
    pub const fn id(&self) -> i32 {
        self.id
    }
}

/// A row of the table of processes.
struct ProcessRow {
    process: RunningProcess,
    parent: i32,
    is_zombie: bool,
}

/// Makes this process the parent of all orphans below it. They are its to reap: see [`zombies`].
pub fn adopt_orphans() {
    // Fails only on kernels before 3.4; init adopts them then.
    let _ = set_child_subreaper(Some(getpid()));
}

/// Returns the running processes below a process, without itself.
pub fn below(id: i32) -> BTreeSet<RunningProcess> {
    descendants(&table(), id)
}

/// Returns the running processes below this one whose environment has a variable.
pub fn with_variable(name: &str, value: &str) -> BTreeSet<RunningProcess> {
    let wanted = format!("{name}={value}");
    let mut found = below(getpid().as_raw_nonzero().get());
    found.retain(|process| has_variable(process.id, wanted.as_bytes()));
    found
}

/// Returns the children of this process that have exited and have not been reaped.
pub fn zombies() -> BTreeSet<i32> {
    // Looking at all processes takes long on large machines. Fails if there are no children.
    let any = waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT);
    if !matches!(any, Ok(Some(_))) {
        return BTreeSet::new();
    }
    let own = getpid().as_raw_nonzero().get();
    let zombies = table().into_iter().filter(|row| row.is_zombie && row.parent == own);
    zombies.map(|row| row.process.id).collect()
}

/// Reaps a child that has exited. Returns whether there is nothing left to reap.
pub fn reap(id: i32) -> bool {
    // Fails if something else has reaped it.
    !matches!(waitpid(Pid::from_raw(id), WaitOptions::NOHANG), Ok(None))
}

/// Kills the processes that `find` returns, and reaps those that are children of this one, until there are none. Blocks, for a
/// second at most.
#[expect(clippy::disallowed_methods, reason = "its callers run on threads that may block, or end the process")]
pub fn kill(mut find: impl FnMut() -> BTreeSet<RunningProcess>) {
    let mut killed = BTreeSet::new();
    for _ in 0..ROUNDS {
        let found = find();
        for process in &found {
            if let Some(id) = Pid::from_raw(process.id) {
                // Fails if it has ended meanwhile, or belongs to another user.
                let _ = kill_process(id, Signal::KILL);
                killed.insert(process.id);
            }
        }
        killed.retain(|&id| !reap(id));
        if found.is_empty() && killed.is_empty() {
            return;
        }
        std::thread::sleep(BETWEEN_ROUNDS);
    }
}

/// Returns those of some processes that still run.
pub fn still_running(processes: &BTreeSet<RunningProcess>) -> BTreeSet<RunningProcess> {
    processes.iter().copied().filter(|process| row(process.id).is_some_and(|row| row.is(process))).collect()
}

impl ProcessRow {
    fn is(&self, process: &RunningProcess) -> bool {
        self.process == *process && !self.is_zombie
    }
}

fn descendants(table: &[ProcessRow], id: i32) -> BTreeSet<RunningProcess> {
    let mut children: BTreeMap<i32, Vec<&ProcessRow>> = BTreeMap::new();
    for row in table {
        children.entry(row.parent).or_default().push(row);
    }
    let (mut found, mut waiting, mut seen) = (BTreeSet::new(), vec![id], BTreeSet::new());
    while let Some(id) = waiting.pop() {
        // The table is not read at one moment, so it may have a circle.
        if !seen.insert(id) {
            continue;
        }
        for row in children.get(&id).into_iter().flatten() {
            waiting.push(row.process.id);
            if !row.is_zombie {
                found.insert(row.process);
            }
        }
    }
    found
}

fn table() -> Vec<ProcessRow> {
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries.filter_map(|entry| row(entry.ok()?.file_name().to_str()?.parse().ok()?)).collect()
}

fn row(id: i32) -> Option<ProcessRow> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The name, in parentheses, may contain anything; the state and the parent follow it.
    let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
    let (state, parent, started) = (fields.first()?, fields.get(1)?, fields.get(19)?);
    let process = RunningProcess { id, started: started.parse().ok()? };
    Some(ProcessRow { process, parent: parent.parse().ok()?, is_zombie: matches!(*state, "Z" | "X") })
}

fn has_variable(id: i32, wanted: &[u8]) -> bool {
    use std::io::Read;
    let mut environment = Vec::new();
    let Ok(file) = fs::File::open(format!("/proc/{id}/environ")) else { return false };
    // Fails if the process has ended.
    let _ = file.take(MAX_ENVIRONMENT).read_to_end(&mut environment);
    environment.split(|&byte| byte == 0).any(|variable| variable == wanted)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn running(id: i32) -> RunningProcess {
        RunningProcess { id, started: 1 }
    }

    #[test]
    fn descendants_are_found_through_zombies_and_circles() {
        let row = |id, parent, is_zombie| ProcessRow { process: running(id), parent, is_zombie };
        let table =
            [row(2, 1, false), row(3, 2, true), row(4, 3, false), row(5, 1, false), row(6, 7, false), row(7, 6, false)];
        assert_eq!(descendants(&table, 2), BTreeSet::from([running(4)]));
        assert_eq!(descendants(&table, 1), BTreeSet::from([running(2), running(4), running(5)]));
        assert_eq!(descendants(&table, 6), BTreeSet::from([running(6), running(7)]));
        assert!(descendants(&table, 9).is_empty());
    }

    #[test]
    fn processes_are_found_by_their_variable_and_killed() {
        let value = format!("{}-test", std::process::id());
        let mut child = Command::new("/bin/sh");
        child.args(["-c", "sleep 1000 & sleep 1000; true"]).env("_MLSERVER_TEST", &value);
        let mut child = child.spawn().unwrap();
        let find = || with_variable("_MLSERVER_TEST", &value);
        while find().len() < 3 {
            std::thread::yield_now();
        }
        let found = find();
        assert_eq!(still_running(&found), found);
        assert!(with_variable("_MLSERVER_TEST", "other").is_empty());
        kill(find);
        assert!(find().is_empty() && still_running(&found).is_empty());
        // Fails, because it has been reaped.
        let _ = child.wait();
    }
}
