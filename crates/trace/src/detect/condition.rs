//! A condition, and since when it has held.

/// The period for which a condition has held.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Condition {
    since: Option<u64>,
}

/// The period after which a condition ended: start and end.
pub(super) const fn lasted((from, to): (u64, u64)) -> u64 {
    to.saturating_sub(from)
}

impl Condition {
    /// Updates the condition at `now`; returns the period that ended with this update, as start and
    /// end.
    pub(super) fn update(&mut self, holds: bool, now: u64) -> Option<(u64, u64)> {
        match (self.since, holds) {
            (None, true) => {
                self.since = Some(now);
                None
            }
            (Some(since), false) => {
                self.since = None;
                Some((since, now))
            }
            (None, false) | (Some(_), true) => None,
        }
    }

    /// Since when it has held.
    pub(super) const fn since(&self) -> Option<u64> {
        self.since
    }
}
