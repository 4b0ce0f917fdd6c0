//! The threads that forward, their cores and their clocks.

use std::fs;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread, in nanoseconds.
pub(crate) fn thread_time() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Keeps a thread on a core; `None` = this one.
pub(crate) fn pin(thread: Option<Pid>, core: usize) {
    let mut cores = CpuSet::new();
    cores.set(core);
    sched_setaffinity(thread, &cores).unwrap();
}

/// Returns what `start` returns, and so many threads that it started and that forward, in the order in
/// which they began.
pub(crate) fn forwarding<T>(count: usize, start: impl FnOnce() -> T) -> (T, Vec<Pid>) {
    // Threads that have ended can stay in the list for a moment.
    let former = listed();
    let started = start();
    loop {
        let mut threads = listed();
        threads.retain(|thread| !former.contains(thread));
        if threads.len() == count {
            let threads = threads.into_iter().filter_map(Pid::from_raw).collect();
            return (started, threads);
        }
        // A thread gives itself its name, so that it has none at first.
        std::thread::yield_now();
    }
}

/// The threads of this process with the names of those that forward.
fn listed() -> Vec<i32> {
    let mut threads: Vec<i32> = fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|task| task.unwrap().path())
        .filter(|task| {
            let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
            name.starts_with("balance-") || name.starts_with("receive-")
        })
        .filter_map(|task| task.file_name()?.to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    threads
}

/// What threads have used.
#[derive(Clone, Copy, Default)]
pub(crate) struct Used {
    /// Processor time in nanoseconds.
    pub(crate) nanos: u64,
    /// How often they slept.
    pub(crate) wakes: u64,
    /// How often another thread got their core while they had work to do.
    pub(crate) preemptions: u64,
}

impl Used {
    /// Reads a thread's `schedstat` and `status` (proc(5)).
    pub(crate) fn by(thread: Pid) -> Self {
        let read = |name| {
            let path = format!("/proc/self/task/{}/{name}", thread.as_raw_nonzero());
            fs::read_to_string(path).unwrap_or_default()
        };
        let number = |text: Option<&str>| text.and_then(|text| text.trim().parse().ok());
        let (time, status) = (read("schedstat"), read("status"));
        let switches = |name: &str| number(status.lines().find_map(|line| line.strip_prefix(name)));
        Self {
            nanos: number(time.split(' ').next()).unwrap_or(0),
            wakes: switches("voluntary_ctxt_switches:").unwrap_or(0),
            preemptions: switches("nonvoluntary_ctxt_switches:").unwrap_or(0),
        }
    }

    /// The sum of several threads.
    pub(crate) fn by_all(threads: &[Pid]) -> Self {
        let used = threads.iter().copied().map(Self::by);
        used.fold(Self::default(), |sum, used| Self {
            nanos: sum.nanos + used.nanos,
            wakes: sum.wakes + used.wakes,
            preemptions: sum.preemptions + used.preemptions,
        })
    }
}
