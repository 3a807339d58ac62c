//! The limit on open files, and how many connections fit into it.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::warn;

/// Connections are not limited to fewer than this: with less, nothing works anyway.
const FEWEST: u64 = 16;

/// The upper limit on the default of `max_connections`, however high the limit on open files is. Each connection takes about
/// 10 KiB of memory.
const MOST: u64 = 16_384;

/// Descriptors that are kept for other purposes: model files, pipes of workers, reserved listeners.
const RESERVED: u64 = 256;

/// What macOS allows a process (`OPEN_MAX`), even if the limit that it reports is higher or infinite.
const OPEN_MAX: u64 = 10_240;

/// Raises the limit on open files as far as the system allows, and returns it.
pub(super) fn raise_limit() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raise = |wanted: Option<u64>| {
        let is_more = current.is_some_and(|current| wanted.is_none_or(|wanted| wanted > current));
        let raised = is_more && setrlimit(Resource::Nofile, Rlimit { current: wanted, maximum }).is_ok();
        raised.then(|| wanted.unwrap_or(u64::MAX))
    };
    raise(maximum).or_else(|| raise(Some(OPEN_MAX))).or(current).unwrap_or(u64::MAX)
}

/// Returns the number of connections for a limit on open files: at most three quarters of it.
pub(super) fn default_connections(descriptors: u64) -> usize {
    let fit = descriptors.saturating_sub(RESERVED).min(descriptors / 4 * 3);
    usize::try_from(fit.clamp(FEWEST, MOST)).unwrap_or(usize::MAX)
}

/// Warns if the configured number of connections does not fit into the limit on open files.
pub(super) fn check(max_connections: usize, descriptors: u64) {
    if max_connections as u64 > descriptors.saturating_sub(RESERVED).max(FEWEST) {
        warn!(
            "`max_connections` is {max_connections}, but the process may only open {descriptors} files. Raise that limit \
             (`ulimit -n`), or lower `max_connections`."
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_connections_leave_descriptors_for_files_and_workers() {
        let table = [(0, 16), (256, 16), (300, 44), (1024, 768), (4096, 3072), (1 << 20, 16_384), (u64::MAX, 16_384)];
        for (descriptors, connections) in table {
            assert_eq!(default_connections(descriptors), connections, "{descriptors}");
        }
    }
}
