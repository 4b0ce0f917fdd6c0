//! Warnings at a limited rate.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between two warnings of one kind: enough for a person to see that something goes on, few
/// enough for a log not to fill while it does.
const BETWEEN: Duration = Duration::from_secs(60);

/// When something was last said.
#[derive(Debug, Default)]
pub(crate) struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Whether it is time to say it, again or for the first time.
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
    fn a_warning_repeats_after_a_minute() {
        let (seldom, start) = (Seldom::default(), Instant::now());
        let said = (0..150).filter(|s| seldom.is_due(start + Duration::from_secs(*s)));
        assert_eq!(said.collect::<Vec<_>>(), [0, 60, 120]);
    }
}
