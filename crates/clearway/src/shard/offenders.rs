//! Sources whose connections end with errors of their own, again and again.
//!
//! A connection that floods is closed, and its client may begin the next one at once. If a
//! handshake and what a client may do before it is noticed take all of the time, nothing is
//! won. So the clients of such a source wait while others are served: for several times as
//! long as the connections used that have ended this way.
//!
//! They are not refused: others may share their address, and a client with a fault of its own
//! is worth an answer when there is nothing else to do.

use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::endpoint::Source;
use rustc_hash::FxHashMap;

/// Connections that have ended so lately, after which a source is an offender.
const MANY: u8 = 8;

/// The interval at which their counts are halved.
const HALF_LIFE: Duration = Duration::from_secs(8);

/// Most sources that are known. Only a client that has completed a handshake gets its source
/// here, so that none is here for a forged address; further sources are not found out.
const CAPACITY: usize = 1 << 10;

/// The pause after an offender's connection, as a multiple of the time that it used: more than the
/// share that they should have asks for, because the time of its requests' handlers is not counted.
const PAUSE: u32 = 32;

/// The longest pause in advance: a client gives up after some ten seconds.
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// How long after the last transfer of somebody else offenders have to wait.
const OTHERS_WINDOW: Duration = Duration::from_secs(1);

/// Counts of connections that have ended with an error of the client, by source.
#[derive(Debug, Default)]
pub(super) struct Offenders {
    counts: FxHashMap<Source, u8>,
    halve_at: Instant,
    /// When a connection of another source last transferred stream data.
    others_at: Option<Instant>,
    /// When the next client of an offender may begin.
    resume_at: Instant,
}

impl Offenders {
    /// Records that a connection of the source ended with an error of the client, after it had
    /// used `time` of the event loop.
    pub(super) fn record(&mut self, now: Instant, source: Source, time: Duration) {
        self.forget(now);
        if self.counts.len() < CAPACITY || self.counts.contains_key(&source) {
            let count = self.counts.entry(source).or_default();
            *count = count.saturating_add(1);
        }
        let pause = time.saturating_mul(PAUSE);
        self.resume_at = (self.resume_at.max(now) + pause).min(now + MAX_PAUSE);
    }

    /// Whether clients of the source have to wait for those of others.
    pub(super) fn contains(&mut self, now: Instant, source: Source) -> bool {
        self.forget(now);
        self.counts.get(&source).is_some_and(|count| *count >= MANY)
    }

    /// Records that a connection of a source that is no offender has transferred stream data.
    pub(super) fn on_transfer_of_others(&mut self, now: Instant) {
        self.others_at = Some(now);
    }

    /// Returns when the next client of an offender may begin, if it has to wait.
    pub(super) fn pause(&self, now: Instant) -> Option<Instant> {
        let others_end = self.others_at? + OTHERS_WINDOW;
        let end = self.resume_at.min(others_end);
        (now < end).then_some(end)
    }

    fn forget(&mut self, now: Instant) {
        if now >= self.halve_at {
            self.halve_at = now + HALF_LIFE;
            self.counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(50_000_000_000);
    const USED: Duration = Duration::from_millis(2);

    fn source(n: u16) -> Source {
        let [a, b] = n.to_be_bytes();
        Source::of(std::net::Ipv4Addr::new(10, 0, a, b).into())
    }

    #[test]
    fn source_is_an_offender_after_eight_connections_and_until_they_are_long_past() {
        let mut offenders = Offenders::default();
        for ended in 0..8 {
            assert!(!offenders.contains(NOW, source(1)), "{ended}");
            offenders.record(NOW, source(1), USED);
        }
        assert!(offenders.contains(NOW, source(1)));
        assert!(!offenders.contains(NOW, source(2)));
        assert!(offenders.contains(NOW + HALF_LIFE - Duration::from_nanos(1), source(1)));
        assert!(!offenders.contains(NOW + HALF_LIFE, source(1)));
    }

    #[test]
    fn pause_is_a_multiple_of_what_connections_used_and_ends_when_nobody_else_is_served() {
        let mut offenders = Offenders::default();
        offenders.record(NOW, source(1), USED);
        assert_eq!(offenders.pause(NOW), None, "nobody else is there");
        offenders.on_transfer_of_others(NOW);
        assert_eq!(offenders.pause(NOW), Some(NOW + USED * PAUSE));
        offenders.record(NOW, source(1), USED);
        assert_eq!(offenders.pause(NOW), Some(NOW + USED * PAUSE * 2));
        assert_eq!(offenders.pause(NOW + USED * PAUSE * 2), None);
        // However long it took, they get a turn again.
        offenders.record(NOW, source(1), Duration::from_secs(60));
        offenders.on_transfer_of_others(NOW + OTHERS_WINDOW);
        let late = NOW + OTHERS_WINDOW;
        assert_eq!(offenders.pause(late), Some(NOW + MAX_PAUSE));
        // The others have gone.
        offenders.on_transfer_of_others(NOW);
        assert_eq!(offenders.pause(NOW), Some(NOW + OTHERS_WINDOW));
        assert_eq!(offenders.pause(NOW + OTHERS_WINDOW), None);
    }

    #[test]
    fn sources_beyond_the_capacity_are_not_recorded_and_forgotten_ones_make_room() {
        let mut offenders = Offenders::default();
        for number in 0..=CAPACITY as u16 {
            (0..MANY).for_each(|_| offenders.record(NOW, source(number), USED));
        }
        assert_eq!(offenders.counts.len(), CAPACITY);
        assert!(offenders.contains(NOW, source(0)));
        assert!(!offenders.contains(NOW, source(CAPACITY as u16)));
        let mut later = NOW;
        for _ in 0..4 {
            later += HALF_LIFE;
            assert!(!offenders.contains(later, source(0)));
        }
        assert!(offenders.counts.is_empty());
    }
}
