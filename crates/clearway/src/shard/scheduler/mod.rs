//! Which connection gets the next turn, so that none takes the time of the others.
//!
//! Each connection may use a quantum of the loop's time in each round, and is served at once
//! within it. A connection that has used more waits for the next round, with the datagrams
//! that have arrived for it ([`Backlog`](super::backlog::Backlog)). A round is over when all
//! connections that waited at its beginning have had a turn. This is deficit round robin in
//! which a newly active flow goes first, as in FQ-CoDel (RFC 8290 §4.2), but it counts time
//! instead of bytes, because the packets of a flood are cheap to send and expensive to
//! process.
//!
//! Stream data that is transferred pays for the time it takes, except an eighth. So a
//! connection that transfers data is served before one that only causes work.
//!
//! Data that pays for more than the time it took is kept as credit. A connection with credit that
//! has not used much time lately is *favored*: it goes before all others, however many there are,
//! and among favored ones those go first that have used least. Hundreds of connections that each cause a little work within their quantum would otherwise
//! delay every request, and a download, which takes more than they do, would wait for several
//! rounds of all of them.

use std::collections::VecDeque;
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::endpoint::ConnectionHandle;

/// Time that a connection may use in each round: enough for ten small requests or a handshake.
pub(super) const QUANTUM: Duration = Duration::from_micros(300);

/// Bytes of stream data that pay for a microsecond. Downloads transfer dozens of times as much, but a
/// connection that asks for a few kilobytes at a time must not lose its credit by that, even if other
/// programs interrupt its turns: without it, it would wait for all that ask for nothing.
const BYTES_PER_MICROSECOND: u64 = 16;

/// One part in this many of its time is owed by a connection whatever it transfers.
const FIXED_PART: u32 = 8;

/// Most that a connection can have paid in advance, in nanoseconds, and what a new one has: a
/// handshake with its first request, or a dozen requests.
const MAX_CREDIT: u32 = 1_000_000;

/// Most nanoseconds that a favored connection has used lately: a sixteenth of the time. The download
/// of a large file takes less now and then; what always takes more cannot go first.
const MAX_RECENT_OF_FAVORED: u32 = 32_000_000;

/// Classes of favored connections, by what they have used lately.
const LEVELS: usize = 8;

/// What those of one level have used lately more than those of the level before, in nanoseconds:
/// about what it takes to send a file of a few MiB.
const LEVEL: u32 = MAX_RECENT_OF_FAVORED / LEVELS as u32;

/// The time after which what was used lately counts half, as a power of two of nanoseconds: 268 ms.
const EPOCH_BITS: u32 = 28;

/// Most that a connection can owe, in nanoseconds: it must recover soon from a single long
/// turn, which the operating system may have caused.
pub(crate) const MAX_OWED: u32 = 8 * QUANTUM_NANOS;

/// [`QUANTUM`] in nanoseconds.
pub(crate) const QUANTUM_NANOS: u32 = QUANTUM.as_nanos() as u32;

/// How much of the loop's time a connection has used, and whether it waits for a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimeAccount {
    /// Nanoseconds owed that stream data can pay for.
    payable: u32,
    /// Nanoseconds owed that only new rounds pay for.
    fixed: u32,
    /// Nanoseconds for which stream data has paid in advance.
    credit: u32,
    /// Nanoseconds used lately.
    recent: u32,
    /// The round in which what it owes was last updated.
    round: u32,
    /// The epoch in which `recent` was last halved.
    epoch: u32,
    queue: Option<Queue>,
}

impl TimeAccount {
    /// The account of a new connection, which is served before others.
    pub(super) fn favored() -> Self {
        Self {
            credit: MAX_CREDIT,
            ..Self::default()
        }
    }

