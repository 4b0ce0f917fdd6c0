//! Runs a plan on several cores.

use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::one::{RunObservers, run_case};
use super::plan::{Plan, Task};
use super::row::Row;
use crate::measure::Outcome;

/// The speed of the runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Speed {
    /// Number of runs.
    pub runs: u64,
    /// Number of events.
    pub events: u64,
    /// Virtual time.
    pub simulated: Duration,
    /// Real time.
    pub took: Duration,
}

impl Speed {
    /// Events per second of real time.
    #[must_use]
    pub fn events_per_second(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Virtual seconds per second of real time.
    #[must_use]
    pub fn times_real_time(&self) -> f64 {
        self.simulated.as_secs_f64() / self.took.as_secs_f64().max(1e-9)
    }
}

/// Settings for running a plan.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Number of threads.
    pub threads: usize,
    /// Called with the number of finished runs, in no particular order.
    pub progress: &'a (dyn Fn(usize) + Sync),
    /// Returns the observers of each run; called on the thread that runs it.
    pub extras: &'a (dyn Fn(&Task) -> RunObservers + Sync),
}

impl Settings<'_> {
    /// Settings without observers.
    #[must_use]
    pub fn quiet(threads: usize) -> Self {
        Self {
            threads,
            progress: &|_| {},
            extras: &|_| RunObservers::default(),
        }
    }
}

/// Runs everything and passes each result to `done` in the order of the plan, whatever the number
/// of threads.
pub fn run_all(plan: &Plan, settings: &Settings<'_>, mut done: impl FnMut(Task, Row)) -> Speed {
    run_while(plan, settings, |task, row| {
        done(task, row);
        true
    })
}

/// Like [`run_all`], until `go_on` returns false.
pub fn run_while(
    plan: &Plan,
    settings: &Settings<'_>,
    mut go_on: impl FnMut(Task, Row) -> bool,
) -> Speed {
    let begun = Instant::now();
    let mut speed = Speed::default();
    let queue = Queue::new(plan.tasks.len());
    std::thread::scope(|scope| {
        for _ in 0..settings.threads.clamp(1, plan.tasks.len().max(1)) {
            scope.spawn(|| work(plan, &queue, settings));
        }
        for (index, task) in plan.tasks.iter().enumerate() {
            let row = queue.wait_for(index);
            speed.runs += 1;
            speed.events += row.events;
            speed.simulated += Duration::from_secs_f64(row.ended);
            if !go_on(*task, row) {
                queue.next.store(plan.tasks.len(), Ordering::Relaxed);
                break;
            }
        }
    });
    speed.took = begun.elapsed();
    speed
}

/// The tasks left, and their results.
struct Queue {
    next: AtomicUsize,
    finished: AtomicUsize,
    results: Mutex<Vec<Option<Row>>>,
    filled: std::sync::Condvar,
}

impl Queue {
    fn new(len: usize) -> Self {
        Self {
            next: AtomicUsize::new(0),
            finished: AtomicUsize::new(0),
            results: Mutex::new((0..len).map(|_| None).collect()),
            filled: std::sync::Condvar::new(),
        }
    }

    fn put(&self, index: usize, row: Row) {
        let mut results = lock(&self.results);
        results[index] = Some(row);
        self.filled.notify_all();
    }

    fn wait_for(&self, index: usize) -> Row {
        let mut results = lock(&self.results);
        loop {
            if let Some(row) = results[index].take() {
                return row;
            }
            results = self
                .filled
                .wait(results)
                .unwrap_or_else(std::sync::PoisonError::into_inner);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn work(plan: &Plan, queue: &Queue, settings: &Settings<'_>) {
    loop {
        let index = queue.next.fetch_add(1, Ordering::Relaxed);
        let Some(task) = plan.tasks.get(index) else {
            return;
        };
        queue.put(index, run_task(plan, task, settings));
        (settings.progress)(queue.finished.fetch_add(1, Ordering::Relaxed) + 1);
    }
}

fn run_task(plan: &Plan, task: &Task, settings: &Settings<'_>) -> Row {
    let case = &plan.cases[task.case];
    let outcome = attempt(|| {
        let mut extras = (settings.extras)(task);
        let after = extras.after.take();
        let outcome = run_case(case, task.seed, extras);
        if let Some(after) = after {
            after(&outcome);
        }
        outcome
    });
    let outcome = outcome
        .unwrap_or_else(|message| Outcome::crashed(case, task.seed, format!("panic: {message}")));
    Row::new(case, &outcome)
}

/// A panic in a stack becomes a result: it must not end the other runs.
fn attempt<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).map_err(|payload| {
        payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| {
                payload
                    .downcast_ref::<&str>()
                    .map(|text| (*text).to_owned())
            })
            .unwrap_or_else(|| "a panic".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Size, find};

    #[test]
    fn cancelled_plan_starts_no_more_runs() {
        let mut plan = Plan::default();
        let scenario = find("shallow_25").unwrap();
        plan.add(scenario, Size::Ci, &["cubic".to_owned()], Some((1, 100)))
            .unwrap();
        for case in &mut plan.cases {
            case.duration = Duration::from_millis(100);
        }
        let (begun, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let extras = |_: &Task| {
            // The third cannot overtake the two that are taken first.
            if begun.fetch_add(1, Ordering::Relaxed) >= 2 {
                while seen.load(Ordering::Relaxed) < 2 {
                    std::thread::yield_now();
                }
            }
            RunObservers::default()
        };
        let settings = Settings {
            extras: &extras,
            ..Settings::quiet(1)
        };
        let speed = run_while(&plan, &settings, |_, _| {
            seen.fetch_add(1, Ordering::Relaxed) + 1 < 2
        });
        assert_eq!((seen.into_inner(), speed.runs), (2, 2));
        let begun = begun.into_inner();
        assert!(begun < 100, "{begun} of 100 runs for 2 results");
    }
}
