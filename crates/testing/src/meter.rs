//! The largest memory of one end.

use clearway_quic::Role;
use clearway_quic::connection::{Connection, MemoryUsage};

use super::Host;

/// Records the largest memory of one end after every step, and checks it against a bound when the
/// world is dropped.
#[derive(Debug)]
pub struct Meter {
    pub(super) role: Role,
    /// The most that the end may use, bytes.
    pub bound: usize,
    /// The most that it has used so far, bytes.
    pub peak: usize,
    /// The memory of the newest connection at the peak.
    parts: MemoryUsage,
    measurements: u64,
}

impl Meter {
    /// Creates a meter for the end `role`.
    #[must_use]
    pub fn new(role: Role, bound: usize) -> Self {
        Self {
            role,
            bound,
            peak: 0,
            parts: MemoryUsage::default(),
            measurements: 0,
        }
    }

    pub(super) fn measure<A>(&mut self, host: &Host<A>) {
        let used = host.memory();
        self.measurements += 1;
        if used > self.peak {
            self.peak = used;
            let newest = host.connections.values().next_back();
            self.parts = newest.map(Connection::memory_usage).unwrap_or_default();
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let Self {
            role,
            bound,
            peak,
            parts,
            measurements,
        } = *self;
        assert!(
            measurements > 0,
            "the memory of the {role:?} was never measured"
        );
        assert!(
            peak <= bound,
            "the {role:?} used {peak} bytes, over the bound of {bound}: {parts:?}"
        );
    }
}
