//! Turns of connections on the runtime that answers their requests.
//!
//! A runtime polls tasks in the order in which they were woken. A client with a hundred
//! requests has a hundred tasks, and another one's single request would wait for all of
//! them. So each connection has an [`Account`] of the time that its tasks have used. Up to
//! a quantum (`QUANTUM_NANOS`) its tasks are polled at once. Beyond it they wait until it is the
//! connection's turn: deficit round robin, as on the event loop (`shard::scheduler`).
//!
//! A connection that is alone waits for its turn too, but only until the runtime has
//! polled what else is ready.
//!
//! In a turn one waiting task is woken, and when it was polled the next one, until the
//! quantum is used. So the runtime's own queue holds a task of each connection, not a
//! hundred of one.
//!
//! Lock order: the queue, then an account's list of tasks. Tasks are woken under neither.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use pin_project_lite::pin_project;

use crate::shard::{Clock, MAX_OWED, QUANTUM_NANOS};

/// Connections that are passed over, because they still owe, before the runtime gets to do
/// something else.
const MOST_PASSED: usize = 64;

/// The turns of the connections whose tasks one runtime polls.
#[derive(Debug)]
pub(crate) struct Turns {
    clock: Clock,
    /// The number of this round. Each round pays for a quantum of every connection.
    round: AtomicU32,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    /// Connections that wait for a turn.
    waiting: VecDeque<Arc<Account>>,
    /// How many of them still belong to this round.
    left: usize,
    /// A task gives out turns.
    served: bool,
}

/// What the tasks of one connection have used, and those that wait for its turn.
#[derive(Debug)]
pub(super) struct Account {
    turns: Arc<Turns>,
    /// [`Owed`], packed.
    owed: AtomicU64,
    /// Whether it is in the queue, which it is as long as a task waits.
    queued: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    tasks: VecDeque<Waker>,
    /// The ticket of the first of them.
    first: u32,
}

impl Waiting {
    fn has(&self, ticket: u32) -> bool {
        let place = ticket.wrapping_sub(self.first);
        usize::try_from(place).is_ok_and(|place| place < self.tasks.len())
    }

    /// Adds a task, and returns its ticket.
    fn push(&mut self, task: Waker) -> u32 {
        let place = u32::try_from(self.tasks.len()).unwrap_or(u32::MAX);
        self.tasks.push_back(task);
        self.first.wrapping_add(place)
    }

    fn pop(&mut self) -> Option<Waker> {
        let task = self.tasks.pop_front()?;
        self.first = self.first.wrapping_add(1);
        Some(task)
    }
}

/// Nanoseconds that a connection owes as of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owed {
    nanos: u32,
    round: u32,
}

impl Owed {
    fn unpack(packed: u64) -> Self {
        Self {
            nanos: packed as u32,
            round: (packed >> 32) as u32,
        }
    }

    fn pack(self) -> u64 {
        u64::from(self.round) << 32 | u64::from(self.nanos)
    }

    /// What is left of it in a later round.
    fn in_round(self, round: u32) -> Self {
        let rounds = round.wrapping_sub(self.round);
        // Another thread may know of a later round already.
        if rounds > u32::MAX / 2 {
            return self;
        }
        let paid = rounds.saturating_mul(QUANTUM_NANOS);
        Self {
            nanos: self.nanos.saturating_sub(paid),
            round,
        }
    }
}

impl Turns {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            round: AtomicU32::new(0),
            queue: Mutex::default(),
        })
    }

    /// Begins the turns of `count` connections. False if none waits.
    fn give(&self, count: usize) -> bool {
        for _ in 0..count {
            match self.next() {
                Next::Due(account) => account.wake_one(),
                Next::Later => return true,
                Next::Nobody => return false,
            }
        }
        true
    }

    fn next(&self) -> Next {
        let mut queue = lock(&self.queue);
        for _ in 0..MOST_PASSED {
            if queue.left == 0 {
                self.round.fetch_add(1, Ordering::Relaxed);
                queue.left = queue.waiting.len();
            }
            let Some(account) = queue.waiting.pop_front() else {
                queue.served = false;
                return Next::Nobody;
            };
            queue.left = queue.left.saturating_sub(1);
            if !account.is_awaited() {
                continue;
            }
            let due = account.has_quantum().then(|| account.clone());
            // Its first task is about to be woken. Others may not be reached in this turn.
            queue.waiting.push_back(account);
            if let Some(account) = due {
                return Next::Due(account);
            }
        }
        Next::Later
    }

    /// Adds a connection to the queue.
    fn enqueue(self: &Arc<Self>, account: Arc<Account>) {
        let served = {
            let mut queue = lock(&self.queue);
            queue.waiting.push_back(account);
            mem::replace(&mut queue.served, true)
        };
        if !served {
            let giver = Giver {
                turns: self.clone(),
                is_done: false,
            };
            tokio::spawn(giver.run());
        }
    }
}

