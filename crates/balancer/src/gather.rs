//! Letting messages gather, so that a busy shard does not wake for every few of them.

use std::time::Duration;

/// How long a shard waits. The system adds up to 50 µs, the slack of its timers. Network cards
/// delay interrupts by as much.
pub(crate) const WAIT: Duration = Duration::from_micros(50);

/// Messages that are enough for one wake-up: as many as one receive call takes.
const ENOUGH: u64 = 32;

/// Time for each message below which a wait brings several: at more than 40,000 messages a second.
const EACH: Duration = Duration::from_micros(25);

/// Decides when a shard waits. A wake-up costs some microseconds of processor time, as much as
/// two single datagrams.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// When the shard woke last.
    woken: Duration,
}

impl Gathering {
    /// Returns whether to let messages gather before the next look, after the shard woke at `now`
    /// and found so many.
    pub(crate) fn is_worthwhile(&mut self, now: Duration, messages: u64) -> bool {
        let interval = now.saturating_sub(std::mem::replace(&mut self.woken, now));
        // At such a rate what one message costs is more than the delay of its neighbours.
        let often = u32::try_from(messages).is_ok_and(|messages| interval < EACH * messages);
        messages < ENOUGH && often
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Duration {
        Duration::from_secs(1) + Duration::from_micros(micros)
    }

    #[test]
    fn few_messages_in_quick_succession_are_waited_for() {
        let mut gathering = Gathering::default();
        assert!(!gathering.is_worthwhile(at(0), 1), "the first for long");
        assert!(gathering.is_worthwhile(at(20), 1));
        assert!(gathering.is_worthwhile(at(120), 5), "after a wait");
        assert!(!gathering.is_worthwhile(at(220), 3), "30,000 a second");
    }

    #[test]
    fn idle_and_saturated_shards_do_not_wait() {
        let mut gathering = Gathering::default();
        gathering.is_worthwhile(at(0), 1);
        assert!(!gathering.is_worthwhile(at(10), 0), "nothing came");
        assert!(
            !gathering.is_worthwhile(at(20), 32),
            "more is waiting already"
        );
        assert!(!gathering.is_worthwhile(at(30), u64::MAX));
        // A train each millisecond is one message.
        assert!(!gathering.is_worthwhile(at(1_030), 1));
    }
}
