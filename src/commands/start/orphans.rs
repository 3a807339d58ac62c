//! The processes that models have started: orphans are reaped, and what is left is killed when the server ends.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::processes::{self, RunningProcess};
use crate::shutdown::spawn_supervised;

/// How often to look. The server's own children are reaped within milliseconds, so that a child which is a zombie twice in
/// a row is an orphan.
const INTERVAL: Duration = Duration::from_secs(5);

/// The processes below this one. Those that are left are killed when it is dropped.
#[derive(Debug)]
pub(in crate::commands) struct Orphans {
    /// Those that a script had started before it became the server.
    before: BTreeSet<RunningProcess>,
}

impl Orphans {
    /// Makes the server the parent of all orphans, and reaps them as long as it runs.
    pub(in crate::commands) fn adopt() -> Self {
        let before = processes::below(own_id());
        processes::adopt_orphans();
        drop(spawn_supervised("reaper of orphans", reap()));
        Self { before }
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        processes::kill(|| {
            let others = self.before.iter().flat_map(|process| processes::below(process.id()));
            let others: BTreeSet<_> = others.chain(self.before.iter().copied()).collect();
            &processes::below(own_id()) - &others
        });
    }
}

fn own_id() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

async fn reap() {
    let mut before = BTreeSet::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        // Looking at all processes takes long on large machines. Fails only if it panics.
        let zombies = tokio::task::spawn_blocking(processes::zombies).await.unwrap_or_default();
        for orphan in zombies.intersection(&before) {
            processes::reap(*orphan);
        }
        before = zombies;
    }
}
