//! The division of the open files that the system allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::disk::THREADS;

/// Descriptors in use regardless of clients: standard streams, signals, timers, the runtime, the
/// directory, the certificate while it is reloaded.
const BASE: usize = 64;

/// Sockets, timers and event queues of a shard.
const PER_SHARD: usize = 8;

/// Descriptors that one thread has open while it works: the file, its directory, and one more
/// during path resolution.
const PER_THREAD: usize = 3;

/// A file and its directory.
const PER_UPLOAD: usize = 2;

/// Maximum number of simultaneous uploads, however many files may be open.
const MOST_UPLOADS: usize = 1_024;

/// Maximum number of files that stay open, however many may be.
const MOST_OPEN: usize = 16_384;

/// The division of the open files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Descriptors {
    /// Downloads that keep their file open. The others open it for each piece.
    pub(in crate::serve) open_files: usize,
    /// Uploads that have a file. The others wait.
    pub(in crate::serve) uploads: usize,
}

impl Descriptors {
    /// Raises the limit on open files as far as the system allows (`RLIMIT_NOFILE`), and divides
    /// it.
    pub(in crate::serve) fn raise(shards: usize) -> Self {
        let limit = getrlimit(Resource::Nofile);
        let raised = Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        };
        let granted = match setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        let granted = granted.map_or(usize::MAX, |most| {
            usize::try_from(most).unwrap_or(usize::MAX)
        });
        Self::divide(granted, shards)
    }

    /// Half of the remainder stays open for downloads, a quarter is for uploads, and a quarter is a
    /// reserve, in case the library needs more than it does today.
    fn divide(limit: usize, shards: usize) -> Self {
        let reserved = BASE + PER_SHARD * shards + PER_THREAD * THREADS;
        let rest = limit.saturating_sub(reserved);
        Self {
            open_files: (rest / 2).min(MOST_OPEN),
            uploads: (rest / 4 / PER_UPLOAD).clamp(1, MOST_UPLOADS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_never_exceed_the_descriptor_limit() {
        for limit in [256, 1_024, 4_096, 1 << 20, usize::MAX] {
            for shards in [1, 4] {
                let divided = Descriptors::divide(limit, shards);
                let reserved = BASE + PER_SHARD * shards + PER_THREAD * THREADS;
                let used = reserved + divided.open_files + PER_UPLOAD * divided.uploads;
                assert!(used <= limit, "{limit}: {divided:?}");
            }
        }
        let usual = Descriptors::divide(1_024, 1);
        assert_eq!((usual.open_files, usual.uploads), (452, 113));
        // With a very low limit, at least one upload at a time is possible.
        assert_eq!(Descriptors::divide(16, 1).uploads, 1);
    }
}
