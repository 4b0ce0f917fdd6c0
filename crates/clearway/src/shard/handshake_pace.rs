//! When the next handshake of a new client may begin, and the next timeout of a silent one be handled.
//!
//! A handshake cannot be interrupted, and a request takes several turns. If each turn began one, a
//! flood of them would take most of the time from connections whose requests take little. So while
//! connections transfer data, a pause as long as the handshake follows each: floods take at most
//! half of the time. Beside downloads and uploads, which take many turns each, the pause is three
//! times as long. It is kept even if nothing is to be done in it, because the next request is about
//! to arrive.
//!
//! After an abandoned handshake several probes follow, which together take as long as it did.
//! Timeouts of [silent clients](super::overdue) are paced like handshakes, and take turns with them. What
//! connections that have transferred nothing yet take besides is part of what the next of either costs.

use std::time::Duration;

use clearway_quic::Instant;

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct HandshakePace {
    /// The end of the last handshake or timeout.
    ended: Instant,
    /// What that took, and before it connections that have transferred nothing yet.
    cost: Duration,
    /// What such connections have taken since.
    unused: Duration,
    /// The last one was a timeout.
    timeout_was_last: bool,
    /// When a connection last transferred stream data.
    transferred_at: Option<Instant>,
    /// When one last transferred [`BULK`] bytes in a turn.
    bulk_at: Option<Instant>,
    /// When a client of a quiet source last began without waiting for the end of the pause.
    quiet_at: Option<Instant>,
}

/// Bytes of stream data in a turn that show a download or an upload.
const BULK: u64 = 16 << 10;

/// Handshakes begun in each turn while connections transfer data. At some 0.2 ms each, several
/// would delay these in each of the round trips that a download takes to reach its rate.
const ONE_BY_ONE: usize = 1;

/// Handshakes begun in each turn otherwise. The first flights of several leave in one system call,
/// and the socket is looked at once for all of them.
const TOGETHER: usize = 3;

/// Timeouts of silent clients handled in each turn while nobody transfers data, so that it remains
/// short.
const TIMEOUTS_TOGETHER: usize = 16;

/// How long after its last transfer a connection is expected to go on.
const TRANSFER_WINDOW: Duration = Duration::from_millis(1);

/// The same for downloads and uploads, whose next round trip takes as long as the peer takes to get
/// the processor, and as what waits in the socket before its answer.
const BULK_WINDOW: Duration = Duration::from_millis(8);

/// The pause after a handshake or timeout beside downloads and uploads, as a multiple of what it took.
const BULK_PAUSE: u32 = 3;

/// The most that a handshake is taken to have cost, so that one interrupted by other programs does
/// not keep clients waiting.
const MAX_COST: Duration = Duration::from_millis(1);

/// The time between two clients of quiet sources that begin whatever else goes on: two hundred a second take
/// a twentieth of the time.
const QUIET_INTERVAL: Duration = Duration::from_millis(5);

impl HandshakePace {
    /// Records that a handshake took the time from `began` until `ended`.
    pub(super) fn on_handshake(&mut self, began: Instant, ended: Instant) {
        self.record(began, ended);
        self.timeout_was_last = false;
    }

    /// Returns whether a client whose source has begun no handshake recently may begin now, pause or not. Somebody
    /// waits for it, unless it is one of a flood from ever new sources, and then it is one of few.
    pub(super) fn may_begin_quiet(&self, now: Instant) -> bool {
        !is_recent(self.quiet_at, now, QUIET_INTERVAL)
    }

    /// Records that one begins.
    pub(super) fn on_quiet(&mut self, now: Instant) {
        self.quiet_at = Some(now);
    }

    /// Records that a client that waited did not begin a handshake, which ends its turn: a flood of clients
    /// that are turned away does not keep timeouts waiting.
    pub(super) fn on_turned_away(&mut self) {
        self.timeout_was_last = false;
    }

