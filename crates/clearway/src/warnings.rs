//! Warnings that clients can cause, at a bounded rate.
//!
//! A stranger decides how many connections end with an error. Were each a line, they
//! would fill the log of whoever runs the server.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Instant;

/// Warnings about clients in one second, of the whole process; the others are counted,
/// and logged as `DEBUG`. Ten: enough to see every kind of trouble there is, and a few
/// hundred megabytes of log a day at most.
const PER_SECOND: u32 = 10;

/// Of the process, as the log is.
static CLIENTS: LazyLock<(Instant, Gate)> = LazyLock::new(|| (Instant::now(), Gate::default()));

/// Whether a client's trouble may be told as a warning now, and then how many others
/// were not since the last one that was.
pub(crate) fn about_client() -> Option<u64> {
    let (start, gate) = &*CLIENTS;
    gate.pass(start.elapsed().as_secs())
}

/// Lets so many through in each second.
#[derive(Debug, Default)]
struct Gate(Mutex<Passed>);

#[derive(Debug, Default)]
struct Passed {
    second: u64,
    /// In that second.
    passed: u32,
    /// Since one passed.
    left_out: u64,
}

impl Gate {
    fn pass(&self, second: u64) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if second > state.second {
            state.second = second;
            state.passed = 0;
        }
        if state.passed >= PER_SECOND {
            state.left_out = state.left_out.saturating_add(1);
            return None;
        }
        state.passed = state.passed.saturating_add(1);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_beyond_the_rate_are_counted_and_told_later() {
        let gate = Gate::default();
        let passed = (0..1_000).filter_map(|_| gate.pass(0));
        assert_eq!(passed.collect::<Vec<_>>(), [0; PER_SECOND as usize]);
        assert_eq!(gate.pass(1), Some(990));
        assert_eq!(gate.pass(1), Some(0));
        // Another shard may have looked at the clock before.
        let late = (0..100).filter_map(|_| gate.pass(0)).count();
        assert_eq!(late, PER_SECOND as usize - 2);
        assert_eq!(gate.pass(60), Some(92));
    }
}
