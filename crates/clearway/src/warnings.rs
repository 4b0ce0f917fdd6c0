//! Warnings that clients can cause, at a bounded rate.
//!
//! A stranger decides how many connections end with an error. Were each a line, they
//! would fill the log of whoever runs the server.

use std::sync::{LazyLock, Mutex, PoisonError};
use std::time;

use clearway_quic::Instant;

use crate::notice::Notice;

/// Warnings about clients in one second, of the whole process; the others are counted,
/// and logged as `DEBUG`. Ten: enough to see every kind of trouble there is, and a few
/// hundred megabytes of log a day at most.
const PER_SECOND: u32 = 10;

/// Of the process, as the log is.
static CLIENTS: Mutex<Notice> = Mutex::new(Notice::new(PER_SECOND));
static START: LazyLock<time::Instant> = LazyLock::new(time::Instant::now);

/// Whether a client's trouble may be told as a warning now, and then how many others
/// were not since the last one that was.
pub(crate) fn about_client() -> Option<u64> {
    let now = Instant::ZERO + START.elapsed();
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    clients.happened(now)
}
