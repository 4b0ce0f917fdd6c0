//! Packet number spaces, and the packets sent in each of them.

use core::ops::{Index, IndexMut, RangeInclusive};
use std::collections::VecDeque;

use crate::ledger::Ledger;
use crate::outcome::AckError;
use crate::packet::Packet;
use crate::spurious::LostLog;
use crate::time::Instant;

/// A packet number space (RFC 9000 §12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    /// Initial packets.
    Initial = 0,
    /// Handshake packets.
    Handshake = 1,
    /// 0-RTT and 1-RTT packets.
    Data = 2,
}

impl Space {
    /// All spaces, in the order of the handshake.
    pub const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Data];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

/// Limit of packets with only ACKs that are kept until they are acknowledged. A connection
/// that only receives sends millions of them, and the peer may never acknowledge one.
const MAX_ACK_ONLY_PACKETS: usize = 256;

/// Limit of deliberately skipped packet numbers that are remembered. The acknowledgment of
/// an older one is not detected.
const MAX_SKIPPED_NUMBERS: usize = 16;

/// The packets sent in one space.
#[derive(Debug)]
pub(crate) struct SpaceLedger<F> {
    pub(crate) sent: Ledger<Packet<F>>,
    /// The number of the next packet.
    pub(crate) next: u64,
    pub(crate) largest_acked: Option<u64>,
    /// When the next packet will be old enough to be lost (RFC 9002 §6.1.2).
    pub(crate) loss_time: Option<Instant>,
    /// Packets declared lost not long ago.
    pub(crate) lost: LostLog,
    /// The keys were discarded: nothing is sent, acknowledged or lost here any more.
    pub(crate) discarded: bool,
    /// Ascending.
    skipped: VecDeque<u64>,
    /// Ascending; some may have been acknowledged since.
    ack_only: VecDeque<u64>,
}

impl<F> SpaceLedger<F> {
    pub(crate) const fn new() -> Self {
        Self {
            sent: Ledger::new(),
            next: 0,
            largest_acked: None,
            loss_time: None,
            lost: LostLog::new(),
            discarded: false,
            skipped: VecDeque::new(),
            ack_only: VecDeque::new(),
        }
    }

    /// Creates the ledger of a space whose keys were discarded.
    const fn discarded() -> Self {
        let mut ledger = Self::new();
        ledger.discarded = true;
        ledger
    }

    /// Adds a packet.
    pub(crate) fn push(&mut self, number: u64, packet: Packet<F>) {
        debug_assert_eq!(number, self.next, "numbers come from next_number");
        if !packet.in_flight {
            self.limit_ack_only(number);
        }
        self.sent.push(number, packet);
        self.next = number + 1;
    }

    /// Forgets the oldest packet that is not in flight when there are too many.
    fn limit_ack_only(&mut self, number: u64) {
        if self.ack_only.len() == MAX_ACK_ONLY_PACKETS
            && let Some(oldest) = self.ack_only.pop_front()
        {
            self.sent.remove(oldest);
        }
        self.ack_only.push_back(number);
    }

    /// Leaves a number unused.
    pub(crate) fn skip(&mut self) {
        if self.skipped.len() == MAX_SKIPPED_NUMBERS {
            self.skipped.pop_front();
        }
        self.skipped.push_back(self.next);
        self.next += 1;
    }

