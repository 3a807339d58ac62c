//! The processes below this one, which the code of models has started, and which outlive the worker that started them.
//!
//! A process group is not enough: pools, daemons and `start_new_session` leave it. So the server is the parent of all orphans
//! below it where the system can do that (`PR_SET_CHILD_SUBREAPER`), and a variable in the environment, which processes inherit, says
//! which worker they belong to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, waitid, waitpid};

use crate::platform::{self, ProcessRow};

/// How often processes are looked for and killed. Each round ends those that the killed ones have started meanwhile.
const ROUNDS: u32 = 100;
const BETWEEN_ROUNDS: Duration = Duration::from_millis(10);

/// A process that has not exited. Its start distinguishes it from another one that gets its id later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningProcess {
    id: i32,
    started: u64,
}

impl RunningProcess {
    /// Returns the process id.
    pub const fn id(&self) -> i32 {
        self.id
    }
}

/// Makes this process the parent of all orphans below it, if the system can do that. They are its to reap: see [`zombies`].
pub fn adopt_orphans() {
    platform::adopt_orphans();
}

/// Returns the running processes below a process, without itself.
pub fn below(id: i32) -> BTreeSet<RunningProcess> {
    descendants(&platform::processes(), id)
}

/// Returns the running processes that this one and those below it have started with a variable in their environment.
pub fn with_variable(name: &str, value: &str) -> BTreeSet<RunningProcess> {
    let table = platform::processes();
    // Orphans are below this process only if it adopts them.
    let mut found = if platform::ADOPTS_ORPHANS {
        descendants(&table, getpid().as_raw_nonzero().get())
    } else {
        table.iter().filter_map(running).collect()
    };
    let ids = platform::with_variable(&found.iter().map(RunningProcess::id).collect(), &format!("{name}={value}"));
    found.retain(|process| ids.contains(&process.id));
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
    let zombies = platform::processes().into_iter().filter(|row| row.is_zombie && row.parent == own);
    zombies.map(|row| row.id).collect()
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
    let rows = platform::processes_of(&processes.iter().map(RunningProcess::id).collect());
    let running: BTreeSet<RunningProcess> = rows.iter().filter_map(running).collect();
    processes & &running
}

fn running(row: &ProcessRow) -> Option<RunningProcess> {
    (!row.is_zombie).then_some(RunningProcess { id: row.id, started: row.started })
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
            waiting.push(row.id);
            found.extend(running(row));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn process(id: i32) -> RunningProcess {
        RunningProcess { id, started: 1 }
    }

    #[test]
    fn descendants_are_found_through_zombies_and_circles() {
        let row = |id, parent, is_zombie| ProcessRow { id, parent, started: 1, is_zombie };
        let table =
            [row(2, 1, false), row(3, 2, true), row(4, 3, false), row(5, 1, false), row(6, 7, false), row(7, 6, false)];
        assert_eq!(descendants(&table, 2), BTreeSet::from([process(4)]));
        assert_eq!(descendants(&table, 1), BTreeSet::from([process(2), process(4), process(5)]));
        assert_eq!(descendants(&table, 6), BTreeSet::from([process(6), process(7)]));
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
