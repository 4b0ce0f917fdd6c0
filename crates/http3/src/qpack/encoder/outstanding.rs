//! Field sections that were sent and are not acknowledged (RFC 9204 §2.1.1,
//! §2.1.2).

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::memory;

/// Sections with references that wait for their acknowledgment at most. Beyond
/// it sections are encoded without any (RFC 9204 §7.3), so a peer that never
/// acknowledges costs no more memory.
const MAX_SECTIONS: usize = 4096;

/// Streams risked to block at most, however many the peer allows.
const MAX_RISKED: u64 = 256;

/// What a section refers to. Entries leave in order, so the lowest one says
/// which may: no list of references is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentSection {
    /// Its Required Insert Count.
    pub(super) required: u64,
    /// The smallest absolute index it refers to.
    pub(super) lowest: u64,
}

#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// By stream, the earliest first.
    streams: FxHashMap<u64, SmallVec<[SentSection; 1]>>,
    sections: usize,
    /// Streams that may be blocked, with the largest count they require: short,
    /// so searched.
    risked: Vec<(u64, u64)>,
    max_risked: usize,
}

impl Outstanding {
    /// The peer's `SETTINGS_QPACK_BLOCKED_STREAMS`.
    pub(super) fn set_blocked_streams(&mut self, limit: u64) {
        self.max_risked = limit.min(MAX_RISKED) as usize;
    }

    pub(super) fn is_full(&self) -> bool {
        self.sections >= MAX_SECTIONS
    }

    /// Whether a section on this stream may require what the decoder may not
    /// have.
    pub(super) fn may_risk(&self, stream: u64) -> bool {
        self.risked.len() < self.max_risked || self.risked.iter().any(|&(id, _)| id == stream)
    }

    /// A section was encoded; `known` is the Known Received Count.
    pub(super) fn sent(&mut self, stream: u64, section: SentSection, known: u64) {
        self.streams.entry(stream).or_default().push(section);
        self.sections = self.sections.saturating_add(1);
        if section.required <= known {
            return;
        }
        match self.risked.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, required)) => *required = section.required.max(*required),
            None => self.risked.push((stream, section.required)),
        }
    }

    /// The earliest section of a stream was acknowledged.
    pub(super) fn acknowledged(&mut self, stream: u64) -> Option<SentSection> {
        let sections = self.streams.get_mut(&stream)?;
        let section = sections.remove(0);
        if sections.is_empty() {
            self.streams.remove(&stream);
        }
        self.sections = self.sections.saturating_sub(1);
        Some(section)
    }

    /// All sections of a stream will not be decoded.
    pub(super) fn cancelled(&mut self, stream: u64) -> SmallVec<[SentSection; 1]> {
        let sections = self.streams.remove(&stream).unwrap_or_default();
        self.sections = self.sections.saturating_sub(sections.len());
        self.risked.retain(|&(id, _)| id != stream);
        sections
    }

    /// The Known Received Count has risen.
    pub(super) fn received(&mut self, known: u64) {
        self.risked.retain(|&(_, required)| required > known);
    }

    #[cfg(test)]
    pub(super) fn sections(&self) -> usize {
        self.sections
    }

    /// Gives back room that holds nothing.
    pub(super) fn release(&mut self) {
        self.streams.shrink_to_fit();
        self.risked.shrink_to_fit();
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(super) fn memory(&self) -> usize {
        memory::table(&self.streams)
            + self.sections * size_of::<SentSection>()
            + self.risked.capacity() * size_of::<(u64, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn section(required: u64, lowest: u64) -> SentSection {
        SentSection { required, lowest }
    }

    #[test]
    fn a_stream_counts_once_until_all_it_requires_has_come() {
        let mut outstanding = Outstanding::default();
        assert!(!outstanding.may_risk(0));
        outstanding.set_blocked_streams(1);
        assert!(outstanding.may_risk(0));
        outstanding.sent(0, section(2, 1), 1);
        outstanding.sent(0, section(4, 0), 1);
        assert!(outstanding.may_risk(0), "it is at risk already");
        assert!(!outstanding.may_risk(4));
        outstanding.received(3);
        assert!(!outstanding.may_risk(4));
        outstanding.received(4);
        assert!(outstanding.may_risk(4));
        // Nothing is risked by what has come.
        outstanding.sent(8, section(4, 3), 4);
        assert!(outstanding.may_risk(4));
    }

    #[test]
    fn sections_are_acknowledged_in_order() {
        let mut outstanding = Outstanding::default();
        outstanding.sent(4, section(2, 1), 5);
        outstanding.sent(4, section(1, 0), 5);
        outstanding.sent(8, section(3, 2), 5);
        assert_eq!(outstanding.acknowledged(4), Some(section(2, 1)));
        assert_eq!(outstanding.acknowledged(4), Some(section(1, 0)));
        assert_eq!(outstanding.acknowledged(4), None);
        assert_eq!(outstanding.cancelled(8).as_slice(), [section(3, 2)]);
        assert_eq!(outstanding.cancelled(8).len(), 0);
        assert_eq!(outstanding.sections(), 0);
    }

    #[test]
    fn a_cancelled_stream_is_at_risk_no_more() {
        let mut outstanding = Outstanding::default();
        outstanding.set_blocked_streams(1);
        outstanding.sent(0, section(2, 1), 0);
        assert!(!outstanding.may_risk(4));
        outstanding.cancelled(0);
        assert!(outstanding.may_risk(4));
    }
}
