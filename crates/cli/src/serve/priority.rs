//! Priorities of the server's threads on a shared processor.
//!
//! Event loops come first: their work is short, keeps every connection alive and answers
//! requests. Then come the runtime's threads, which hand new connections over, then those of
//! disk operations. There may be more of these than
//! processors: with equal priority, an event loop would get one time slice of many, and
//! whatever arrives for it would wait for all the others. With idle processors the
//! priorities have no effect.

use std::cell::Cell;

use rustix::process::{getpriority_process, setpriority_process};

/// How much lower the priority of the runtime's threads is than that of event loops, as in
/// nice(2): they get a third of the processor time when there is not enough.
const RUNTIME: i32 = 5;

/// How much lower the priority of disk operations is than that of the runtime.
const DISKS: i32 = 5;

thread_local! {
    /// Whether this thread already has the priority of disk operations.
    static FOR_DISKS: Cell<bool> = const { Cell::new(false) };
}

/// Sets the priority of a thread of the runtime, which may run disk operations later.
pub(super) fn of_runtime_thread() {
    lower_by(RUNTIME);
}

/// Lowers the priority of a thread of the runtime to that of disk operations.
pub(super) fn of_disk_thread() {
    if !FOR_DISKS.replace(true) {
        lower_by(DISKS);
    }
}

fn lower_by(steps: i32) {
    // On Linux this affects the current thread only. If the system refuses, the priority stays.
    let _ = getpriority_process(None)
        .and_then(|own| setpriority_process(None, own.saturating_add(steps)));
}
