//! Reaps processes that have been orphaned, if the server is the first process of a container.
//!
//! The kernel makes that process the parent of every orphan, such as the processes of a model whose worker has been
//! killed. Nobody else waits for them, so they would remain as zombies.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};

use crate::shutdown::spawn_supervised;

/// How often to look. The server's own children are reaped within milliseconds, so that a child which is a zombie twice in
/// a row is an orphan.
const INTERVAL: Duration = Duration::from_secs(5);

/// Reaps orphans as long as the server runs, if it is the first process.
pub(super) fn reap_if_first() {
    if std::process::id() == 1 {
        drop(spawn_supervised("reaper of orphans", reap()));
    }
}

async fn reap() {
    let mut before = Vec::new();
    loop {
        tokio::time::sleep(INTERVAL).await;
        let zombies = zombies_of(1);
        for orphan in zombies.iter().filter(|zombie| before.contains(*zombie)) {
            // Fails only if something else has reaped it.
            let _ = waitpid(Pid::from_raw(*orphan), WaitOptions::NOHANG);
        }
        before = zombies;
    }
}

/// Returns the children of a process that have exited and that nobody has reaped.
fn zombies_of(parent: i32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").into_iter().flatten();
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| {
        // The name, in parentheses, may contain anything; the state and the parent follow it.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        fields.next() == Some("Z") && fields.next().and_then(|found| found.parse().ok()) == Some(parent)
    })
    .collect()
}
