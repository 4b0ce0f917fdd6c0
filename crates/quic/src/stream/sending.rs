//! What the sending halves share: credit, buffer budget, schedule.

use core::num::NonZeroU64;
use std::collections::BTreeMap;

use super::StreamId;
use super::event::{Events, StreamEvent};
use super::schedule::{Priority, Schedule};
use super::send::{MIN_STREAM_BUFFER, ScheduleState, SendHalf, WriteBudget};
use crate::count::RunningTotal;
use crate::memory;

/// Bytes that may be buffered beyond the peer's MAX_DATA: about forty packets, so that data can be
/// sent as soon as credit arrives, before the application writes more.
const BEYOND_CREDIT: u64 = 4 * MIN_STREAM_BUFFER;

/// What every stream may buffer while MAX_DATA allows nothing to be sent, bytes. It is small because
/// buffering does not help then, and the peer may never raise the limit.
const MIN_STREAM_BUFFER_WITHOUT_CREDIT: u64 = MIN_STREAM_BUFFER / 4;

/// What one sending half adds to the shared accounts, apart from the bytes held, which are quickly
/// found out. Kept in the half, because each packet changes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HalfAccounts {
    charge: u64,
    ready: u64,
    memory: usize,
}

impl HalfAccounts {
    #[inline]
    pub(super) fn of(half: &SendHalf) -> Self {
        Self {
            charge: half.charge(),
            ready: half.ready(),
            memory: half.buffer.memory(),
        }
    }
}

/// Shared by all sending halves of a connection.
#[derive(Debug)]
pub(super) struct Sending {
    /// Streams that can send without connection credit.
    pub(super) free: Schedule,
    /// Streams that can send given connection credit.
    pub(super) paid: Schedule,
    /// Streams with data that wait for stream credit.
    pub(super) stalled: usize,
    /// The peer's limit on the sum of offsets (RFC 9000 §4.1).
    max_data: u64,
    /// The sum of offsets sent.
    used: u64,
    /// The limit in the last DATA_BLOCKED.
    blocked_at: Option<u64>,
    /// Whether a DATA_BLOCKED has to be sent.
    pub(super) blocked_pending: bool,
    /// Smallest budget, bytes.
    floor: u64,
    /// The last congestion window reported, bytes.
    hint: u64,
    /// Largest number of bytes held, whatever the budget.
    limit: u64,
    /// Bytes held that count against the budget ([`SendHalf::charge`]).
    charged: u64,
    /// All bytes held until acknowledged.
    held: u64,
    /// Those of them that could be sent if there were connection credit.
    ready: u64,
    /// Memory of all send buffers, bytes.
    memory: usize,
    /// Streams whose write was blocked by a full budget, in order of arrival.
    writers: BTreeMap<NonZeroU64, StreamId>,
    next_ticket: NonZeroU64,
}

impl Sending {
    pub(super) fn new(floor: u64, limit: u64) -> Self {
        Self {
            free: Schedule::default(),
            paid: Schedule::default(),
            stalled: 0,
            max_data: 0,
            used: 0,
            blocked_at: None,
            blocked_pending: false,
            floor: floor.max(4 * MIN_STREAM_BUFFER),
            hint: 0,
            limit,
            charged: 0,
            held: 0,
            ready: 0,
            memory: 0,
            writers: BTreeMap::new(),
            next_ticket: NonZeroU64::MIN,
        }
    }

    #[cfg(test)]
    pub(super) const fn charged(&self) -> u64 {
        self.charged
    }

    /// Returns the number of bytes that were written and are not acknowledged.
    pub(super) const fn held(&self) -> u64 {
        self.held
    }

    /// Returns the memory of the send buffers in bytes.
    pub(super) const fn buffered(&self) -> usize {
        self.memory
    }

