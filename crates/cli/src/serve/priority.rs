//! Priorities of the server's threads on a shared processor.
//!
//! Event loops come first: their work is short, keeps every connection alive and answers
//! requests. Then come the runtime's threads, which hand new connections over and run disk
//! operations. There may be more of these than
//! processors: with equal priority, an event loop would get one time slice of many, and
//! whatever arrives for it would wait for all the others. With idle processors the
//! priorities have no effect.
//!
//! Disk operations do not come after the rest of the runtime: beside an event loop that is always busy
//! they would get a tenth of the processor, and an upload that wants a millisecond of it would wait for ten.

use rustix::process::{getpriority_process, setpriority_process};

/// How much lower the priority of the runtime's threads is than that of event loops, as in
/// nice(2): one of them gets a quarter of the processor time when there is not enough.
const STEPS: i32 = 5;

/// Sets the priority of a thread of the runtime.
pub(super) fn of_runtime_thread() {
    // On Linux this affects the current thread only. If the system refuses, the priority stays.
    let _ = getpriority_process(None)
        .and_then(|own| setpriority_process(None, own.saturating_add(STEPS)));
}
