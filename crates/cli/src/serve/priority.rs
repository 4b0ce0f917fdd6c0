//! Which of the server's threads go first on a processor that they share.
//!
//! The event loops do, whose work is short and keeps every connection alive. Then come
//! the threads of handlers, then those that wait for disks. There are more of these
//! than there may be processors: as equals, an event loop would get one time slice of
//! many, and what arrives for it would wait for all the others. With processors to spare
//! none of this changes anything.

use std::cell::Cell;

use rustix::process::{getpriority_process, setpriority_process};

/// How much lower than that of the event loops the priority of handlers is, as in nice(2):
/// a third of their processor time when there is not enough.
const HANDLERS: i32 = 5;

/// How much lower than that of handlers the priority of threads for disks is: likewise.
const DISKS: i32 = 5;

thread_local! {
    /// This thread is known to work for disks.
    static FOR_DISKS: Cell<bool> = const { Cell::new(false) };
}

/// This thread runs handlers, or will work for disks.
pub(super) fn of_handler_thread() {
    lower_by(HANDLERS);
}

/// This thread, whose priority was that of a handler's, works for disks from now on.
pub(super) fn of_disk_thread() {
    if !FOR_DISKS.replace(true) {
        lower_by(DISKS);
    }
}

fn lower_by(steps: i32) {
    // On Linux, of this thread only. Where a system refuses, all are equal as before.
    let _ = getpriority_process(None)
        .and_then(|own| setpriority_process(None, own.saturating_add(steps)));
}
