//! Losses that turn out to be spurious.
//!
//! A packet declared lost is remembered for a while: its number, its size, its congestion
//! event. If it is acknowledged late, the thresholds were too small. If every packet
//! declared lost in an event is acknowledged late, there was no congestion, and the
//! controller may undo its response (RFC 9438 §4.9.2). If some of them were really lost,
//! nothing is undone.

use core::ops::RangeInclusive;
use std::collections::VecDeque;

use crate::controller::SendIndex;
use crate::path::PathId;
use crate::time::Instant;

/// Limit of lost packets remembered per space. Those dropped count as really lost.
const MAX_LOST_RECORDS: usize = 1024;

/// Limit of congestion events remembered per path. Those dropped are never undone.
const MAX_EVENTS: usize = 8;

/// A packet declared lost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostRecord {
    pub(crate) number: u64,
    pub(crate) path: PathId,
    pub(crate) index: SendIndex,
    pub(crate) sent: Instant,
    pub(crate) size: u16,
    /// The congestion event it was part of.
    pub(crate) event: SendIndex,
    /// When it is forgotten and counts as really lost.
    pub(crate) expires: Instant,
}

/// Packets that are looked at one by one before a binary search.
const NEAREST: usize = 4;

/// A place between packets of a [`LostLog`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogPlace(usize);

/// The packets recently declared lost in a space.
#[derive(Debug)]
pub(crate) struct LostLog {
    /// Ascending numbers.
    packets: VecDeque<LostRecord>,
    /// How many packets searches have looked at.
    #[cfg(test)]
    looked_at: u64,
}

impl LostLog {
    pub(crate) const fn new() -> Self {
        Self {
            packets: VecDeque::new(),
            #[cfg(test)]
            looked_at: 0,
        }
    }

    /// Remembers a packet. At the limit the oldest one is forgotten.
    pub(crate) fn push(&mut self, packet: LostRecord) {
        if self.packets.len() == MAX_LOST_RECORDS {
            self.packets.pop_front();
        }
        let at = self
            .packets
            .partition_point(|other| other.number < packet.number);
        self.packets.insert(at, packet);
    }

    /// Removes and returns the packets of an acknowledged range. `place` is where the packets below
    /// the frame's previous range end, [`end`](Self::end) for its first one, and is moved on: an ACK
    /// frame may have hundreds of ranges, each just below the one before, and two searches for each
    /// would be most of what it costs.
    pub(crate) fn remove_range(
        &mut self,
        range: &RangeInclusive<u64>,
        place: &mut LogPlace,
    ) -> impl Iterator<Item = LostRecord> {
        let to = self.retreat(place.0, |number| number > *range.end());
        let from = self.retreat(to, |number| number >= *range.start());
        place.0 = from;
        self.packets.drain(from..to)
    }

    /// Returns the place behind all packets.
    pub(crate) fn end(&self) -> LogPlace {
        LogPlace(self.packets.len())
    }

    /// Returns where the packets before `end` end that are not `above`: looks at the nearest ones
    /// first.
    fn retreat(&mut self, end: usize, above: impl Fn(u64) -> bool) -> usize {
        let mut end = end.min(self.packets.len());
        for _ in 0..NEAREST {
            if !end.checked_sub(1).is_some_and(|last| self.is(last, &above)) {
                return end;
            }
            end -= 1;
        }
        let (mut low, mut high) = (0, end);
        while low < high {
            let middle = low.midpoint(high);
            if self.is(middle, &above) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        low
    }

    /// Whether the number of the packet at this index is `above` a bound.
    fn is(&mut self, index: usize, above: impl Fn(u64) -> bool) -> bool {
        #[cfg(test)]
        {
            self.looked_at += 1;
        }
        self.packets
            .get(index)
            .is_some_and(|packet| above(packet.number))
    }

    /// Forgets the packets that have expired.
    pub(crate) fn expire(&mut self, now: Instant) {
        while self.packets.front().is_some_and(|p| p.expires <= now) {
            self.packets.pop_front();
        }
    }

    /// Returns whether no packet is remembered.
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Returns the bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        self.packets.capacity() * size_of::<LostRecord>()
    }

    /// Releases the memory that is held for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.packets.shrink_to_fit();
    }

    /// Forgets everything, because the space was discarded.
    pub(crate) fn clear(&mut self) {
        self.packets = VecDeque::new();
    }
}

#[derive(Clone, Copy, Debug)]
struct Event {
    /// The boundary set by the event, which is its name in `Spurious::event`.
    boundary: SendIndex,
    /// Losses not acknowledged late yet. A loss that is forgotten still counts, so that the
    /// event is not undone.
    unacked: u64,
    /// An ECN-CE mark was part of the event, so it is never undone.
    confirmed: bool,
}

/// A path's congestion events, by the boundaries the controller was given.
#[derive(Clone, Debug, Default)]
pub(crate) struct CongestionEvents {
    /// Losses of packets from here on begin a new event.
    boundary: SendIndex,
    /// Ascending boundaries.
    events: VecDeque<Event>,
    /// Events up to this boundary are never undone: losses from before persistent
    /// congestion may still be remembered with it.
    collapsed: SendIndex,
}

