//! Rate limit of warnings.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Minimum time between two warnings of one kind: often enough for a person to notice, rare enough
/// not to fill a log.
const BETWEEN: Duration = Duration::from_secs(60);

/// The time of the last warning.
#[derive(Debug, Default)]
pub(crate) struct WarningInterval(Mutex<Option<Instant>>);

impl WarningInterval {
    /// Returns whether a warning is due, for the first time or again.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|at| now.saturating_duration_since(at) >= BETWEEN);
        if due {
            *last = Some(now);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warning_repeats_after_a_minute() {
        let (interval, start) = (WarningInterval::default(), Instant::now());
        let said = (0..150).filter(|s| interval.is_due(start + Duration::from_secs(*s)));
        assert_eq!(said.collect::<Vec<_>>(), [0, 60, 120]);
    }
}
