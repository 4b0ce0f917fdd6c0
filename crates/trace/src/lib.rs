//! Traces: one event schema, its writers, readers and detectors.
//!
//! ```text
//!  live connection ── Recorder ──┐                 ┌── qlog::Writer   a file
//!                                ├── Event ──> Sink ├── Series         over time
//!  any stack's file ─ qlog::Reader                 ├── Breakdown      why it did not send
//!                                                  ├── Detectors      what is wrong
//!                                                  └── Vec, Tee, Shared
//!                       diagnosis: what is wrong, why, what to try
//!                       report::html: one page that shows all of it
//!                       fleet: all connections of a running endpoint, and metrics
//! ```
//!
//! A connection is recorded by `connection.set_observer(Box::new(Recorder::new(sink)))`;
//! a file is read by iterating over a [`qlog::Reader`]. Either way what comes out
//! is [`event::Event`]s, and everything else works on those.
//!
//! # Controller figures
//!
//! A controller shows further figures by name
//! ([`Controller::internals`](clearway_recovery::controller::Controller::internals));
//! they travel as [`event::Metrics::extra`]. Detectors know these:
//!
//! | name | unit | detector |
//! |---|---|---|
//! | `boundary`, `next_index` | send index | `boundary_in_future` |
//! | `recovery_start` | ns of the trace, where a controller keeps a time | `boundary_in_future` |
//! | `epoch_shift` | ns by which the growth curve was moved so far | `false_idle` |
//! | `max_bw` | bytes per second | `bw_collapse`, `phase_stuck` |
//! | `round_count` | rounds | `phase_stuck` |
//! | `probe_wait` | ns | `phase_stuck` |
//!
//! # Why not the `qlog` crate
//!
//! Cloudflare's `qlog` was considered. It writes `qlog_version` 0.3 headers and the
//! names of older drafts, its `serialization_format` differs from the draft's,
//! it knows neither `*_data_blocked_updated` nor `timer_updated` nor extension
//! fields without a map per event, allocates a tree per event where ours writes
//! into one buffer, and reads only its own output; a reader for seven stacks
//! needs its own decoding anyway.
//!
//! # Untrusted files
//!
//! Reading a file never panics, whatever it contains: operations that could panic are
//! denied by lint outside of tests, and each exception gives the reason why it cannot.
//! Sums and durations saturate.

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unreachable,
        clippy::unwrap_used
    )
)]

pub mod breakdown;
pub mod capture;
pub mod detect;
pub mod diagnosis;
pub mod event;
pub mod fleet;
pub mod qlog;
pub mod recorder;
pub mod report;
pub mod series;
pub mod sink;

pub use breakdown::{Breakdown, WaitReason};
pub use detect::{Detector, Detectors, Finding, Profile, Severity};
pub use diagnosis::{Diagnosis, Examination, Examiner};
pub use event::{Event, EventData};
pub use fleet::Fleet;
pub use recorder::Recorder;
pub use series::{Series, Track};
pub use sink::{Shared, Sink, Tee};
