//! Cores on which tasks take time, and that work at the same time.
//!
//! Each core runs its tasks one after another, in the order in which they were woken. A task that
//! [`charge`]s time, as every call of a [`SimSocket`](crate::SimSocket) does, moves its own core's
//! clock on, and what it sends leaves at that time. The core that is furthest behind runs next, so
//! a datagram reaches a task at most one poll of another too late. An idle core takes
//! [`Costs::wakeup`] to begin.
//!
//! Everything runs on the thread that calls [`Machine::run`], so that runs are equal.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use clearway::runtime::{Runtime, Task, Timer};
use clearway_links::Time;

use crate::costs::Costs;
use crate::network::Network;

thread_local! {
    /// The time on the core that runs, or of the event that happens.
    static NOW: Cell<Time> = const { Cell::new(Time::ZERO) };
}

/// Takes time of the core that this is called on.
pub fn charge(time: Duration) {
    NOW.set(later(NOW.get(), time));
}

/// Returns the time on the core that this is called on.
#[must_use]
pub fn now() -> Time {
    NOW.get()
}

fn later(at: Time, by: Duration) -> Time {
    Time(at.as_nanos().saturating_add(by.as_nanos() as u64))
}

/// Cores, their tasks, and the network between them.
pub struct Machine {
    network: Network,
    costs: Costs,
    cores: Vec<Core>,
    tasks: Vec<TaskSlot>,
    shared: Arc<Shared>,
}

/// What a core has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreStats {
    /// Time in which it ran tasks, or woke up to.
    pub busy: Duration,
    /// How often it ran a task.
    pub polls: u64,
    /// How often it had been idle before that.
    pub wakeups: u64,
}

#[derive(Debug, Default)]
struct Core {
    /// Tasks that can run, each with the time it was woken.
    ready: VecDeque<(usize, Time)>,
    free_at: Time,
    stats: CoreStats,
}

struct TaskSlot {
    core: usize,
    /// `None` once it has ended.
    future: Option<Task>,
    wake: Arc<TaskWake>,
}

/// What tasks change while they run.
#[derive(Default)]
struct Shared {
    state: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    woken: Vec<(usize, Time)>,
    spawned: Vec<(usize, Task)>,
    timers: BTreeMap<(Time, u64), Waker>,
    timers_made: u64,
}

impl Shared {
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct TaskWake {
    task: usize,
    /// It is among the tasks that can run.
    queued: AtomicBool,
    shared: Arc<Shared>,
}

impl Wake for TaskWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.shared.changes().woken.push((self.task, now()));
        }
    }
}

impl Machine {
    /// Creates a machine with so many cores.
    #[must_use]
    pub fn new(network: Network, cores: usize, costs: Costs) -> Self {
        NOW.set(Time::ZERO);
        Self {
            network,
            costs,
            cores: (0..cores).map(|_| Core::default()).collect(),
            tasks: Vec::new(),
            shared: Arc::default(),
        }
    }

    /// Returns the runtime of endpoints on a core: their event loops run there.
    ///
    /// # Panics
    /// If there is no such core.
    #[must_use]
    pub fn runtime(&self, core: usize, seed: [u8; 32]) -> CoreRuntime {
        assert!(core < self.cores.len(), "there is no core {core}");
        CoreRuntime {
            core,
            seed,
            shared: self.shared.clone(),
        }
    }

    /// Runs until `done` returns true, which is asked after each event, until nothing is left to
    /// do, or until a time. Returns the time.
    pub fn run(&mut self, until: Time, mut done: impl FnMut() -> bool) -> Time {
        loop {
            self.take_changes();
            if done() {
                return now();
            }
            let task = (0..self.cores.len())
                .filter_map(|core| Some((self.cores[core].next_start()?, core)))
                .min();
            let timer = self.shared.changes().timers.keys().next().map(|key| key.0);
            let event = [timer, self.network.next_event()]
                .into_iter()
                .flatten()
                .min();
            let next = [event, task.map(|task| task.0)].into_iter().flatten().min();
            match (next, task, event) {
                (Some(next), _, _) if next > until => return until,
                (_, Some((at, core)), event) if event.is_none_or(|event| at < event) => {
                    self.run_task(core, at);
                }
                (_, _, Some(at)) => self.happen(at),
                (_, _, None) => return now(),
            }
        }
    }

    /// Returns what each core has done.
    #[must_use]
    pub fn stats(&self) -> Vec<CoreStats> {
        self.cores.iter().map(|core| core.stats).collect()
    }