    /// Records that the handling of a silent client's timeout took the time from `began` until `ended`.
    pub(super) fn on_timeout(&mut self, began: Instant, ended: Instant) {
        self.record(began, ended);
        self.timeout_was_last = true;
    }

    fn record(&mut self, began: Instant, ended: Instant) {
        let unused = std::mem::take(&mut self.unused);
        self.cost = ended
            .saturating_since(began)
            .saturating_add(unused)
            .min(MAX_COST);
        self.ended = ended;
    }

    /// Records that a connection that has transferred nothing yet has taken `time`. It is part of
    /// what handshakes cost: one that is abandoned afterwards is probed several times.
    pub(super) fn on_unused(&mut self, time: Duration) {
        self.unused = self.unused.saturating_add(time).min(MAX_COST);
    }

    /// Records that a handshake begins which is not timed.
    pub(super) fn on_untimed_handshake(&mut self, now: Instant) {
        self.ended = now + self.cost;
        self.timeout_was_last = false;
    }

    /// Records that a connection has transferred `moved` bytes of stream data in a turn.
    pub(super) fn on_transfer(&mut self, now: Instant, moved: u64) {
        self.transferred_at = Some(now);
        if moved >= BULK {
            self.bulk_at = Some(now);
        }
    }

    /// Returns the end of the pause, if there is one at `now`.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        let pause = if self.is_beside_bulk(now) {
            self.cost.saturating_mul(BULK_PAUSE)
        } else {
            self.cost
        };
        let resume_at = self.ended + pause;
        (self.is_beside_transfers(now) && now < resume_at).then_some(resume_at)
    }

    /// Returns how many handshakes may begin in one turn.
    pub(super) fn per_turn(&self, now: Instant) -> usize {
        if self.is_beside_transfers(now) {
            ONE_BY_ONE
        } else {
            TOGETHER
        }
    }

    /// Returns how many timeouts of silent clients may be handled in one turn, if new clients wait or not.
    pub(super) fn timeouts_per_turn(&self, now: Instant, clients_wait: bool) -> usize {
        if !self.is_beside_transfers(now) {
            TIMEOUTS_TOGETHER
        } else if self.pause(now).is_some() || clients_wait && self.timeout_was_last {
            0
        } else {
            ONE_BY_ONE
        }
    }

    /// Returns whether connections transfer data, which handshakes should not delay.
    pub(super) fn is_beside_transfers(&self, now: Instant) -> bool {
        is_recent(self.transferred_at, now, TRANSFER_WINDOW) || self.is_beside_bulk(now)
    }

    /// Returns whether connections download or upload.
    pub(super) fn is_beside_bulk(&self, now: Instant) -> bool {
        is_recent(self.bulk_at, now, BULK_WINDOW)
    }
}

