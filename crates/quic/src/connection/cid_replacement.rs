//! When the connection IDs that we issued are replaced.

use super::Connection;
use super::state::HandshakeState;
use crate::Instant;
use crate::cid::generator::CidGenerator;

/// When the connection IDs of a connection are due to be replaced: after their lifetime, or when
/// the generator's configuration changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct CidReplacement {
    /// The generator's generation when the connection IDs were issued.
    generation: u32,
    /// When their lifetime ends, in whole seconds since [`Instant::ZERO`]: every connection
    /// holds this, and 32 bits are enough for 136 years. The largest value stands for never.
    end: u32,
}

/// Stands for connection IDs that have no lifetime.
const NEVER: u32 = u32::MAX;

impl CidReplacement {
    pub(super) fn new(now: Instant, generator: &dyn CidGenerator) -> Self {
        Self {
            generation: generator.generation(),
            end: generator
                .lifetime()
                .map_or(NEVER, |lifetime| seconds(now + lifetime)),
        }
    }

    fn is_due(&self, now: Instant, generator: &dyn CidGenerator) -> bool {
        let ended = self.end != NEVER && seconds(now) >= self.end;
        ended || self.generation != generator.generation()
    }
}

fn seconds(at: Instant) -> u32 {
    let since = at.saturating_since(Instant::ZERO).as_secs();
    u32::try_from(since).map_or(NEVER - 1, |seconds| seconds.min(NEVER - 1))
}

impl Connection {
    /// Replaces our connection IDs if that is due. It waits for a packet of the peer, so that a
    /// quiet connection is not woken, and for the end of an earlier replacement.
    pub(super) fn replace_due_cids(&mut self, now: Instant) {
        let generator = self.generator.as_ref();
        if !self.cid_replacement.is_due(now, generator)
            || self.lifecycle.handshake == HandshakeState::Running
        {
            return;
        }
        let replacement = CidReplacement::new(now, generator);
        if self.frames.local_cids.rotate() {
            self.cid_replacement = replacement;
            self.issue_cids();
        }
    }
}