    /// Checks that a range acknowledges only what was sent (RFC 9000 §13.1).
    pub(crate) fn check(&self, range: &RangeInclusive<u64>) -> Result<(), AckError> {
        if *range.end() >= self.next {
            return Err(AckError::NeverSent {
                number: *range.end(),
            });
        }
        let at = self.skipped.partition_point(|skip| skip < range.start());
        match self.skipped.get(at) {
            Some(&number) if range.contains(&number) => Err(AckError::Skipped { number }),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the largest number that `count` packets were sent after, up to and including
    /// `largest`. Skipped numbers are not packets, so they do not count towards the
    /// threshold (RFC 9002 §6.1.1, appendix A.10).
    pub(crate) fn number_before(&self, largest: u64, count: u64) -> Option<u64> {
        let mut bound = largest.checked_sub(count)?;
        for &skip in self.skipped.iter().rev() {
            if skip < bound {
                break;
            }
            if skip < largest {
                bound = bound.checked_sub(1)?;
            }
        }
        Some(bound)
    }

    /// Returns the bytes allocated. `content` returns those of a packet's content.
    pub(crate) fn memory(&self, content: &impl Fn(&F) -> usize) -> usize {
        let contents: usize = self.sent.iter().map(|(_, p)| content(&p.content)).sum();
        let numbers = self.skipped.capacity() + self.ack_only.capacity();
        self.sent.memory() + self.lost.memory() + numbers * size_of::<u64>() + contents
    }

    /// Releases the memory that is held for reuse. If only packets with ACKs are left, they
    /// are forgotten: the last packet of a quiet connection is often one, and nothing will
    /// acknowledge it.
    pub(crate) fn release_memory(&mut self) {
        if self.sent.iter().all(|(_, packet)| !packet.in_flight) {
            self.sent = Ledger::new();
            self.ack_only.clear();
        }
        self.sent.release_memory();
        self.lost.release_memory();
        self.ack_only.shrink_to_fit();
        self.skipped.shrink_to_fit();
    }
}

/// The ledgers by [`Space::index`]. Those of Initial and Handshake are freed once both are
/// discarded and the connection is idle.
#[derive(Debug)]
pub(crate) struct Spaces<F> {
    /// Initial and Handshake; `None` once both are freed.
    early: Option<Box<[SpaceLedger<F>; 2]>>,
    data: SpaceLedger<F>,
}

impl<F> Spaces<F> {
    pub(crate) fn new() -> Self {
        Self {
            early: Some(Box::new([const { SpaceLedger::new() }; 2])),
            data: SpaceLedger::new(),
        }
    }

    /// Returns the spaces that exist, in the order of the handshake.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SpaceLedger<F>> {
        let early = self.early.iter().flat_map(|early| early.iter());
        early.chain([&self.data])
    }

    /// Returns the spaces that exist, in the order of the handshake.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut SpaceLedger<F>> {
        let early = self.early.iter_mut().flat_map(|early| early.iter_mut());
        early.chain([&mut self.data])
    }

    /// Returns the bytes allocated; `content` as in [`SpaceLedger::memory`].
    pub(crate) fn memory(&self, content: &impl Fn(&F) -> usize) -> usize {
        let early = self.early.as_deref().map_or(0, size_of_val);
        early
            + self
                .iter()
                .map(|space| space.memory(content))
                .sum::<usize>()
    }

    /// Releases the memory that is held for reuse, and the discarded spaces.
    pub(crate) fn release_memory(&mut self) {
        self.iter_mut().for_each(SpaceLedger::release_memory);
        self.early
            .take_if(|early| early.iter().all(|space| space.discarded));
    }
}

impl<F> Index<usize> for Spaces<F> {
    type Output = SpaceLedger<F>;

    #[inline]
    fn index(&self, space: usize) -> &SpaceLedger<F> {
        match &self.early {
            Some(early) if space < early.len() => &early[space],
            None if space < Space::Data.index() => const { &SpaceLedger::discarded() },
            Some(_) | None => &self.data,
        }
    }
}