    fn take_changes(&mut self) {
        let mut changes = self.shared.changes();
        let spawned = std::mem::take(&mut changes.spawned);
        let woken = std::mem::take(&mut changes.woken);
        drop(changes);
        for (task, at) in woken {
            if let Some(slot) = self.tasks.get(task) {
                self.cores[slot.core].ready.push_back((task, at));
            }
        }
        for (core, future) in spawned {
            let task = self.tasks.len();
            self.tasks.push(TaskSlot {
                core,
                future: Some(future),
                wake: Arc::new(TaskWake {
                    task,
                    queued: AtomicBool::new(true),
                    shared: self.shared.clone(),
                }),
            });
            self.cores[core].ready.push_back((task, now()));
        }
    }

    /// Timers that expire and datagrams that arrive.
    fn happen(&mut self, at: Time) {
        NOW.set(at);
        let mut changes = self.shared.changes();
        let mut expired = Vec::new();
        while let Some(entry) = changes.timers.first_entry()
            && entry.key().0 <= at
        {
            expired.push(entry.remove());
        }
        drop(changes);
        expired.into_iter().for_each(Waker::wake);
        self.network.advance(at);
    }

    fn run_task(&mut self, core: usize, at: Time) {
        let core = &mut self.cores[core];
        let Some((task, _)) = core.ready.pop_front() else {
            return;
        };
        NOW.set(at);
        if at > core.free_at {
            charge(self.costs.wakeup);
            core.stats.wakeups += 1;
        }
        charge(self.costs.poll);
        core.stats.polls += 1;
        let slot = &mut self.tasks[task];
        slot.wake.queued.store(false, Ordering::Relaxed);
        if let Some(future) = &mut slot.future {
            let waker = Waker::from(slot.wake.clone());
            let mut cx = Context::from_waker(&waker);
            if future.as_mut().poll(&mut cx).is_ready() {
                slot.future = None;
            }
        }
        core.stats.busy += now().saturating_since(at);
        core.free_at = now();
    }
}

impl Drop for Machine {
    /// Tasks own handles of this machine's parts, which own the tasks.
    fn drop(&mut self) {
        for slot in &mut self.tasks {
            slot.future = None;
        }
        let mut changes = self.shared.changes();
        let left = (
            std::mem::take(&mut changes.spawned),
            std::mem::take(&mut changes.timers),
        );
        drop(changes);
        drop(left);
    }
}

impl Core {
    /// Returns when it can run its next task.
    fn next_start(&self) -> Option<Time> {
        let (_, woken_at) = self.ready.front()?;
        Some((*woken_at).max(self.free_at))
    }
}

/// A core of a [`Machine`], as the runtime of an endpoint.
#[derive(Clone)]
pub struct CoreRuntime {
    core: usize,
    seed: [u8; 32],
    shared: Arc<Shared>,
}

impl std::fmt::Debug for CoreRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoreRuntime")
            .field("core", &self.core)
            .finish_non_exhaustive()
    }
}

impl CoreRuntime {
    /// Runs a task on this core.
    pub fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.spawn(Box::pin(task));
    }

    /// Waits until `at`.
    pub async fn sleep_until(&self, at: Time) {
        let mut timer = self.timer();
        timer.set(Duration::from_nanos(at.as_nanos()));
        std::future::poll_fn(|cx| timer.poll_expired(cx)).await;
    }
}

impl Runtime for CoreRuntime {
    fn now(&self) -> Duration {
        Duration::from_nanos(now().as_nanos())
    }

    fn timer(&self) -> Box<dyn Timer> {
        Box::new(CoreTimer {
            shared: self.shared.clone(),
            at: None,
            key: None,
        })
    }

    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.shared.changes().spawned.push((self.core, task));
    }

    fn random_seed(&self) -> io::Result<[u8; 32]> {
        Ok(self.seed)
    }
}

struct CoreTimer {
    shared: Arc<Shared>,
    at: Option<Time>,
    /// Where it is among the machine's timers.
    key: Option<(Time, u64)>,
}

impl std::fmt::Debug for CoreTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CoreTimer").field("at", &self.at).finish()
    }
}

impl CoreTimer {
    fn forget(&mut self) {
        if let Some(key) = self.key.take() {
            self.shared.changes().timers.remove(&key);
        }
    }
}

impl Timer for CoreTimer {
    fn set(&mut self, at: Duration) {
        self.at = Some(Time(at.as_nanos() as u64));
        self.forget();
    }

    fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.forget();
        let Some(at) = self.at else {
            return Poll::Pending;
        };
        if at <= now() {
            self.at = None;
            return Poll::Ready(());
        }
        let mut changes = self.shared.changes();
        changes.timers_made += 1;
        let key = (at, changes.timers_made);
        changes.timers.insert(key, cx.waker().clone());
        drop(changes);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for CoreTimer {
    fn drop(&mut self) {
        self.forget();
    }
}
