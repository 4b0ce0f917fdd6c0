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

use std::collections::VecDeque;
use std::time::Duration;

use clearway_quic::endpoint::ConnectionHandle;

/// Time that a connection may use in each round: enough for ten small requests or a handshake.
pub(super) const QUANTUM: Duration = Duration::from_micros(300);

/// Bytes of stream data that pay for a microsecond. Even a slow processor transfers several
/// times as much.
const BYTES_PER_MICROSECOND: u64 = 64;

/// One part in this many of its time is owed by a connection whatever it transfers.
const FIXED_PART: u32 = 8;

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
    /// The round in which these were last updated.
    round: u32,
    queue: Option<Queue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
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
    prompt: VecDeque<ConnectionHandle>,
    round: VecDeque<ConnectionHandle>,
    /// The number of the round.
    number: u32,
    /// Turns left until it is over.
    left: usize,
}

/// What to do with the next connection of the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It gets its turn.
    Now,
    /// It still owes time, and waits for another round.
    Later,
}

impl Scheduler {
    pub(super) fn is_empty(&self) -> bool {
        self.prompt.is_empty() && self.round.is_empty()
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
        if self.has_quantum(account) {
            account.queue = Some(Queue::Prompt);
            self.prompt.push_back(handle);
        } else {
            account.queue = Some(Queue::Round);
            self.round.push_back(handle);
        }
    }

    /// Whether a datagram of the connection should wait for its turn: it has used its
    /// quantum, and others wait too, or may do so behind it in the socket if that is
    /// `socket_has_more`.
    pub(super) fn should_wait(&self, account: &mut TimeAccount, socket_has_more: bool) -> bool {
        let own = |queue| usize::from(account.queue == Some(queue));
        let alone =
            self.prompt.len() <= own(Queue::Prompt) && self.round.len() <= own(Queue::Round);
        (socket_has_more || !alone)
            && (account.queue == Some(Queue::Round) || !self.has_quantum(account))
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
        let payable = account.payable.saturating_add(nanos.saturating_sub(fixed));
        account.payable = payable.saturating_sub(paid).min(MAX_OWED);
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
        let all = self.prompt.iter().chain(&self.round);
        all.filter(|queued| **queued == handle).count()
    }

    fn begin_round(&mut self) {
        self.number = self.number.wrapping_add(1);
        self.left = self.round.len();
    }

    fn has_quantum(&self, account: &mut TimeAccount) -> bool {
        self.settle(account);
        account.payable.saturating_add(account.fixed) < QUANTUM_NANOS
    }

