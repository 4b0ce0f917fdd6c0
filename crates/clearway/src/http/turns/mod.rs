//! Turns of connections on the runtime that answers their requests.
//!
//! A runtime polls tasks in the order in which they were woken. A client with a hundred
//! requests has a hundred tasks, and another one's single request would wait for all of
//! them. So each connection has an [`Account`] of the time that its tasks have used. Up to
//! a quantum (`QUANTUM_NANOS`) its tasks are polled at once. Beyond it they wait until it is the
//! connection's turn: deficit round robin, as on the event loop (`shard::scheduler`).
//!
//! A connection that has used little lately is not delayed at all: a download now and then, in
//! pieces of which each is a turn, would wait for a round of those that never end after every few.
//!
//! A connection that is alone waits for its turn too, but only until the runtime has
//! polled what else is ready.
//!
//! While the event loop hurries, it [limits](Turns::limit) the time until its own next turn. Once it is used,
//! only connections that have used little go on, and one of those that wait; or not even that
//! ([`Turns::pause`]), because something else has to wait no longer.
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

use clearway_quic::Instant;
use pin_project_lite::pin_project;

use crate::panic::catch;
use crate::shard::{Clock, MAX_OWED, QUANTUM_NANOS};

/// Connections that are passed over, because they still owe, before the runtime gets to do
/// something else.
const MOST_PASSED: usize = 64;

/// Most nanoseconds that the tasks of a connection have used lately if it is not delayed: a
/// hundredth of the time. It is enough to hand out a file of several MiB now and then.
const LITTLE: u32 = 4_000_000;

/// The time after which what was used lately counts half, as a power of two of nanoseconds: 268 ms.
const EPOCH_BITS: u32 = 28;

/// What a new connection counts as having used lately: it is not delayed once it has existed for a
/// while. Whoever ends each connection for a new one would never be delayed otherwise.
const NEW: u32 = 4 * LITTLE;

/// The turns of the connections whose tasks one runtime polls.
#[derive(Debug)]
pub(crate) struct Turns {
    clock: Clock,
    /// The number of this round. Each round pays for a quantum of every connection.
    round: AtomicU32,
    queue: Mutex<Queue>,
    /// Nanoseconds left for connections that have not used little, [`UNLIMITED`] if they need not hurry.
    left: AtomicU32,
    /// Those that wait get no turn until the event loop's next one.
    paused: AtomicBool,
}

/// No limit until the event loop's next turn.
const UNLIMITED: u32 = u32::MAX;

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
    /// What was used lately: an [`Owed`] of an epoch instead of a round.
    recent: AtomicU64,
    /// Whether it is in the queue, which it is as long as a task waits.
    queued: AtomicBool,
    /// Whether the runtime has one thread.
    has_one_thread: bool,
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

    /// What is left of it in a later epoch, if it is counted by epochs.
    fn in_epoch(self, epoch: u32) -> Self {
        let epochs = epoch.wrapping_sub(self.round);
        if epochs > u32::MAX / 2 {
            return self;
        }
        Self {
            nanos: self.nanos.checked_shr(epochs).unwrap_or(0),
            round: epoch,
        }
    }
}

