//! Which packets were sent while the window was in full use.
//!
//! The packets of a train justify growth only if the window, the pacer or the host was what
//! ended the train, which is known only at its end (RFC 9002 §7.8, RFC 9438 §5.8). So the
//! ends of trains are marked in the send order and looked up when a packet is acknowledged.
//! Equal neighbouring marks are merged.

use std::collections::VecDeque;

use crate::controller::SendIndex;

/// Limit of marks. Beyond it the two oldest are merged, as used only if both were.
const MAX_MARKS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// The index after the train's last packet.
    end: SendIndex,
    used: bool,
}

/// Marks in a path's send order.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowUsed {
    /// Ascending ends; neighbours differ in `used`.
    marks: VecDeque<Mark>,
}

impl WindowUsed {
    /// Marks the end of a train: `end` is the index after its last packet.
    pub(crate) fn mark(&mut self, end: SendIndex, used: bool) {
        if let Some(last) = self.marks.back_mut() {
            if end <= last.end {
                return;
            }
            if last.used == used {
                last.end = end;
                return;
            }
        }
        if self.marks.len() == MAX_MARKS {
            self.merge_oldest();
        }
        self.marks.push_back(Mark { end, used });
    }

    /// Merges the two oldest marks. Neighbours differ, so one of the two was not used, and
    /// neither counts as used.
    fn merge_oldest(&mut self) {
        self.marks.pop_front();
        if let Some(second) = self.marks.front_mut() {
            second.used = false;
        }
        // It may now be equal to its neighbour.
        if let [Some(first), Some(second)] = [self.marks.front(), self.marks.get(1)]
            && first.used == second.used
        {
            self.marks.pop_front();
        }
    }

    /// Returns whether the packet was sent in a train that used the window; `open` for a
    /// train that has not ended yet.
    pub(crate) fn is_used(&self, index: SendIndex, open: bool) -> bool {
        match self.marks.back() {
            Some(last) if index < last.end && self.marks.len() > 1 => {
                let at = self.marks.partition_point(|mark| mark.end <= index);
                self.marks.get(at).map_or(open, |mark| mark.used)
            }
            Some(last) if index < last.end => last.used,
            Some(_) | None => open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mark_covers_packets_since_the_last_mark() {
        let mut used = WindowUsed::default();
        used.mark(10, true);
        used.mark(12, false);
        used.mark(20, true);
        let answers: Vec<bool> = [0, 9, 10, 11, 12, 19]
            .map(|index| used.is_used(index, false))
            .into();
        assert_eq!(answers, [true, true, false, false, true, true]);
        assert!(!used.is_used(20, false));
        assert!(used.is_used(20, true));
    }

    #[test]
    fn mark_without_packets_changes_nothing() {
        let mut used = WindowUsed::default();
        used.mark(10, true);
        used.mark(10, false);
        assert!(used.is_used(9, false));
        assert_eq!(used.marks.len(), 1);
    }

    #[test]
    fn equal_neighbouring_marks_are_merged() {
        let mut used = WindowUsed::default();
        for end in 1..100_000 {
            used.mark(end, true);
        }
        assert_eq!(used.marks.len(), 1);
    }

    proptest! {
        #[test]
        fn merged_marks_never_report_an_unused_packet_as_used(
            trains in prop::collection::vec((1_u64..5, any::<bool>()), 0..400),
        ) {
            let mut used = WindowUsed::default();
            let mut truth = Vec::new();
            for (packets, kind) in trains {
                for _ in 0..packets {
                    truth.push(kind);
                }
                used.mark(truth.len() as u64, kind);
                prop_assert!(used.marks.len() <= MAX_MARKS);
            }
            let recent = truth.len().saturating_sub(MAX_MARKS - 2);
            for (index, kind) in truth.into_iter().enumerate() {
                let answer = used.is_used(index as u64, true);
                prop_assert!(!answer || kind, "{index} counted without cause");
                if index >= recent {
                    prop_assert_eq!(answer, kind, "{} forgotten too early", index);
                }
            }
        }
    }
}