    /// Pays a quantum for each round since the last update.
    fn settle(&self, account: &mut TimeAccount) {
        let rounds = self.number.wrapping_sub(account.round);
        account.round = self.number;
        let paid = rounds.saturating_mul(QUANTUM_NANOS);
        let rest = paid.saturating_sub(account.fixed);
        account.fixed = account.fixed.saturating_sub(paid);
        account.payable = account.payable.saturating_sub(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENTH: Duration = Duration::from_micros(30);

    /// Connections with a turn each, numbered.
    struct Loop {
        scheduler: Scheduler,
        accounts: Vec<TimeAccount>,
    }

    impl Loop {
        fn new(connections: usize) -> Self {
            Self {
                scheduler: Scheduler::default(),
                accounts: vec![TimeAccount::default(); connections],
            }
        }

        fn push(&mut self, n: usize) {
            self.scheduler
                .push(ConnectionHandle(n as u64), &mut self.accounts[n]);
        }

        fn charge(&mut self, n: usize, time: Duration, moved: u64) {
            self.scheduler.charge(&mut self.accounts[n], time, moved);
        }

        fn due(&mut self, handle: ConnectionHandle) -> Due {
            let n = handle.0 as usize;
            self.scheduler.check_due(handle, &mut self.accounts[n])
        }

        /// Serves whose turn it is for `time` and has it wait for another.
        fn serve_round(&mut self, time: Duration) -> usize {
            loop {
                let handle = self.scheduler.pop_round().expect("somebody waits");
                if self.due(handle) == Due::Now {
                    let n = handle.0 as usize;
                    self.charge(n, time, 0);
                    self.push(n);
                    return n;
                }
            }
        }
    }

    #[test]
    fn connection_over_its_quantum_waits_for_the_next_round() {
        let mut event_loop = Loop::new(2);
        event_loop.charge(0, TENTH * 9, 0);
        event_loop.push(0);
        event_loop.charge(1, TENTH * 10, 0);
        event_loop.push(1);
        assert_eq!(
            (
                event_loop.scheduler.prompt(),
                event_loop.scheduler.waiting()
            ),
            (1, 1)
        );
        // What it uses while it is queued counts.
        event_loop.charge(0, TENTH, 0);
        let handle = event_loop.scheduler.pop_prompt().unwrap();
        assert_eq!(event_loop.due(handle), Due::Later);
        assert_eq!(
            (
                event_loop.scheduler.prompt(),
                event_loop.scheduler.waiting()
            ),
            (0, 2)
        );
    }

    #[test]
    fn single_connection_never_waits() {
        let mut event_loop = Loop::new(1);
        for _ in 0..100 {
            event_loop.charge(0, TENTH * 10, 0);
            assert!(
                !event_loop
                    .scheduler
                    .should_wait(&mut event_loop.accounts[0], false)
            );
            assert!(
                event_loop
                    .scheduler
                    .should_wait(&mut event_loop.accounts[0], true)
            );
            event_loop.push(0);
            let handle = event_loop
                .scheduler
                .pop_prompt()
                .or_else(|| event_loop.scheduler.pop_round());
            assert_eq!(event_loop.due(handle.unwrap()), Due::Now);
        }
    }

    #[test]
    fn waiting_connections_get_equal_time_whatever_a_turn_costs() {
        let mut event_loop = Loop::new(3);
        let costs = [TENTH, TENTH * 5, TENTH * 10];
        for n in 0..3 {
            event_loop.charge(n, TENTH * 10, 0);
            event_loop.push(n);
        }
        let mut used = [Duration::ZERO; 3];
        for _ in 0..3_000 {
            // A connection within its quantum is in the other queue.
            let Some(handle) = event_loop
                .scheduler
                .pop_prompt()
                .or_else(|| event_loop.scheduler.pop_round())
            else {
                panic!("nobody waits");
            };
            if event_loop.due(handle) == Due::Now {
                let n = handle.0 as usize;
                event_loop.charge(n, costs[n], 0);
                used[n] += costs[n];
                event_loop.push(n);
            }
        }
        let most = used.iter().max().unwrap();
        let least = used.iter().min().unwrap();
        assert!(*most - *least <= 2 * QUANTUM, "{used:?}");
    }

    #[test]
    fn quantum_is_restored_each_round() {
        let mut event_loop = Loop::new(3);
        for n in 0..2 {
            event_loop.charge(n, TENTH * 10, 0);
            event_loop.push(n);
        }
        event_loop.charge(2, TENTH * 10, 0);
        assert!(
            event_loop
                .scheduler
                .should_wait(&mut event_loop.accounts[2], false)
        );
        event_loop.serve_round(TENTH * 10);
        event_loop.serve_round(TENTH * 10);
        event_loop.serve_round(TENTH * 10);
        assert!(
            !event_loop
                .scheduler
                .should_wait(&mut event_loop.accounts[2], false)
        );
    }

    #[test]
    fn round_ends_when_no_connection_waits() {
        let mut event_loop = Loop::new(2);
        event_loop.charge(0, TENTH * 10, 0);
        event_loop.scheduler.end_round_if_idle();
        event_loop.push(1);
        assert!(
            !event_loop
                .scheduler
                .should_wait(&mut event_loop.accounts[0], false)
        );
    }

    #[test]
    fn stream_data_pays_for_all_but_an_eighth_of_the_time() {
        let mut event_loop = Loop::new(2);
        event_loop.push(1);
        let enough = BYTES_PER_MICROSECOND * 30;
        for _ in 0..79 {
            event_loop.charge(0, TENTH, enough);
        }
        assert!(
            !event_loop
                .scheduler
                .should_wait(&mut event_loop.accounts[0], false)
        );
        event_loop.charge(0, TENTH, enough);
        event_loop.charge(0, TENTH, enough);
        assert!(
            event_loop
                .scheduler
                .should_wait(&mut event_loop.accounts[0], false)
        );
    }

    #[test]
    fn long_turn_is_charged_at_most_a_quantum() {
        let mut event_loop = Loop::new(2);
        event_loop.push(1);
        event_loop.charge(0, Duration::from_secs(100), 0);
        event_loop.charge(0, Duration::from_secs(100), 0);
        event_loop.scheduler.end_round_if_idle();
        assert!(
            event_loop
                .scheduler
                .should_wait(&mut event_loop.accounts[0], false)
        );
        event_loop.scheduler.end_round_if_idle();
        assert!(
            !event_loop
                .scheduler
                .should_wait(&mut event_loop.accounts[0], false)
        );
    }
}
