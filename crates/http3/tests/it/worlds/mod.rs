//! Small worlds, explored exhaustively: every sequence of frames, cuts, ends and calls
//! of the application, on real connections over a transport in memory.
//!
//! What the peer is due after each is said by [`grammar`], which knows RFC 9114 §4.1,
//! §7.1, §7.2 and §8.1 and RFC 9204 §2.1 and nothing of the code under test.

mod control;
mod grammar;
mod messages;
mod vocabulary;

use clearway_http3::Connection;

/// Everything of a connection from which something may follow: its private state, as
/// `Debug` prints it, without what only counts.
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