    /// Returns the allocated memory in bytes: send buffers, turns, waiting writers.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    pub(super) fn memory(&self) -> usize {
        self.memory + self.free.memory() + self.paid.memory() + memory::btree_map(&self.writers)
    }

    /// Frees unused memory of a stream's buffer.
    pub(super) fn release_memory(&mut self, half: &mut SendHalf) {
        half.buffer.release_memory();
        self.count_memory(half);
    }

    /// Adds the accounts of a new stream.
    pub(super) fn admit(&mut self, half: &mut SendHalf) {
        self.count_memory(half);
    }

    /// Brings the account of memory up to date after that of `half` changed.
    fn count_memory(&mut self, half: &mut SendHalf) {
        let memory = half.buffer.memory();
        self.memory.replace_part(half.accounts.memory, memory);
        half.accounts.memory = memory;
    }

    /// Removes the accounts of a finished stream.
    pub(super) fn forget(&mut self, half: &SendHalf) {
        debug_assert_eq!((half.charge(), half.held(), half.ready()), (0, 0, 0));
        debug_assert_eq!(half.schedule_state, ScheduleState::default());
        self.memory.replace_part(half.accounts.memory, 0);
    }

    /// Returns the remaining connection credit in bytes.
    pub(super) const fn credit(&self) -> u64 {
        self.max_data.saturating_sub(self.used)
    }

    /// Returns the sum of offsets sent.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn raise_max_data(&mut self, limit: u64) {
        if limit > self.max_data {
            self.max_data = limit;
            self.note_blocked();
        }
    }

    /// Uses connection credit.
    pub(super) fn spend(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes);
        self.note_blocked();
    }

    /// Resets what was sent and the credit, after the server has rejected 0-RTT.
    pub(super) fn forget_credit(&mut self) {
        self.max_data = 0;
        self.used = 0;
        self.blocked_at = None;
        self.blocked_pending = false;
    }

    pub(super) fn is_blocked(&self) -> bool {
        !self.paid.is_empty() && self.credit() == 0
    }

    /// Records that only credit is missing, if the peer does not know.
    fn note_blocked(&mut self) {
        self.blocked_pending = self.is_blocked() && self.blocked_at != Some(self.max_data);
    }

    /// Records that DATA_BLOCKED is sent, and returns its limit.
    pub(super) fn take_blocked(&mut self) -> u64 {
        self.blocked_at = Some(self.max_data);
        self.blocked_pending = false;
        self.max_data
    }

    /// Called when a DATA_BLOCKED is lost.
    pub(super) fn on_blocked_lost(&mut self, at: u64) {
        if self.blocked_at == Some(at) {
            self.blocked_at = None;
            self.note_blocked();
        }
    }

    /// Returns the number of bytes that writers may hold together: twice the congestion window, so that
    /// while one window is in flight the next is being written.
    fn budget(&self) -> u64 {
        self.floor.max(self.hint.saturating_mul(2)).min(self.limit)
    }

    /// Returns the number of bytes that may wait to be sent: what connection credit lets out, and a
    /// little to be at hand when more arrives.
    fn useful(&self) -> u64 {
        self.credit().saturating_add(BEYOND_CREDIT)
    }

    /// Returns what writers may hold, and what each may in any case.
    pub(super) fn write_budget(&self) -> WriteBudget {
        let left = self.limit.saturating_sub(self.held);
        let shared = self.budget().saturating_sub(self.charged);
        let private = if self.credit() == 0 {
            MIN_STREAM_BUFFER_WITHOUT_CREDIT
        } else {
            MIN_STREAM_BUFFER
        };
        WriteBudget {
            room: shared
                .min(self.useful().saturating_sub(self.ready))
                .min(left),
            left,
            private,
            quarter: self.budget().min(self.useful()) / 4,
        }
    }

    /// Sets the most bytes that may be held.
    pub(super) fn set_limit(&mut self, bytes: u64) {
        self.limit = bytes;
    }

    pub(super) fn set_hint(&mut self, bytes: u64) {
        self.hint = bytes;
    }

    /// Brings accounts and turns up to date after `half` changed. Every change of a
    /// sending half ends here. `held` is what it held before; `admitted`: the peer's stream limit
    /// allows the stream.
    pub(super) fn settle(&mut self, id: StreamId, half: &mut SendHalf, held: u64, admitted: bool) {
        self.held.replace_part(held, half.held());
        let after = HalfAccounts::of(half);
        let before = core::mem::replace(&mut half.accounts, after);
        if after != before {
            self.charged.replace_part(before.charge, after.charge);
            self.ready.replace_part(before.ready, after.ready);
            self.memory.replace_part(before.memory, after.memory);
        }
        let wanted = if admitted {
            half.wanted_schedule()
        } else {
            ScheduleState::default()
        };
        let schedule_state = core::mem::replace(&mut half.schedule_state, wanted);
        if schedule_state == wanted {
            return;
        }
        move_in(
            &mut self.free,
            id,
            half.priority,
            schedule_state.free,
            wanted.free,
        );
        move_in(
            &mut self.paid,
            id,
            half.priority,
            schedule_state.paid,
            wanted.paid,
        );
        self.stalled.replace_part(
            usize::from(schedule_state.stalled),
            usize::from(wanted.stalled),
        );
        self.note_blocked();
    }

    /// Changes the priority of a stream.
    pub(super) fn set_priority(&mut self, id: StreamId, half: &mut SendHalf, new: Priority) {
        let new = new.after(half.buffer.sent());
        let old = core::mem::replace(&mut half.priority, new);
        if half.schedule_state.free {
            self.free.remove(id, old);
            self.free.insert(id, new);
        }
        if half.schedule_state.paid {
            self.paid.remove(id, old);
            self.paid.insert(id, new);
        }
    }

    /// Queues the writer of a stream whose write was blocked.
    pub(super) fn wait(&mut self, id: StreamId, half: &mut SendHalf) {
        half.wants_write = true;
        self.queue_writer(id, half);
    }

    /// Tells a waiting writer if it is worth its while now.
    pub(super) fn wake(&mut self, id: StreamId, half: &mut SendHalf, events: &mut Events) {
        if !half.wants_write {
            return;
        }
        if half.is_worth_writing(&self.write_budget()) {
            half.wants_write = false;
            self.unqueue_writer(half);
            events.push(StreamEvent::Writable(id));
        } else {
            self.queue_writer(id, half);
        }
    }

    /// Returns whether writers wait for the budget.
    #[inline]
    pub(super) fn has_writers(&self) -> bool {
        !self.writers.is_empty()
    }

    /// Returns the writer at the head of the queue, taken out, while there is useful room.
    pub(super) fn next_writer(&mut self) -> Option<StreamId> {
        if !self.write_budget().is_roomy() {
            return None;
        }
        self.writers.pop_first().map(|(_, id)| id)
    }

    /// Returns how many writers to tell at a time: enough to use the room. The others hear
    /// when more is acknowledged; when nothing is held that could be, all hear.
    pub(super) fn writers_to_wake(&self) -> usize {
        if self.charged == 0 {
            return self.writers.len();
        }
        usize::try_from(self.write_budget().room.div_ceil(MIN_STREAM_BUFFER)).unwrap_or(usize::MAX)
    }

    /// Queues a writer if the budget is full. One that lacks stream credit is woken by MAX_STREAM_DATA.
    fn queue_writer(&mut self, id: StreamId, half: &mut SendHalf) {
        if half.ticket.is_none() && !self.write_budget().is_roomy() {
            half.ticket = Some(self.next_ticket);
            self.writers.insert(self.next_ticket, id);
            self.next_ticket = self.next_ticket.saturating_add(1);
        }
    }

    pub(super) fn unqueue_writer(&mut self, half: &mut SendHalf) {
        if let Some(ticket) = half.ticket.take() {
            self.writers.remove(&ticket);
        }
    }
}

