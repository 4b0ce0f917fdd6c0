//! Field sections that were sent and not acknowledged (RFC 9204 §2.1.1, §2.1.2).

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::memory;

/// Maximum number of unacknowledged sections with references. Beyond it, sections are encoded
/// without references (RFC 9204 §7.3), so that a peer which never acknowledges takes no more
/// memory.
const MAX_SECTIONS: usize = 4096;

/// Maximum number of streams that may become blocked, even if the peer allows more.
const MAX_AT_RISK: u64 = 256;

/// What a section refers to. Entries are evicted in order, so the lowest one determines which may
/// be: no list of references is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SentSection {
    /// The Required Insert Count.
    pub(super) required: u64,
    /// The smallest absolute index that the section refers to.
    pub(super) lowest: u64,
}

#[derive(Debug, Default)]
pub(super) struct Outstanding {
    /// Sections by stream, the earliest first.
    streams: FxHashMap<u64, SmallVec<[SentSection; 1]>>,
    sections: usize,
    /// Streams that may become blocked, with their largest Required Insert Count. The list is
    /// short, so it is searched.
    at_risk: Vec<(u64, u64)>,
    max_at_risk: usize,
}

impl Outstanding {
    /// Sets the peer's `SETTINGS_QPACK_BLOCKED_STREAMS`.
    pub(super) fn set_blocked_streams(&mut self, limit: u64) {
        self.max_at_risk = limit.min(MAX_AT_RISK) as usize;
    }

    pub(super) fn is_full(&self) -> bool {
        self.sections >= MAX_SECTIONS
    }

    /// Returns whether a section on this stream may refer to entries that may not have arrived.
    pub(super) fn may_block(&self, stream: u64) -> bool {
        self.at_risk.len() < self.max_at_risk || self.at_risk.iter().any(|&(id, _)| id == stream)
    }

    /// Adds a section that was encoded. `known` is the Known Received Count.
    pub(super) fn on_sent(&mut self, stream: u64, section: SentSection, known: u64) {
        self.streams.entry(stream).or_default().push(section);
        self.sections = self.sections.saturating_add(1);
        if section.required <= known {
            return;
        }
        match self.at_risk.iter_mut().find(|(id, _)| *id == stream) {
            Some((_, required)) => *required = section.required.max(*required),
            None => self.at_risk.push((stream, section.required)),
        }
    }

    /// Removes the earliest section of a stream, which was acknowledged.
    pub(super) fn on_acknowledged(&mut self, stream: u64) -> Option<SentSection> {
        let sections = self.streams.get_mut(&stream)?;
        let section = sections.remove(0);
        if sections.is_empty() {
            self.streams.remove(&stream);
        }
        self.sections = self.sections.saturating_sub(1);
        Some(section)
    }

    /// Removes all sections of a stream, which will not be decoded.
    pub(super) fn on_cancelled(&mut self, stream: u64) -> SmallVec<[SentSection; 1]> {
        let sections = self.streams.remove(&stream).unwrap_or_default();
        self.sections = self.sections.saturating_sub(sections.len());
        self.at_risk.retain(|&(id, _)| id != stream);
        sections
    }

    /// Handles an increased Known Received Count.
    pub(super) fn on_received(&mut self, known: u64) {
        self.at_risk.retain(|&(_, required)| required > known);
    }

    #[cfg(test)]
    pub(super) fn sections(&self) -> usize {
        self.sections
    }

    /// Releases unused capacity.
    pub(super) fn release(&mut self) {
        self.streams.shrink_to_fit();
        self.at_risk.shrink_to_fit();
    }

    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    pub(super) fn memory(&self) -> usize {
        memory::hash_table(&self.streams)
            + self.sections * size_of::<SentSection>()
            + self.at_risk.capacity() * size_of::<(u64, u64)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn section(required: u64, lowest: u64) -> SentSection {
        SentSection { required, lowest }
    }

    #[test]
    fn stream_counts_as_blocking_once_until_its_insertions_arrived() {
        let mut outstanding = Outstanding::default();
        assert!(!outstanding.may_block(0));
        outstanding.set_blocked_streams(1);
        assert!(outstanding.may_block(0));
        outstanding.on_sent(0, section(2, 1), 1);
        outstanding.on_sent(0, section(4, 0), 1);
        assert!(outstanding.may_block(0), "it is at risk already");
        assert!(!outstanding.may_block(4));
        outstanding.on_received(3);
        assert!(!outstanding.may_block(4));
        outstanding.on_received(4);
        assert!(outstanding.may_block(4));
        // Entries that have arrived cannot block a stream.
        outstanding.on_sent(8, section(4, 3), 4);
        assert!(outstanding.may_block(4));
    }

    #[test]
    fn sections_of_a_stream_are_acknowledged_in_order() {
        let mut outstanding = Outstanding::default();
        outstanding.on_sent(4, section(2, 1), 5);
        outstanding.on_sent(4, section(1, 0), 5);
        outstanding.on_sent(8, section(3, 2), 5);
        assert_eq!(outstanding.on_acknowledged(4), Some(section(2, 1)));
        assert_eq!(outstanding.on_acknowledged(4), Some(section(1, 0)));
        assert_eq!(outstanding.on_acknowledged(4), None);
        assert_eq!(outstanding.on_cancelled(8).as_slice(), [section(3, 2)]);
        assert_eq!(outstanding.on_cancelled(8).len(), 0);
        assert_eq!(outstanding.sections(), 0);
    }

    #[test]
    fn cancelled_stream_no_longer_counts_as_blocking() {
        let mut outstanding = Outstanding::default();
        outstanding.set_blocked_streams(1);
        outstanding.on_sent(0, section(2, 1), 0);
        assert!(!outstanding.may_block(4));
        outstanding.on_cancelled(0);
        assert!(outstanding.may_block(4));
    }
}
