//! Exhaustive exploration of small worlds: every sequence of frames, incomplete frames, ends and
//! calls of the application, on real connections over a transport in memory.
//!
//! The expected result of each is computed by [`model`], which implements RFC 9114 §4.1, §7.1, §7.2
//! and §8.1 and RFC 9204 §2.1, and shares nothing with the code under test.

mod control;
mod frames;
mod messages;
mod model;

use clearway_http3::Connection;

/// Returns the state of a connection that can influence its behavior: its private fields as `Debug`
/// prints them, without counters, timers and byte totals.
fn state_of(http: &Connection) -> String {
    let mut state = format!("{http:?}");
    // A renamed field must not be missed: the state would grow with every event.
    for key in [
        "counters: Counters {",
        "rate_limits: RateLimits {",
        "timers: Timers {",
    ] {
        assert!(state.contains(key), "{key} is not part of the state");
    }
    for (key, end) in [
        ("counters: Counters {", '}'),
        ("rate_limits: RateLimits {", '}'),
        ("timers: Timers {", '}'),
        ("last_sample: LastSample {", '}'),
        ("progress: Progress {", '}'),
        ("bytes_read: ", ' '),
    ] {
        let mut from = 0;
        while let Some(found) = state[from..].find(key) {
            let start = from + found + key.len();
            let len = state[start..].find(end).unwrap_or(0);
            state.replace_range(start..start + len, "");
            from = start;
        }
    }
    state
}