impl Turns {
    pub(crate) fn new(clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            clock,
            round: AtomicU32::new(0),
            queue: Mutex::default(),
            left: AtomicU32::new(UNLIMITED),
            paused: AtomicBool::new(false),
        })
    }

    /// The number of the epoch.
    fn epoch(&self) -> u32 {
        (self.clock.now().as_nanos() >> EPOCH_BITS) as u32
    }

    /// Sets how long tasks of connections that have not used little may take from now on, together.
    /// Whoever sets it has to set it again, or [lift](Self::lift_limit) it, because they wait meanwhile.
    pub(crate) fn limit(&self, time: Duration) {
        let nanos = u32::try_from(time.as_nanos()).unwrap_or(UNLIMITED);
        self.left.store(nanos, Ordering::Relaxed);
        self.paused.store(false, Ordering::Relaxed);
    }

    pub(crate) fn lift_limit(&self) {
        self.left.store(UNLIMITED, Ordering::Relaxed);
        self.paused.store(false, Ordering::Relaxed);
    }

    /// Lets tasks of connections that have not used little wait, until [`limit`](Self::limit) or
    /// [`lift_limit`](Self::lift_limit).
    pub(crate) fn pause(&self) {
        self.left.store(0, Ordering::Relaxed);
        self.paused.store(true, Ordering::Relaxed);
    }

    /// Whether a connection waits for a turn.
    pub(crate) fn has_waiting(&self) -> bool {
        !lock(&self.queue).waiting.is_empty()
    }

    fn has_time(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
    }

    /// Reduces what is left by `nanos`, if there is a limit.
    fn spend(&self, nanos: u32) {
        let rest = |left| (left != UNLIMITED).then(|| u32::saturating_sub(left, nanos));
        let _ = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
    }

    /// Begins the turns of `count` connections. False if none waits.
    fn give(&self, count: usize) -> bool {
        if self.paused.load(Ordering::Relaxed) {
            return true;
        }
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
            let due = account.is_due().then(|| account.clone());
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
    /// Creates the account of a connection whose tasks a runtime with so many threads polls.
    pub(super) fn new(turns: Arc<Turns>, threads: usize) -> Arc<Self> {
        Arc::new(Self::with_recent(turns, threads, NEW))
    }

    /// The same for a connection that is not delayed at first, because few others came from its source
    /// lately.
    pub(super) fn favored(turns: Arc<Turns>, threads: usize) -> Arc<Self> {
        Arc::new(Self::with_recent(turns, threads, 0))
    }

    fn with_recent(turns: Arc<Turns>, threads: usize, nanos: u32) -> Self {
        let round = turns.round.load(Ordering::Relaxed);
        let recent = Owed {
            nanos,
            round: turns.epoch(),
        };
        Self {
            owed: AtomicU64::new(Owed { nanos: 0, round }.pack()),
            recent: AtomicU64::new(recent.pack()),
            turns,
            queued: AtomicBool::new(false),
            has_one_thread: threads == 1,
            waiting: Mutex::default(),
        }
    }

    fn owed(&self) -> Owed {
        let round = self.turns.round.load(Ordering::Relaxed);
        Owed::unpack(self.owed.load(Ordering::Relaxed)).in_round(round)
    }

    fn has_quantum(&self) -> bool {
        self.owed().nanos < QUANTUM_NANOS
    }

    /// Whether it is the connection's turn: it has not used its quantum, or has used little lately.
    fn is_due(&self) -> bool {
        self.has_quantum() || self.has_used_little()
    }

    /// Whether a task may be polled without waiting for a turn: there is time for it, too.
    fn may_go_on(&self) -> bool {
        self.has_used_little() || self.has_quantum() && self.turns.has_time()
    }

    fn has_used_little(&self) -> bool {
        let recent = Owed::unpack(self.recent.load(Ordering::Relaxed));
        recent.in_epoch(self.turns.epoch()).nanos <= LITTLE
    }

    /// A task has used so much time, until `now`.
    fn charge(&self, time: Duration, now: Instant) {
        let epoch = (now.as_nanos() >> EPOCH_BITS) as u32;
        let used = u32::try_from(time.as_nanos()).unwrap_or(u32::MAX);
        let used = used.min(QUANTUM_NANOS);
        if !self.has_used_little() {
            self.turns.spend(used);
        }
        let round = self.turns.round.load(Ordering::Relaxed);
        let charged = |packed| {
            let Owed { nanos, round } = Owed::unpack(packed).in_round(round);
            let nanos = nanos.saturating_add(used).min(MAX_OWED);
            Some(Owed { nanos, round }.pack())
        };
        let _ = self
            .owed
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, charged);
        let counted = |packed| {
            let Owed { nanos, round } = Owed::unpack(packed).in_epoch(epoch);
            let nanos = nanos.saturating_add(used);
            Some(Owed { nanos, round }.pack())
        };
        let _ = self
            .recent
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
    }

    /// Ready when the task may use time. `ticket` is the task's own, `None` unless it waits.
    fn poll_turn(self: &Arc<Self>, ticket: &mut Option<u32>, cx: &Context<'_>) -> Poll<()> {
        let may_go_first = ticket.is_none() && self.may_go_on();
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

    /// Does some work on the connection's account, which learns when it began.
    pub(super) fn work<T>(&self, work: impl FnOnce(Instant) -> T) -> T {
        let clock = &self.turns.clock;
        let begun = clock.now();
        let result = work(begun);
        let ended = clock.now();
        self.charge(ended.saturating_since(begun), ended);
        // What waits behind it continues the turn.
        if self.queued.load(Ordering::Relaxed) && self.may_go_on() {
            self.wake_one();
        }
        result
    }

    /// Whether the quantum is used, as of now, by what the connection owes and by work that began at
    /// `begun`.
    fn has_quantum_since(&self, begun: Instant) -> bool {
        let used = self.turns.clock.now().saturating_since(begun).as_nanos();
        u128::from(self.owed().nanos).saturating_add(used) < u128::from(QUANTUM_NANOS)
    }

    /// Begins tasks in the work that began at `begun`.
    pub(super) fn starter<F>(self: &Arc<Self>, begun: Instant) -> Starter<'_, F> {
        Starter {
            account: self,
            begun,
            place: None,
        }
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

/// Begins tasks of a connection in the work that began at `begun`.
///
/// On a runtime with one thread a task is polled at once, unless the connection has used its quantum:
/// most tasks need no more, and no other one could run meanwhile. What has to wait is given to the
/// runtime, which polls it when it is the connection's turn.
#[derive(Debug)]
pub(super) struct Starter<'a, F> {
    account: &'a Arc<Account>,
    begun: Instant,
    /// The memory of a task that has ended, for the next one.
    place: Option<Place<F>>,
}

/// A task in memory that another one can use after it.
type Place<F> = Pin<Box<Option<F>>>;

impl<F> Starter<'_, F>
where
    F: Future<Output = ()> + Send + 'static,
{
    pub(super) fn start(&mut self, task: F) {
        let mut place = self.place.take().unwrap_or_else(|| Box::pin(None));
        place.set(Some(task));
        if self.account.has_one_thread && self.account.has_quantum_since(self.begun) {
            // The runtime polls it again, with a waker of its own.
            let cx = &mut Context::from_waker(Waker::noop());
            match catch(|| poll_place(&mut place, cx)) {
                Ok(Poll::Pending) => {}
                Ok(Poll::Ready(())) => {
                    place.set(None);
                    self.place = Some(place);
                    return;
                }
                Err(panic) => {
                    tracing::error!(%panic, "answering a request failed");
                    // The runtime would catch this one too.
                    let _ = catch(|| drop(place));
                    return;
                }
            }
        }
        let task = poll_fn(move |cx| poll_place(&mut place, cx));
        tokio::spawn(InTurn::new(self.account.clone(), task));
    }
}

fn poll_place<F: Future<Output = ()>>(place: &mut Place<F>, cx: &mut Context<'_>) -> Poll<()> {
    let task = place.as_mut().as_pin_mut();
    task.map_or(Poll::Ready(()), |task| task.poll(cx))
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
        this.account.work(|_| this.task.poll(cx))
    }
}

#[cfg(test)]
mod tests;