impl<F> IndexMut<usize> for Spaces<F> {
    #[inline]
    fn index_mut(&mut self, space: usize) -> &mut SpaceLedger<F> {
        if space == Space::Data.index() {
            return &mut self.data;
        }
        let over = || Box::new([const { SpaceLedger::discarded() }; 2]);
        &mut self.early.get_or_insert_with(over)[space]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::packet;

    #[test]
    fn oldest_ack_only_packets_are_forgotten_at_the_limit() {
        let mut space = SpaceLedger::new();
        for number in 0..100_000 {
            let mut sent = packet();
            sent.in_flight = false;
            space.push(number, sent);
        }
        assert_eq!(space.sent.len(), MAX_ACK_ONLY_PACKETS);
        // Forgotten is not the same as never sent.
        assert_eq!(space.check(&(0..=99_999)), Ok(()));
    }

    #[test]
    fn packets_in_flight_are_not_forgotten_at_the_ack_only_limit() {
        let mut space = SpaceLedger::new();
        for number in 0..2000 {
            let mut sent = packet();
            sent.in_flight = number % 2 == 0;
            space.push(number, sent);
        }
        let in_flight = space.sent.iter().filter(|(_, p)| p.in_flight).count();
        assert_eq!(in_flight, 1000);
    }

    #[test]
    fn ack_beyond_the_last_sent_packet_is_an_error() {
        let mut space = SpaceLedger::new();
        assert_eq!(
            space.check(&(0..=0)),
            Err(AckError::NeverSent { number: 0 })
        );
        space.push(0, packet());
        assert_eq!(space.check(&(0..=0)), Ok(()));
        assert_eq!(
            space.check(&(0..=1)),
            Err(AckError::NeverSent { number: 1 })
        );
    }

    #[test]
    fn ack_of_skipped_number_is_an_error() {
        let mut space = SpaceLedger::new();
        space.push(0, packet());
        space.skip();
        space.push(2, packet());
        assert_eq!(space.check(&(2..=2)), Ok(()));
        assert_eq!(space.check(&(0..=0)), Ok(()));
        assert_eq!(space.check(&(0..=2)), Err(AckError::Skipped { number: 1 }));
        assert_eq!(space.check(&(1..=1)), Err(AckError::Skipped { number: 1 }));
    }

    #[test]
    fn skipped_numbers_do_not_count_as_packets() {
        let mut space: SpaceLedger<()> = SpaceLedger::new();
        space.next = 10;
        assert_eq!(space.number_before(9, 3), Some(6));
        assert_eq!(space.number_before(2, 3), None);
        space.skip(); // 10
        space.next = 12;
        space.skip(); // 12
        space.next = 14;
        // Between 8 and 13 stand 9, 11 and 13 itself: three packets later.
        assert_eq!(space.number_before(13, 3), Some(8));
        assert_eq!(space.number_before(11, 3), Some(7));
        assert_eq!(space.number_before(9, 3), Some(6));
    }

    #[test]
    fn old_skipped_number_does_not_move_the_bound() {
        let mut space: SpaceLedger<()> = SpaceLedger::new();
        space.next = 2;
        space.skip();
        space.next = 20;
        assert_eq!(space.number_before(19, 3), Some(16));
    }

    fn filled(packets: u64, skipped: bool, lost: u64) -> SpaceLedger<()> {
        let mut space = SpaceLedger::new();
        for number in 0..packets {
            let mut sent = packet();
            sent.in_flight = false;
            space.push(number, sent);
        }
        if skipped {
            for _ in 0..MAX_SKIPPED_NUMBERS {
                space.skip();
            }
        }
        for number in 0..lost {
            space.lost.push(crate::spurious::tests::remembered(number));
        }
        space
    }

    #[test]
    fn memory_is_the_sum_of_packets_losses_and_skipped_numbers() {
        let nothing = |_: &()| 0;
        let memory = |space: SpaceLedger<()>| space.memory(&nothing);
        assert_eq!(memory(filled(0, false, 0)), 0);
        let (sent, skipped, lost) = (
            memory(filled(100, false, 0)),
            memory(filled(0, true, 0)),
            memory(filled(0, false, 100)),
        );
        assert!(sent >= 100 * (size_of::<Packet<()>>() + 8), "{sent}");
        assert!(
            (MAX_SKIPPED_NUMBERS * 8..=MAX_SKIPPED_NUMBERS * 16).contains(&skipped),
            "{skipped}"
        );
        assert_eq!(memory(filled(100, true, 100)), sent + skipped + lost);
        let contents = filled(100, true, 100).memory(&|()| 1_000);
        assert_eq!(contents, sent + skipped + lost + 100_000);
    }

    #[test]
    fn release_forgets_ack_only_packets_but_not_packets_in_flight() {
        let mut quiet = filled(100, false, 0);
        quiet.release_memory();
        assert_eq!(quiet.memory(&|()| 0), 0);
        let mut waiting = filled(100, false, 0);
        waiting.push(100, packet());
        waiting.release_memory();
        assert!(waiting.sent.get(100).is_some());
    }
}
