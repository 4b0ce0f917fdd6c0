//! A condition and since when it has held.

/// A stretch of time in which something is the case.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spell {
    since: Option<u64>,
}

/// How long a stretch lasted, from and to.
pub(super) const fn lasted((from, to): (u64, u64)) -> u64 {
    to.saturating_sub(from)
}

impl Spell {
    /// Whether `holds` at `now`; answers the stretch that ended with it, from
    /// and to.
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