    /// Returns the time used lately, as of the last turn.
    pub(super) fn recent(self) -> Duration {
        Duration::from_nanos(self.recent.into())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// Served before all others.
    Favored,
    /// Served as soon as possible.
    Prompt,
    /// Served in rounds.
    Round,
}

#[cfg(test)]
impl TimeAccount {
    /// Whether the connection waits for a turn.
    pub(super) fn is_queued(self) -> bool {
        self.queue.is_some()
    }
}

/// The connections that wait for a turn.
#[derive(Debug, Default)]
pub(super) struct Scheduler {
    /// Those that have used least lately come first.
    favored: [VecDeque<ConnectionHandle>; LEVELS],
    prompt: VecDeque<ConnectionHandle>,
    round: VecDeque<ConnectionHandle>,
    /// The number of the round.
    number: u32,
    /// Turns left until it is over.
    left: usize,
    /// The number of the epoch.
    epoch: u32,
}

/// How much waits in the socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Pressure {
    /// Nothing, when it was last read.
    #[default]
    Drained,
    /// There was more, and a read may take it all.
    MoreWaits,
    /// More than was read in the time for it.
    Overrun,
}

/// What to do with the next connection of the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It gets its turn, and goes before others.
    First,
    /// It gets its turn.
    Now,
    /// It still owes time, and waits for another round.
    Later,
}

impl Scheduler {
    pub(super) fn is_empty(&self) -> bool {
        self.queues().all(VecDeque::is_empty)
    }

    /// Returns the account of a new connection. One from a source of which `many` came lately is not
    /// favored at first: whoever ends each connection for a new one would always be new.
    pub(super) fn account(&self, many: bool) -> TimeAccount {
        if many {
            TimeAccount {
                recent: MAX_RECENT_OF_FAVORED + 1,
                round: self.number,
                epoch: self.epoch,
                ..TimeAccount::default()
            }
        } else {
            TimeAccount::favored()
        }
    }

    /// Sets the time, from which epochs are counted.
    pub(super) fn set_time(&mut self, now: Instant) {
        self.epoch = (now.as_nanos() >> EPOCH_BITS) as u32;
    }

    /// Returns how many connections are served before all others.
    pub(super) fn favored(&self) -> usize {
        self.favored.iter().map(VecDeque::len).sum()
    }

    /// Returns how many connections are served as soon as possible.
    pub(super) fn prompt(&self) -> usize {
        self.prompt.len()
    }

    /// Returns how many connections are served in rounds.
    pub(super) fn waiting(&self) -> usize {
        self.round.len()
    }

    /// Queues the connection for a turn, unless it is queued already.
    pub(super) fn push(&mut self, handle: ConnectionHandle, account: &mut TimeAccount) {
        if account.queue.is_some() {
            return;
        }
        if self.is_favored(account) {
            account.queue = Some(Queue::Favored);
            let level = (account.recent / LEVEL) as usize;
            if let Some(queue) = self.favored.get_mut(level.min(LEVELS - 1)) {
                queue.push_back(handle);
            }
        } else if self.has_quantum(account) {
            account.queue = Some(Queue::Prompt);
            self.prompt.push_back(handle);
        } else {
            account.queue = Some(Queue::Round);
            self.round.push_back(handle);
        }
    }

    /// Whether a datagram of the connection should wait for its turn, because others wait too, or
    /// may do so behind it in the socket, as `pressure` tells.
    ///
    /// It waits if the connection has used its quantum. If the socket is overrun, so do datagrams of
    /// all connections without credit: otherwise the time to read the socket would be spent on them,
    /// and the kernel would drop what arrives for the others.
    pub(super) fn should_wait(&self, account: &mut TimeAccount, pressure: Pressure) -> bool {
        if self.is_favored(account) {
            return false;
        }
        let is_over = account.queue == Some(Queue::Round) || !self.has_quantum(account);
        match pressure {
            Pressure::Drained => is_over && !self.is_alone(account),
            Pressure::MoreWaits => is_over,
            Pressure::Overrun => is_over || account.credit == 0 && !self.is_alone(account),
        }
    }

    /// Whether no other connection waits for a turn.
    fn is_alone(&self, account: &TimeAccount) -> bool {
        let own = usize::from(account.queue.is_some());
        self.queues().flatten().nth(own).is_none()
    }