impl CongestionEvents {
    /// Returns the events of a path that continues this one. What is lost of this path's
    /// packets is counted here.
    pub(crate) fn continued(&self) -> Self {
        Self {
            boundary: self.boundary,
            events: VecDeque::new(),
            collapsed: self.collapsed,
        }
    }

    /// Returns the boundary: losses of packets from here on begin a new event.
    pub(crate) const fn boundary(&self) -> SendIndex {
        self.boundary
    }

    /// Counts a lost packet towards its event and returns the event's boundary. The event
    /// is a new one, with the boundary `next_index`, if the packet was sent at or after the
    /// current boundary.
    pub(crate) fn on_lost(&mut self, index: SendIndex, next_index: SendIndex) -> SendIndex {
        if index >= self.boundary {
            self.begin(next_index);
        }
        match self.events.iter_mut().find(|event| event.boundary > index) {
            Some(event) => {
                event.unacked += 1;
                event.boundary
            }
            None => self.boundary,
        }
    }

    /// Records that marks were reported: their event is never undone.
    pub(crate) fn on_marked(&mut self, index: SendIndex, next_index: SendIndex) {
        if index >= self.boundary {
            self.begin(next_index);
        }
        if let Some(event) = self.events.back_mut() {
            event.confirmed = true;
        }
    }

