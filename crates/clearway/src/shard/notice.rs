//! Log lines at a limited rate.

use std::time::Duration;

use clearway_quic::Instant;

/// Between two lines of one kind: what a stranger causes must not fill a log.
const BETWEEN: Duration = Duration::from_secs(1);

/// How often something has happened since it was last logged.
#[derive(Debug, Default)]
pub(super) struct Notice {
    last: Option<Instant>,
    since: u64,
}

impl Notice {
    /// It has happened; how often since the last line, if a line is due.
    pub(super) fn happened(&mut self, now: Instant) -> Option<u64> {
        self.since = self.since.saturating_add(1);
        if self.last.is_some_and(|last| now < last + BETWEEN) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_with_a_count() {
        let mut notice = Notice::default();
        let at = |millis| Instant::ZERO + Duration::from_millis(millis);
        assert_eq!(notice.happened(at(0)), Some(1));
        assert_eq!(notice.happened(at(1)), None);
        assert_eq!(notice.happened(at(999)), None);
        assert_eq!(notice.happened(at(1_000)), Some(3));
    }
}
