//! Log lines at a limited rate: what a stranger causes must not fill a log.

use std::time::Duration;

use clearway_quic::Instant;

/// What the lines are counted over.
const WINDOW: Duration = Duration::from_secs(1);

/// Bounds the log lines about one kind of event.
#[derive(Debug)]
pub(crate) struct Notice {
    per_second: u32,
    began: Option<Instant>,
    /// Lines in this second.
    lines: u32,
    /// Events since the last line.
    left_out: u64,
}

impl Default for Notice {
    /// One line a second.
    fn default() -> Self {
        Self::new(1)
    }
}

impl Notice {
    pub(crate) const fn new(per_second: u32) -> Self {
        Self {
            per_second,
            began: None,
            lines: 0,
            left_out: 0,
        }
    }

    /// It has happened: if it may be logged, how many others were left out since the
    /// last that was.
    pub(crate) fn happened(&mut self, now: Instant) -> Option<u64> {
        if self.began.is_none_or(|began| now >= began + WINDOW) {
            self.began = Some(now);
            self.lines = 0;
        }
        if self.lines >= self.per_second {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.lines = self.lines.saturating_add(1);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    #[test]
    fn one_line_a_second_says_how_many_were_left_out() {
        let mut notice = Notice::default();
        assert_eq!(notice.happened(at(0)), Some(0));
        assert_eq!(notice.happened(at(1)), None);
        assert_eq!(notice.happened(at(999)), None);
        assert_eq!(notice.happened(at(1_000)), Some(2));
    }

    #[test]
    fn several_lines_a_second_are_counted_over_the_second() {
        let mut notice = Notice::new(10);
        let told = (0..1_000).filter_map(|_| notice.happened(at(5)));
        assert_eq!(told.collect::<Vec<_>>(), [0; 10]);
        assert_eq!(notice.happened(at(1_005)), Some(990));
        assert_eq!(notice.happened(at(1_005)), Some(0));
        // Another thread may have looked at the clock before.
        let late = (0..100).filter_map(|_| notice.happened(at(1_004))).count();
        assert_eq!(late, 8);
        assert_eq!(notice.happened(at(60_000)), Some(92));
    }
}