    /// Begins an event. Further losses found before anything else is sent have the same
    /// `next_index`, so they belong to the same event.
    fn begin(&mut self, next_index: SendIndex) {
        self.boundary = next_index;
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Event {
            boundary: next_index,
            unacked: 0,
            confirmed: next_index <= self.collapsed,
        });
    }

    /// Records that a lost packet was acknowledged. Returns whether it was the last one of
    /// an event that may now be undone.
    pub(crate) fn on_acked(&mut self, boundary: SendIndex) -> bool {
        let Some(event) = self.find(boundary) else {
            return false;
        };
        event.unacked = event.unacked.saturating_sub(1);
        if event.unacked > 0 || event.confirmed {
            return false;
        }
        self.events.retain(|event| event.boundary != boundary);
        if self.boundary == boundary {
            // There was no congestion, so the next loss must begin a new event.
            self.boundary = self.events.back().map_or(0, |event| event.boundary);
        }
        true
    }

    /// Forgets all events after persistent congestion: recovery is over, and earlier events
    /// are never undone.
    pub(crate) fn clear(&mut self) {
        self.collapsed = self.boundary;
        self.boundary = 0;
        self.events.clear();
    }

    /// Returns the bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        self.events.capacity() * size_of::<Event>()
    }

    fn find(&mut self, boundary: SendIndex) -> Option<&mut Event> {
        self.events
            .iter_mut()
            .find(|event| event.boundary == boundary)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn remembered(number: u64) -> LostRecord {
        LostRecord {
            number,
            path: PathId(0),
            index: number,
            sent: Instant::ZERO,
            size: 1200,
            event: 0,
            expires: Instant::from_nanos(number),
        }
    }

    /// Removes the packets of a frame with these ranges, and returns their numbers.
    fn removed(log: &mut LostLog, ranges: &[RangeInclusive<u64>]) -> Vec<u64> {
        let mut place = log.end();
        let mut numbers = Vec::new();
        for range in ranges {
            numbers.extend(log.remove_range(range, &mut place).map(|lost| lost.number));
        }
        numbers
    }

    #[test]
    fn lost_packets_are_found_by_number_in_any_insertion_order() {
        let mut log = LostLog::new();
        for number in [3, 9, 5, 4, 20] {
            log.push(remembered(number));
        }
        assert_eq!(removed(&mut log, &[4..=9]), [4, 5, 9]);
        assert_eq!(removed(&mut log, &[0..=9]), [3]);
        assert_eq!(removed(&mut log, &[0..=19]), [0_u64; 0]);
    }

    #[test]
    fn every_lost_packet_of_a_frame_with_several_ranges_is_found() {
        let lost: Vec<u64> = (0..300).filter(|n| n % 7 < 4).collect();
        let widths = [1, 2, 40, 1, 9, 100];
        for gap in [1, 2, 5, 30] {
            let mut log = LostLog::new();
            lost.iter().for_each(|n| log.push(remembered(*n)));
            let (mut ranges, mut top) = (Vec::new(), 310_u64);
            for width in widths.into_iter().cycle() {
                let Some(start) = top.checked_sub(width) else {
                    break;
                };
                ranges.push(start..=top);
                let Some(next) = start.checked_sub(gap) else {
                    break;
                };
                top = next;
            }
            let mut found = removed(&mut log, &ranges);
            found.sort_unstable();
            let in_frame = |n: &u64| ranges.iter().any(|range| range.contains(n));
            let (expected, left): (Vec<u64>, Vec<u64>) = lost.iter().partition(|n| in_frame(n));
            assert_eq!(found, expected, "gaps of {gap}");
            assert!(log.packets.iter().map(|packet| packet.number).eq(left));
        }
    }

    /// A frame with as many ranges as fit, between packets that are all lost.
    #[test]
    fn range_of_a_frame_with_many_looks_at_few_lost_packets() {
        let mut log = LostLog::new();
        for number in 0..MAX_LOST_RECORDS as u64 {
            log.push(remembered(2 * number));
        }
        let ranges: Vec<_> = (0..500_u64).rev().map(|n| 2 * n + 1..=2 * n + 1).collect();
        assert_eq!(removed(&mut log, &ranges), [0_u64; 0]);
        let looked_at = log.looked_at;
        assert!(looked_at <= 3 * 500 + 20, "{looked_at}");
    }

    #[test]
    fn lost_log_drops_oldest_and_expired_packets() {
        let mut log = LostLog::new();
        for number in 0..5000 {
            log.push(remembered(number));
        }
        assert_eq!(log.packets.len(), MAX_LOST_RECORDS);
        log.expire(Instant::from_nanos(4990));
        assert_eq!(removed(&mut log, &[0..=4991]), [4991]);
        log.clear();
        assert!(log.is_empty());
    }

    #[test]
    fn event_is_undone_when_its_last_loss_is_acknowledged() {
        let mut events = CongestionEvents::default();
        assert_eq!(events.on_lost(3, 10), 10);
        assert_eq!(events.on_lost(4, 10), 10);
        // Later, in the same recovery.
        assert_eq!(events.on_lost(7, 15), 10);
        assert!(!events.on_acked(10));
        assert!(!events.on_acked(10));
        assert!(events.on_acked(10));
        assert!(!events.on_acked(10), "once");
    }

    #[test]
    fn marked_event_is_not_undone() {
        let mut events = CongestionEvents::default();
        events.on_lost(3, 10);
        events.on_marked(5, 12);
        assert!(!events.on_acked(10));
    }

    #[test]
    fn loss_counts_towards_the_event_its_packet_was_sent_in() {
        let mut events = CongestionEvents::default();
        assert_eq!(events.on_lost(3, 10), 10);
        assert_eq!(events.on_lost(12, 20), 20);
        assert_eq!(events.on_lost(4, 25), 10);
        assert_eq!(events.on_lost(15, 25), 20);
        assert!(!events.on_acked(20));
        assert!(events.on_acked(20));
        assert!(!events.on_acked(10));
        assert!(events.on_acked(10));
    }

    #[test]
    fn loss_before_the_boundary_of_an_undone_event_is_a_new_event() {
        let mut events = CongestionEvents::default();
        events.on_lost(3, 10);
        assert!(events.on_acked(10));
        assert_eq!(events.on_lost(4, 11), 11, "a new event");
    }

    #[test]
    fn event_before_persistent_congestion_is_not_undone() {
        let mut events = CongestionEvents::default();
        let event = events.on_lost(3, 10);
        events.clear();
        assert!(!events.on_acked(event));
        assert_eq!(events.on_lost(4, 10), 10, "recovery is over");
        // Packet 3's late ACK must not pass for packet 4's.
        assert!(!events.on_acked(event));
        assert_eq!(events.on_lost(11, 12), 12);
        assert!(events.on_acked(12));
    }

    #[test]
    fn oldest_congestion_event_is_dropped_at_the_limit() {
        let mut events = CongestionEvents::default();
        for round in 0..100 {
            events.on_lost(round * 10, round * 10 + 10);
        }
        assert_eq!(events.events.len(), MAX_EVENTS);
        assert!(!events.on_acked(10), "too old to be undone");
        assert!(events.on_acked(1000));
    }

    #[test]
    fn lost_log_with_a_packet_is_not_empty() {
        let mut log = LostLog::new();
        assert!(log.is_empty());
        log.push(remembered(3));
        assert!(!log.is_empty());
    }

    #[test]
    fn lost_log_memory_grows_with_packets_and_is_released() {
        let mut log = LostLog::new();
        assert_eq!(log.memory(), 0);
        for number in 0..100 {
            log.push(remembered(number));
        }
        let least = 100 * size_of::<LostRecord>();
        assert!((least..3 * least).contains(&log.memory()));
        log.expire(Instant::from_nanos(98));
        log.release_memory();
        assert!(log.memory() < least / 10, "{}", log.memory());
    }

    #[test]
    fn congestion_events_memory_grows_with_their_number() {
        let mut events = CongestionEvents::default();
        assert_eq!(events.memory(), 0);
        for round in 0..8 {
            events.on_lost(round * 10, round * 10 + 10);
        }
        let least = MAX_EVENTS * size_of::<Event>();
        assert!((least..=2 * least).contains(&events.memory()));
    }

    /// The boundary is the first index that does not belong to an event.
    #[test]
    fn loss_at_the_boundary_begins_a_new_event() {
        let mut events = CongestionEvents::default();
        assert_eq!(events.on_lost(3, 10), 10);
        assert_eq!(events.boundary(), 10);
        assert_eq!(events.on_lost(10, 20), 20);
        assert_eq!(events.boundary(), 20);
    }
}
