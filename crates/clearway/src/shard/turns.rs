//! Whose turn it is on the event loop, so that no connection takes the others' time.
//!
//! Each connection may use a quantum of the loop's time in each round. Within that it is
//! served at once. A connection that has used more waits for its turn in the next round,
//! with the datagrams that have arrived for it ([`Backlog`](super::backlog::Backlog)); a
//! round is over when all that waited at its beginning have had a turn. This is deficit
//! round robin in which a newly active flow goes first, as in FQ-CoDel (RFC 8290 §4.2),
//! with time for bytes: what floods are made of is cheap to send and dear to process.
//!
//! Stream data that reaches its reader pays for the time it takes, all but an eighth. A
//! connection that is at work is therefore served before one that only keeps us busy.

use std::collections::VecDeque;
use std::time::Duration;

use clearway_quic::endpoint::ConnectionHandle;

/// Time that a connection may use in each round: some ten small requests, or a handshake.
pub(super) const QUANTUM: Duration = Duration::from_micros(300);

/// Stream data that pays for a microsecond. Even a slow processor moves several times that.
const BYTES_PER_MICROSECOND: u64 = 64;

/// One part in so many of its time a connection owes whatever it moves.
const FIXED_PART: u32 = 8;

/// Most that a connection can owe: its penance for one long turn, which may have been the
/// operating system's doing, must end soon.
const MOST_OWED: u32 = 8 * QUANTUM_NANOS;

const QUANTUM_NANOS: u32 = QUANTUM.as_nanos() as u32;

/// What one connection has used of the loop's time, and whether it waits for a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// Nanoseconds owed that stream data can pay for.
    payable: u32,
    /// Nanoseconds owed that only the end of a round pays for.
    fixed: u32,
    /// The round in which that was so.
    round: u32,
    queue: Option<Queue>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    /// Served as soon as possible.
    Prompt,
    /// In turns.
    Round,
}

#[cfg(test)]
impl Account {
    /// Whether the connection waits for a turn.
    pub(super) fn is_queued(self) -> bool {
        self.queue.is_some()
    }
}

/// The connections that wait for a turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    prompt: VecDeque<ConnectionHandle>,
    round: VecDeque<ConnectionHandle>,
    /// Which round this is.
    number: u32,
    /// Turns until it is over.
    left: usize,
}