/// What the task that gives out turns finds.
enum Next {
    /// It is the turn of this connection.
    Due(Arc<Account>),
    /// Many that still owe.
    Later,
    /// No connection waits.
    Nobody,
}

impl Account {
    pub(super) fn new(turns: Arc<Turns>) -> Arc<Self> {
        let round = turns.round.load(Ordering::Relaxed);
        Arc::new(Self {
            owed: AtomicU64::new(Owed { nanos: 0, round }.pack()),
            turns,
            queued: AtomicBool::new(false),
            waiting: Mutex::default(),
        })
    }

    fn owed(&self) -> Owed {
        let round = self.turns.round.load(Ordering::Relaxed);
        Owed::unpack(self.owed.load(Ordering::Relaxed)).in_round(round)
    }

    fn has_quantum(&self) -> bool {
        self.owed().nanos < QUANTUM_NANOS
    }

    /// A task has used so much time.
    fn charge(&self, time: Duration) {
        let used = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        let used = used.min(QUANTUM_NANOS);
        let round = self.turns.round.load(Ordering::Relaxed);
        let charged = |packed| {
            let Owed { nanos, round } = Owed::unpack(packed).in_round(round);
            let nanos = nanos.saturating_add(used).min(MAX_OWED);
            Some(Owed { nanos, round }.pack())
        };
        let _ = self
            .owed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
    }

    /// Ready when the task may use time. `ticket` is the task's own, `None` unless it waits.
    fn poll_turn(self: &Arc<Self>, ticket: &mut Option<u32>, cx: &Context<'_>) -> Poll<()> {
        let may_go_first = ticket.is_none() && self.has_quantum();
        if may_go_first && !self.queued.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        let mut waiting = lock(&self.waiting);
        match ticket {
            None if may_go_first && waiting.tasks.is_empty() => return Poll::Ready(()),
            None => *ticket = Some(waiting.push(cx.waker().clone())),
            // Woken by something else.
            Some(listed) if waiting.has(*listed) => return Poll::Pending,
            Some(_) => {
                // Whoever was woken for the turn takes it, and owes for it if it was over.
                *ticket = None;
                return Poll::Ready(());
            }
        }
        let queued = self.queued.swap(true, Ordering::Relaxed);
        drop(waiting);
        if !queued {
            self.turns.enqueue(self.clone());
        }
        Poll::Pending
    }

    /// Waits until the connection may use time.
    pub(super) async fn turn(self: &Arc<Self>) {
        let mut ticket = None;
        poll_fn(|cx| self.poll_turn(&mut ticket, cx)).await;
    }

    /// Does some work on the connection's account.
    pub(super) fn work<T>(&self, work: impl FnOnce() -> T) -> T {
        let clock = &self.turns.clock;
        let begun = clock.now();
        let result = work();
        self.charge(clock.now().saturating_since(begun));
        // What waits behind it continues the turn.
        if self.queued.load(Ordering::Relaxed) && self.has_quantum() {
            self.wake_one();
        }
        result
    }

    /// Whether a task waits. If not, the connection leaves the queue.
    fn is_awaited(&self) -> bool {
        let waiting = lock(&self.waiting);
        let is_awaited = !waiting.tasks.is_empty();
        self.queued.store(is_awaited, Ordering::Relaxed);
        is_awaited
    }

    fn wake_one(&self) {
        let task = lock(&self.waiting).pop();
        if let Some(task) = task {
            task.wake();
        }
    }

    fn wake_all(&self) {
        let tasks = {
            let mut waiting = lock(&self.waiting);
            self.queued.store(false, Ordering::Relaxed);
            std::iter::from_fn(|| waiting.pop()).collect::<Vec<_>>()
        };
        tasks.into_iter().for_each(Waker::wake);
    }
}

/// The task that gives out turns for as long as a connection waits for one.
struct Giver {
    turns: Arc<Turns>,
    is_done: bool,
}

impl Giver {
    async fn run(mut self) {
        let workers = tokio::runtime::Handle::current().metrics().num_workers();
        while !self.is_done {
            // What else is ready comes first.
            tokio::task::yield_now().await;
            self.is_done = !self.turns.give(workers);
        }
    }
}

impl Drop for Giver {
    /// If its runtime ends, tasks on another one do not wait for ever.
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let stranded = {
            let mut queue = lock(&self.turns.queue);
            queue.served = false;
            mem::take(&mut queue.waiting)
        };
        stranded.iter().for_each(|account| account.wake_all());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pin_project! {
    /// A task of a connection, polled when it is the connection's turn.
    pub(super) struct InTurn<F> {
        account: Arc<Account>,
        ticket: Option<u32>,
        #[pin]
        task: F,
    }
}

impl<F> InTurn<F> {
    pub(super) fn new(account: Arc<Account>, task: F) -> Self {
        Self {
            account,
            ticket: None,
            task,
        }
    }
}

impl<F: Future> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        ready!(this.account.poll_turn(this.ticket, cx));
        this.account.work(|| this.task.poll(cx))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use clearway_quic::Instant as Virtual;