    /// Returns all queues.
    fn queues(&self) -> impl Iterator<Item = &VecDeque<ConnectionHandle>> {
        self.favored.iter().chain([&self.prompt, &self.round])
    }

    /// Removes the next connection to be served before all others.
    pub(super) fn pop_favored(&mut self) -> Option<ConnectionHandle> {
        self.favored.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Removes the next connection to be served as soon as possible.
    pub(super) fn pop_prompt(&mut self) -> Option<ConnectionHandle> {
        self.prompt.pop_front()
    }

    /// Removes the next connection of the round.
    pub(super) fn pop_round(&mut self) -> Option<ConnectionHandle> {
        if self.left == 0 {
            self.begin_round();
        }
        let handle = self.round.pop_front()?;
        self.left = self.left.saturating_sub(1);
        Some(handle)
    }

    /// Decides about a connection that was removed from a queue. One that was to be served as
    /// soon as possible may have used up its quantum meanwhile; it is then served in rounds
    /// if others wait.
    pub(super) fn check_due(&mut self, handle: ConnectionHandle, account: &mut TimeAccount) -> Due {
        account.queue = None;
        let alone = self.is_empty();
        if self.is_favored(account) {
            return Due::First;
        }
        if alone || self.has_quantum(account) {
            return Due::Now;
        }
        // Behind those whose turns end this round.
        account.queue = Some(Queue::Round);
        self.round.push_back(handle);
        Due::Later
    }

    /// Charges a connection for the time it has used, which `moved` bytes of stream data reduce.
    pub(super) fn charge(&self, account: &mut TimeAccount, time: Duration, moved: u64) {
        self.settle(account);
        let nanos = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        let nanos = nanos.min(QUANTUM_NANOS);
        let fixed = nanos / FIXED_PART;
        let paid = moved.saturating_mul(1_000) / BYTES_PER_MICROSECOND;
        let paid = u32::try_from(paid).unwrap_or(u32::MAX);
        let owed = account.payable.saturating_add(nanos.saturating_sub(fixed));
        let available = account.credit.saturating_add(paid);
        account.payable = owed.saturating_sub(available).min(MAX_OWED);
        account.credit = available.saturating_sub(owed).min(MAX_CREDIT);
        account.recent = account.recent.saturating_add(nanos);
        account.fixed = account.fixed.saturating_add(fixed).min(MAX_OWED);
    }

    /// Begins a new round if no connection waits, because time used so far delays none.
    pub(super) fn end_round_if_idle(&mut self) {
        if self.round.is_empty() {
            self.begin_round();
        }
    }

    #[cfg(test)]
    pub(super) fn times_queued(&self, handle: ConnectionHandle) -> usize {
        let all = self.queues().flatten();
        all.filter(|queued| **queued == handle).count()
    }

    fn begin_round(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.left = self.round.len();
    }

    fn is_favored(&self, account: &mut TimeAccount) -> bool {
        self.settle(account);
        account.credit > 0 && account.recent <= MAX_RECENT_OF_FAVORED
    }

    fn has_quantum(&self, account: &mut TimeAccount) -> bool {
        self.settle(account);
        account.payable.saturating_add(account.fixed) < QUANTUM_NANOS
    }

    /// Pays a quantum for each round since the last update, and halves what was used lately for
    /// each epoch.
    fn settle(&self, account: &mut TimeAccount) {
        let epochs = self.epoch.wrapping_sub(account.epoch);
        account.epoch = self.epoch;
        account.recent = account.recent.checked_shr(epochs).unwrap_or(0);
        let rounds = self.number.wrapping_sub(account.round);
        account.round = self.number;
        let paid = rounds.saturating_mul(QUANTUM_NANOS);
        let rest = paid.saturating_sub(account.fixed);
        account.fixed = account.fixed.saturating_sub(paid);
        account.payable = account.payable.saturating_sub(rest);
    }
}

#[cfg(test)]
mod tests;