/// What to do with the next connection of the round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It gets its turn.
    Now,
    /// It still owes for earlier ones, and waits for another round.
    Later,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.prompt.is_empty() && self.round.is_empty()
    }

    /// How many are served as soon as possible.
    pub(super) fn prompt(&self) -> usize {
        self.prompt.len()
    }

    /// How many are served in turns.
    pub(super) fn waiting(&self) -> usize {
        self.round.len()
    }

    /// The connection gets a turn.
    pub(super) fn push(&mut self, handle: ConnectionHandle, account: &mut Account) {
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
    /// `pressed`.
    pub(super) fn should_wait(&self, account: &mut Account, pressed: bool) -> bool {
        let own = |queue| usize::from(account.queue == Some(queue));
        let alone =
            self.prompt.len() <= own(Queue::Prompt) && self.round.len() <= own(Queue::Round);
        (pressed || !alone) && (account.queue == Some(Queue::Round) || !self.has_quantum(account))
    }

    /// The next connection to be served as soon as possible.
    pub(super) fn pop_prompt(&mut self) -> Option<ConnectionHandle> {
        self.prompt.pop_front()
    }

    /// The next connection of the round.
    pub(super) fn pop_round(&mut self) -> Option<ConnectionHandle> {
        if self.left == 0 {
            self.begin_round();
        }
        let handle = self.round.pop_front()?;
        self.left = self.left.saturating_sub(1);
        Some(handle)
    }

    /// What becomes of the connection that was popped. A prompt one may have used its
    /// quantum since it was queued; it is served in turns if others wait.
    pub(super) fn popped(&mut self, handle: ConnectionHandle, account: &mut Account) -> Due {
        account.queue = None;
        let alone = self.is_empty();
        if alone || self.has_quantum(account) {
            return Due::Now;
        }
        // Beyond those whose turns end this round.
        account.queue = Some(Queue::Round);
        self.round.push_back(handle);
        Due::Later
    }

    /// The connection has used so much time and moved so much stream data.
    pub(super) fn charge(&self, account: &mut Account, time: Duration, moved: u64) {
        self.settle(account);
        let nanos = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        let nanos = nanos.min(QUANTUM_NANOS);
        let fixed = nanos / FIXED_PART;
        let paid = moved.saturating_mul(1_000) / BYTES_PER_MICROSECOND;
        let paid = u32::try_from(paid).unwrap_or(u32::MAX);
        let payable = account.payable.saturating_add(nanos.saturating_sub(fixed));
        account.payable = payable.saturating_sub(paid).min(MOST_OWED);
        account.fixed = account.fixed.saturating_add(fixed).min(MOST_OWED);
    }

    /// Nobody waits in turns: what was used so far takes nothing from anybody.
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

    fn has_quantum(&self, account: &mut Account) -> bool {
        self.settle(account);
        account.payable.saturating_add(account.fixed) < QUANTUM_NANOS
    }

    /// Each round since has paid for a quantum.
    fn settle(&self, account: &mut Account) {
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
        turns: Turns,
        accounts: Vec<Account>,
    }

    impl Loop {
        fn of(connections: usize) -> Self {
            Self {
                turns: Turns::default(),
                accounts: vec![Account::default(); connections],
            }
        }

        fn push(&mut self, n: usize) {
            self.turns
                .push(ConnectionHandle(n as u64), &mut self.accounts[n]);
        }

        fn charge(&mut self, n: usize, time: Duration, moved: u64) {
            self.turns.charge(&mut self.accounts[n], time, moved);
        }

        fn due(&mut self, handle: ConnectionHandle) -> Due {
            let n = handle.0 as usize;
            self.turns.popped(handle, &mut self.accounts[n])
        }

        /// Serves whose turn it is for `time` and has it wait for another.
        fn serve_round(&mut self, time: Duration) -> usize {
            loop {
                let handle = self.turns.pop_round().expect("somebody waits");
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
    fn connection_within_its_quantum_is_prompt_and_one_beyond_waits() {
        let mut of = Loop::of(2);
        of.charge(0, TENTH * 9, 0);
        of.push(0);
        of.charge(1, TENTH * 10, 0);
        of.push(1);
        assert_eq!((of.turns.prompt(), of.turns.waiting()), (1, 1));
        // What it uses while it is queued counts.
        of.charge(0, TENTH, 0);
        let handle = of.turns.pop_prompt().unwrap();
        assert_eq!(of.due(handle), Due::Later);
        assert_eq!((of.turns.prompt(), of.turns.waiting()), (0, 2));
    }

    #[test]
    fn connection_alone_never_waits() {
        let mut of = Loop::of(1);
        for _ in 0..100 {
            of.charge(0, TENTH * 10, 0);
            assert!(!of.turns.should_wait(&mut of.accounts[0], false));
            assert!(of.turns.should_wait(&mut of.accounts[0], true));
            of.push(0);
            let handle = of.turns.pop_prompt().or_else(|| of.turns.pop_round());
            assert_eq!(of.due(handle.unwrap()), Due::Now);
        }
    }

    #[test]
    fn those_that_wait_get_equal_time_whatever_their_turns_cost() {
        let mut of = Loop::of(3);
        let costs = [TENTH, TENTH * 5, TENTH * 10];
        for n in 0..3 {
            of.charge(n, TENTH * 10, 0);
            of.push(n);
        }
        let mut used = [Duration::ZERO; 3];
        for _ in 0..3_000 {
            // Whoever is within its quantum would be prompt: keep it waiting.
            let Some(handle) = of.turns.pop_prompt().or_else(|| of.turns.pop_round()) else {
                panic!("nobody waits");
            };
            if of.due(handle) == Due::Now {
                let n = handle.0 as usize;
                of.charge(n, costs[n], 0);
                used[n] += costs[n];
                of.push(n);
            }
        }
        let most = used.iter().max().unwrap();
        let least = used.iter().min().unwrap();
        assert!(*most - *least <= 2 * QUANTUM, "{used:?}");
    }

    #[test]
    fn quantum_comes_back_with_the_round() {
        let mut of = Loop::of(3);
        for n in 0..2 {
            of.charge(n, TENTH * 10, 0);
            of.push(n);
        }
        of.charge(2, TENTH * 10, 0);
        assert!(of.turns.should_wait(&mut of.accounts[2], false));
        of.serve_round(TENTH * 10);
        of.serve_round(TENTH * 10);
        of.serve_round(TENTH * 10);
        assert!(!of.turns.should_wait(&mut of.accounts[2], false));
    }

    #[test]
    fn round_ends_when_nobody_waits() {
        let mut of = Loop::of(2);
        of.charge(0, TENTH * 10, 0);
        of.turns.end_round_if_idle();
        of.push(1);
        assert!(!of.turns.should_wait(&mut of.accounts[0], false));
    }

    #[test]
    fn data_moved_pays_for_all_but_a_part_of_the_time() {
        let mut of = Loop::of(2);
        of.push(1);
        let enough = BYTES_PER_MICROSECOND * 30;
        for _ in 0..79 {
            of.charge(0, TENTH, enough);
        }
        assert!(!of.turns.should_wait(&mut of.accounts[0], false));
        of.charge(0, TENTH, enough);
        of.charge(0, TENTH, enough);
        assert!(of.turns.should_wait(&mut of.accounts[0], false));
    }

    #[test]
    fn one_long_turn_is_a_quantum_at_most() {
        let mut of = Loop::of(2);
        of.push(1);
        of.charge(0, Duration::from_secs(100), 0);
        of.charge(0, Duration::from_secs(100), 0);
        of.turns.end_round_if_idle();
        assert!(of.turns.should_wait(&mut of.accounts[0], false));
        of.turns.end_round_if_idle();
        assert!(!of.turns.should_wait(&mut of.accounts[0], false));
    }
}
