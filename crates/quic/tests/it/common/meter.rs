//! How much memory an end holds at most.

use clearway_quic::Role;
use clearway_quic::connection::{Connection, MemoryUsage};

use super::Host;

/// The most memory that one end held, weighed after every step, and the bound
/// it is checked against when the world ends.
pub struct Meter {
    pub(super) role: Role,
    pub bound: usize,
    pub peak: usize,
    /// What the newest connection was made of then.
    parts: MemoryUsage,
    weighings: u64,
}

impl Meter {
    /// Weighs `role`'s end.
    pub fn new(role: Role, bound: usize) -> Self {
        Self {
            role,
            bound,
            peak: 0,
            parts: MemoryUsage::default(),
            weighings: 0,
        }
    }

    pub(super) fn weigh(&mut self, host: &Host) {
        let held = host.memory();
        self.weighings += 1;
        if held > self.peak {
            self.peak = held;
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
            weighings,
        } = *self;
        assert!(weighings > 0, "the {role:?} was never weighed");
        assert!(
            peak <= bound,
            "the {role:?} held {peak} bytes, over {bound}: {parts:?}"
        );
    }
}