    use super::*;

    /// What each poll takes.
    const POLL: Duration = Duration::from_micros(30);

    const POLLS: usize = (QUANTUM_NANOS as u128 / POLL.as_nanos()) as usize;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
    }

    fn turns() -> Arc<Turns> {
        Clock::set(Virtual::ZERO);
        Clock::set_step(POLL);
        Turns::new(Clock::manual())
    }

    /// A task that wants to be polled again at once, and counts how often it was.
    async fn busy(polls: Arc<AtomicUsize>, times: usize) {
        for _ in 0..times {
            polls.fetch_add(1, Ordering::Relaxed);
            let mut again = true;
            poll_fn(|cx| {
                if mem::take(&mut again) {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(())
            })
            .await;
        }
    }

    fn spawn(account: &Arc<Account>, tasks: usize, times: usize) -> Arc<AtomicUsize> {
        let polls = Arc::new(AtomicUsize::new(0));
        for _ in 0..tasks {
            tokio::spawn(InTurn::new(account.clone(), busy(polls.clone(), times)));
        }
        polls
    }

    #[test]
    fn single_request_does_not_wait_for_a_hundred_of_another_connection() {
        runtime().block_on(async {
            let turns = turns();
            let crowd = spawn(&Account::new(turns.clone()), 100, 1_000);
            let newcomer = Account::new(turns);
            let answered = tokio::spawn(InTurn::new(newcomer, async {}));
            answered.await.unwrap();
            let polls = crowd.load(Ordering::Relaxed);
            assert!((1..=POLLS).contains(&polls), "{polls} polls");
        });
    }

    #[test]
    fn connections_get_equal_time_however_many_tasks_they_have() {
        runtime().block_on(async {
            let turns = turns();
            let many = spawn(&Account::new(turns.clone()), 100, 1_000);
            let few = spawn(&Account::new(turns.clone()), 2, 100_000);
            let one = spawn(&Account::new(turns), 1, 100_000);
            for _ in 0..1_000_000 {
                if one.load(Ordering::Relaxed) >= 5_000 {
                    break;
                }
                tokio::task::yield_now().await;
            }
            let polls = one.load(Ordering::Relaxed);
            assert!(polls >= 5_000, "{polls} polls");
            for other in [many, few] {
                let polls = other.load(Ordering::Relaxed);
                assert!(polls.abs_diff(5_000) <= 2 * POLLS, "{polls} polls");
            }
        });
    }

    #[test]
    fn every_task_ends_however_much_it_uses() {
        for workers in [1, 2] {
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(workers)
                .build()
                .unwrap();
            runtime.block_on(async {
                // Real time: what a poll takes does not matter here.
                let turns = Turns::new(Clock::start());
                let mut tasks = tokio::task::JoinSet::new();
                for _ in 0..20 {
                    let account = Account::new(turns.clone());
                    for _ in 0..20 {
                        let work = async {
                            for _ in 0..20 {
                                std::hint::black_box((0..5_000_u64).map(|n| n ^ 5).sum::<u64>());
                                tokio::task::yield_now().await;
                            }
                        };
                        tasks.spawn(InTurn::new(account.clone(), work));
                    }
                }
                tasks.join_all().await;
                // The task that gives out turns may still be finding out that nobody waits.
                let is_empty = || lock(&turns.queue).waiting.is_empty();
                for _ in 0..100_000 {
                    if is_empty() {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                assert!(is_empty());
            });
        }
    }

    #[test]
    fn tasks_do_not_wait_for_a_runtime_that_has_ended() {
        let turns = turns();
        let account = Account::new(turns.clone());
        let ended = runtime();
        // It ends with a task that gives out turns, and never will.
        ended.block_on(async {
            let _ = spawn(&account, 2, 2 * POLLS);
            for _ in 0..1_000 {
                tokio::task::yield_now().await;
                if !lock(&turns.queue).waiting.is_empty() {
                    return;
                }
            }
            panic!("no connection waits");
        });
        let runtime = runtime();
        let waiting = runtime.spawn(InTurn::new(account.clone(), async {}));
        runtime.block_on(tokio::task::yield_now());
        assert!(!waiting.is_finished());
        drop(ended);
        for _ in 0..1_000 {
            runtime.block_on(tokio::task::yield_now());
        }
        assert!(waiting.is_finished());
    }

    #[test]
    fn debt_is_paid_by_rounds_and_bounded() {
        let turns = turns();
        let account = Account::new(turns.clone());
        account.charge(POLL);
        assert!(account.has_quantum());
        for _ in 0..100 {
            account.charge(Duration::from_secs(100));
        }
        for _ in 0..8 {
            assert!(!account.has_quantum());
            turns.round.fetch_add(1, Ordering::Relaxed);
        }
        assert!(account.has_quantum());
        // A thread that has not seen the last round yet pays nothing back.
        let owed = account.owed();
        assert_eq!(owed.in_round(owed.round.wrapping_sub(1)), owed);
    }
}
