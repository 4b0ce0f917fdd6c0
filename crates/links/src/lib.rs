//! Link models and the event heap, in virtual and in real time.
//!
//! A [`Link`] is one direction of a network path. A packet meets, in order:
//!
//! | stage | setting | file | source |
//! |---|---|---|---|
//! | tap | [`Link::set_tap`] | `tap.rs` | |
//! | policer | `police=10M:100KB` | `policer.rs` | RFC 2475 §2.3.3.4 (dropping at a rate) |
//! | queue, drop-tail | `queue=250`, `queue=64KB` | `queue/` | |
//! | … CoDel | `aqm=codel` | `aqm/codel.rs` | RFC 8289 |
//! | … FQ-CoDel | `aqm=fq_codel` | `aqm/fq_codel.rs` | RFC 8290 |
//! | … PIE | `aqm=pie` | `aqm/pie.rs` | RFC 8033 |
//! | … DualQ | `aqm=dualq` | `aqm/dualq.rs` | RFC 9332 Appendix A |
//! | … CE threshold | `mark=242us`, `mark=20p` | `queue/limit.rs` | RFC 3168 §5 for the mark |
//! | serialiser, constant | `rate=100M` | `serialiser.rs` | |
//! | … delivery opportunities | `trace=FILE` | `trace/mod.rs` | mahimahi's link traces |
//! | … made up from a seed | `trace=random:…` | `trace/random.rs` | |
//! | propagation delay | `delay=5ms` | `transit.rs` | |
//! | jitter | `jitter=2ms` | `config/jitter.rs` | |
//! | slots | `slot=25ms` | `slots.rs` | |
//! | reordering | `reorder=5%:20ms` | `config/jitter.rs` | RFC 4737 for the count |
//! | freeze | `freeze=1s-1.26s` | `schedule.rs` | |
//! | release ticks | `tick=1ms` | `time.rs` | |
//! | blackhole | `blackhole=2s-4s` | `impair/mod.rs` | |
//! | drop list | `drop=2-7` | `impair/droplist.rs` | |
//! | random loss | `loss=2%`, `burst=3` | `impair/mod.rs` | |
//! | loss in bursts | `gilbert=1%:16.7%`, `10s:50ms` | `impair/gilbert.rs` | Gilbert 1960, Elliott 1963 |
//! | ACK thinning | `thin=10` | `impair/thin.rs` | RFC 3449 §5 |
//! | corruption, duplication | `corrupt=1%`, `duplicate=1%` | `impair/mod.rs` | |
//! | tap | [`Link::set_tap`] | `tap.rs` | |
//!
//! Rates, delays, queues and losses change on a schedule
//! (`rate=100M,10M@10s`, `loss=30%@0s-2s`), anything at all through
//! [`Link::reconfigure`]. A [`Nat`] rebinds addresses beside the links, since
//! it has to know both directions. What was counted is in [`LinkStats`].
//!
//! A link reads no clock: time is passed in as integer nanoseconds ([`Time`]), so
//! the same model runs under a virtual clock in tests and the lab, and under
//! the real one in `clearway relay`. Decisions are integers and all randomness
//! comes from a seed, so two runs with the same inputs agree everywhere.
//!
//! ```
//! use clearway_links::{Link, LinkConfig, Packet, Time};
//!
//! let config: LinkConfig = "rate=10M delay=15ms queue=25 loss=2%".parse()?;
//! let mut link = Link::new(config, 7);
//! let to = ([127, 0, 0, 1], 4433).into();
//! let from = ([127, 0, 0, 1], 50_000).into();
//! link.send(Time::ZERO, Packet::new(from, to, vec![0; 1200]));
//! while let Some(now) = link.next_event() {
//!     while let Some(packet) = link.poll(now) {
//!         assert_eq!(packet.data.len(), 1200);
//!     }
//! }
//! # Ok::<(), clearway_links::SpecError>(())
//! ```

mod aqm;
mod config;
mod dice;
mod heap;
mod histogram;
mod impair;
mod ledger;
mod link;
mod nat;
mod packet;
mod path;
mod policer;
mod profile;
mod queue;
mod schedule;
mod serialiser;
mod slots;
mod spec;
mod stats;
mod tap;
mod time;
mod trace;
mod transit;

pub use aqm::{Aqm, CodelConfig, DualQConfig, FqCodelConfig, PieConfig};
pub use config::{Jitter, LinkConfig, Overhead, Reorder};
pub use dice::Dice;
pub use heap::EventHeap;
pub use histogram::Histogram;
pub use impair::{DropList, Gilbert, GilbertChange, Thin};
pub use link::{Link, Verdict};
pub use nat::Nat;
pub use packet::{Ecn, Packet};
pub use path::{Direction, Path, mix};
pub use policer::Policer;
pub use profile::{PROFILES, Profile};
pub use queue::{MarkAt, QueueLimit};
pub use schedule::{Clock, Freezes, LossWindows, Schedule, Window, Windows};
pub use slots::Slots;
pub use spec::{ByteSize, Probability, Rate, Span, SpecError};
pub use stats::LinkStats;
pub use tap::{DropCause, PacketEvent, Tap, TapRecord};
pub use time::Time;
pub use trace::{OPPORTUNITY_BYTES, RandomTrace, Trace};