/// Whether a time is less than `window` ago.
pub(super) fn is_recent(at: Option<Instant>, now: Instant, window: Duration) -> bool {
    at.is_some_and(|at| now.saturating_since(at) < window)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(5_000_000_000);

    #[test]
    fn pause_as_long_as_a_handshake_follows_it_while_data_is_transferred() {
        let mut pace = HandshakePace::default();
        let cost = Duration::from_micros(200);
        assert_eq!(pace.pause(NOW), None);
        pace.on_handshake(NOW, NOW + cost);
        // Nobody else is there.
        assert_eq!(pace.pause(NOW + cost), None);
        pace.on_transfer(NOW, 1);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 2));
        assert_eq!(pace.pause(NOW + cost * 2), None);
        pace.on_untimed_handshake(NOW + cost * 3);
        assert_eq!(pace.pause(NOW + cost * 3), Some(NOW + cost * 5));
        assert_eq!(pace.per_turn(NOW + cost), 1);
        // The transfer was long ago.
        assert!(pace.per_turn(NOW + TRANSFER_WINDOW) > 1);
        pace.on_untimed_handshake(NOW + TRANSFER_WINDOW);
        assert_eq!(pace.pause(NOW + TRANSFER_WINDOW), None);
        // The machine was busy with something else.
        pace.on_handshake(NOW, NOW + Duration::from_secs(1));
        pace.on_transfer(NOW + Duration::from_secs(1), 1);
        let end = NOW + Duration::from_secs(1) + MAX_COST;
        assert_eq!(pace.pause(NOW + Duration::from_secs(1)), Some(end));
    }

    #[test]
    fn pause_is_three_times_as_long_beside_bulk_transfers() {
        let mut pace = HandshakePace::default();
        let cost = Duration::from_micros(200);
        pace.on_handshake(NOW, NOW + cost);
        pace.on_transfer(NOW, BULK);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 4));
        assert_eq!(pace.pause(NOW + cost * 4), None);
        pace.on_untimed_handshake(NOW + cost * 4);
        assert_eq!(pace.pause(NOW + cost * 4), Some(NOW + cost * 8));
        // Only short requests go on.
        let late = NOW + BULK_WINDOW;
        pace.on_untimed_handshake(late - cost);
        assert!(pace.pause(late - cost).is_some());
        assert_eq!(pace.pause(late), None);
        pace.on_transfer(late, BULK - 1);
        assert_eq!(pace.pause(late), Some(late + cost));
    }

    #[test]
    fn connections_that_have_transferred_nothing_lengthen_the_pause() {
        let mut pace = HandshakePace::default();
        let cost = Duration::from_micros(200);
        pace.on_transfer(NOW, 1);
        pace.on_unused(cost);
        pace.on_unused(cost);
        pace.on_handshake(NOW, NOW + cost);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 4));
        // They are paid for.
        pace.on_handshake(NOW, NOW + cost);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 2));
        // However many there are, newcomers get a turn.
        (0..1_000).for_each(|_| pace.on_unused(cost));
        pace.on_handshake(NOW, NOW + cost);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost + MAX_COST));
    }

    #[test]
    fn client_of_a_quiet_source_begins_in_the_pause_but_few_of_them_do() {
        let mut pace = HandshakePace::default();
        pace.on_transfer(NOW, BULK);
        pace.on_handshake(NOW, NOW + MAX_COST);
        assert!(pace.pause(NOW).is_some());
        assert!(pace.may_begin_quiet(NOW));
        pace.on_quiet(NOW);
        assert!(!pace.may_begin_quiet(NOW + QUIET_INTERVAL / 2));
        assert!(pace.may_begin_quiet(NOW + QUIET_INTERVAL));
    }

    #[test]
    fn timeouts_of_silent_clients_are_paced_and_take_turns_with_handshakes() {
        let mut pace = HandshakePace::default();
        let cost = Duration::from_micros(20);
        assert_eq!(pace.timeouts_per_turn(NOW, true), TIMEOUTS_TOGETHER);
        pace.on_transfer(NOW, BULK);
        assert_eq!(pace.timeouts_per_turn(NOW, true), 1);
        pace.on_timeout(NOW, NOW + cost);
        // What it sends is charged afterwards.
        pace.on_unused(cost);
        assert_eq!(pace.pause(NOW + cost), Some(NOW + cost * 4));
        assert_eq!(pace.timeouts_per_turn(NOW + cost, false), 0);
        let now = NOW + cost * 4;
        assert_eq!(pace.timeouts_per_turn(now, false), 1);
        assert_eq!(pace.timeouts_per_turn(now, true), 0, "a client is next");
        pace.on_handshake(now, now + cost);
        assert_eq!(pace.pause(now + cost), Some(now + cost * 7));
        let now = now + cost * 7;
        assert_eq!(pace.timeouts_per_turn(now, true), 1);
        pace.on_timeout(now, now);
        pace.on_untimed_handshake(now);
        assert_eq!(pace.timeouts_per_turn(now, true), 1);
    }
}