fn move_in(schedule: &mut Schedule, id: StreamId, priority: Priority, was: bool, is: bool) {
    if is && !was {
        schedule.insert(id, priority);
    } else if was && !is {
        schedule.remove(id, priority);
    }
}

#[cfg(feature = "testing")]
impl Sending {
    /// Returns whether the accounts are the sums over `halves`, which are all there are.
    pub(super) fn check_accounts<'a>(
        &self,
        halves: impl Iterator<Item = &'a SendHalf>,
    ) -> Result<(), String> {
        let (mut sums, mut stalled) = ([0_u64; 3], 0_usize);
        let mut memory = 0_usize;
        for half in halves {
            let HalfAccounts {
                charge,
                ready,
                memory: each,
            } = HalfAccounts::of(half);
            let held = half.held();
            for (sum, part) in sums.iter_mut().zip([charge, held, ready]) {
                *sum = sum.saturating_add(part);
            }
            memory = memory.saturating_add(each);
            stalled = stalled.saturating_add(usize::from(half.schedule_state.stalled));
        }
        let counted = [self.charged, self.held, self.ready];
        if (sums, memory, stalled) != (counted, self.memory, self.stalled) {
            return Err(format!(
                "charged, held, ready {sums:?}, memory {memory}, stalled {stalled}; \
                 the connection counts {counted:?}, {}, {}",
                self.memory, self.stalled
            ));
        }
        if self.used > self.max_data {
            return Err(format!(
                "{} bytes sent of {} allowed",
                self.used, self.max_data
            ));
        }
        Ok(())
    }
}
