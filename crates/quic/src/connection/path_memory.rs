//! What a server has its clients remember of the path to them (RFC 9959 §3.1).
//!
//! It is part of the token that a client returns on its next connection (RFC 9000 §8.1.3). So a
//! server needs no table: what it measured is bounded, bound to the client's address, sealed, used
//! once, and known to every shard and every server with the same key.
//!
//! ```text
//! ACK ──► recovery: rate, round trip ──► NEW_TOKEN ──► the client's store
//!                                                            │ next connection
//! controller ◄── resume ◄── endpoint: age, address, once ◄── Initial
//! ```
//!
//! A client uses its newest token, so the last measurement counts; after a failed resumption
//! that is the one of the connection that failed.

use clearway_recovery::controller::SavedPath;

use super::network::{Context, Network};
use super::state::HandshakeState;
use crate::Instant;
use crate::crypto::MeasuredPath;

/// What the client was told last.
#[derive(Clone, Debug, Default)]
pub(super) struct PathMemory {
    /// In a place of its own, because few connections have any.
    told: Option<Box<MeasuredPath>>,
    /// Nothing more before this time.
    next: Instant,
}

impl PathMemory {
    /// Returns whether `measured` differs from what was told by enough: half as much again, or a
    /// quarter less.
    fn is_news(&self, measured: &SavedPath) -> bool {
        let Some(told) = &self.told else {
            return true;
        };
        let (told, measured) = (told.saved.capacity, measured.capacity);
        let (told, measured) = (u128::from(told), u128::from(measured));
        measured.saturating_mul(2) >= told.saturating_mul(3)
            || measured.saturating_mul(4) <= told.saturating_mul(3)
    }
}

impl Network {
    /// Queues a token for the client, if there is something new to remember. One is on its way at a
    /// time, and then there is none for a round trip.
    pub(super) fn remember_path(&mut self, cx: &mut Context<'_>) {
        // Another port of a balancer is another client.
        if cx.config.careful_resume.is_none()
            || !self.keeps_state_across_ports
            || cx.handshake != HandshakeState::Confirmed
            || cx.now < self.memory.next
            || !cx.frames.control.may_renew_token()
        {
            return;
        }
        let path = self.active_recovery();
        let (rtt, measured) = (path.rtt().smoothed(), path.to_save());
        let Some(saved) = measured.filter(|measured| self.memory.is_news(measured)) else {
            return;
        };
        let known = self.memory.told.as_ref().map(|told| told.connection);
        let measured = MeasuredPath {
            saved,
            connection: known.unwrap_or_else(|| cx.rng.array()),
        };
        self.memory = PathMemory {
            told: Some(Box::new(measured)),
            next: cx.now + rtt,
        };
        let ip = self.paths.active().remote.ip();
        let control = &mut cx.frames.control;
        control.remember_path(cx.now, ip, measured, cx.rng);
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;

    #[test]
    fn change_by_half_or_a_quarter_is_news() {
        let saved = |capacity| SavedPath {
            capacity,
            rtt: Duration::from_millis(50),
        };
        let told = |capacity| {
            Some(Box::new(MeasuredPath {
                saved: saved(capacity),
                connection: [1; 16],
            }))
        };
        assert!(PathMemory::default().is_news(&saved(1)));
        let memory = PathMemory {
            told: told(1_000),
            next: Instant::ZERO,
        };
        for (capacity, news) in [(750, true), (751, false), (1_499, false), (1_500, true)] {
            assert_eq!(memory.is_news(&saved(capacity)), news, "{capacity}");
        }
        let endless = PathMemory {
            told: told(u64::MAX),
            ..memory
        };
        assert!(!endless.is_news(&saved(u64::MAX)));
    }
}
