//! Letting messages gather, so that a busy shard does not wake for every few of them.

use std::time::Duration;

/// Longest time that a shard waits. The system adds up to 50 µs, the slack of its timers. Network cards
/// delay interrupts by as much at such rates.
const LONGEST: Duration = Duration::from_micros(200);

/// Messages that are enough for one wake-up: as many as two receive calls take.
const ENOUGH: u32 = 64;

/// Time for each message below which a wait brings several: at more than 40,000 messages a second.
const EACH: Duration = Duration::from_micros(25);

/// Decides how long a shard waits. A wake-up costs some microseconds of processor time, as much as
/// two single datagrams.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    /// When the shard woke last.
    woken: Duration,
}

impl Gathering {
    /// Returns how long to let messages gather before the next look, after the shard woke at `now`
    /// and found so many: until there are enough at the present rate. `None` = not at all.
    pub(crate) fn wait(&mut self, now: Duration, messages: u64) -> Option<Duration> {
        let interval = now.saturating_sub(std::mem::replace(&mut self.woken, now));
        let messages = u32::try_from(messages).ok()?;
        // At such a rate what one message costs is more than the delay of its neighbours.
        let is_often = interval < EACH * messages;
        let each = interval.checked_div(messages)?;
        (messages < ENOUGH && is_often).then(|| (each * ENOUGH).min(LONGEST))
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
        assert_eq!(gathering.wait(at(0), 1), None, "the first for long");
        assert_eq!(gathering.wait(at(20), 1), Some(LONGEST));
        assert_eq!(gathering.wait(at(120), 5), Some(LONGEST), "after a wait");
        assert_eq!(gathering.wait(at(220), 3), None, "30,000 a second");
    }

    #[test]
    fn wait_is_as_short_as_the_rate_permits() {
        let mut gathering = Gathering::default();
        gathering.wait(at(0), 1);
        let soon = Duration::from_micros(64);
        assert_eq!(gathering.wait(at(50), 50), Some(soon), "a million a second");
    }

    #[test]
    fn idle_and_saturated_shards_do_not_wait() {
        let mut gathering = Gathering::default();
        gathering.wait(at(0), 1);
        assert_eq!(gathering.wait(at(10), 0), None, "nothing came");
        assert_eq!(gathering.wait(at(20), 64), None, "more is waiting already");
        assert_eq!(gathering.wait(at(30), u64::MAX), None);
        // A train each millisecond is one message.
        assert_eq!(gathering.wait(at(1_030), 1), None);
    }
}
