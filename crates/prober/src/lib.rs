//! A conformance prober for QUIC and HTTP/3 servers: it sends what a correct client never sends,
//! and compares the answers with what the RFCs ask for.
//!
//! ```text
//! script/     cases as text: what is sent, what is expected
//! catalogue   the built-in cases, in the same text format (scripts/*.probe)
//! import/     recorded sequences of h3i -> cases
//! wire/       packets, frames, transport parameters, ClientHello, HTTP/3: bytes, valid or not
//! raw/        one end of a connection that checks nothing and sends what it is told
//! run/        a case on a socket: steps, waiting, judgement
//! probe       many cases against one server, several at a time
//! target      which server, and whom to trust
//! report/     tables, JSON, a page
//! testing/    servers with defects, to test the prober with (feature `testing`)
//! ```
//!
//! A case runs through `script` (a [`Case`] is data) → `run::steps` (which writes with `wire` and
//! sends through `raw`) → `raw::observed` (everything that came) → `run::judge` (which compares
//! it with the case's expectations) → [`CaseResult`].
//!
//! ```no_run
//! use clearway_prober::{Probe, Trust, builtin_cases};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let probe = Probe::new("https://localhost:4433/", Trust::Any)?;
//! let report = probe.run(&builtin_cases(), |_| {}).await?;
//! for result in report.deviations() {
//!     eprintln!("{} ({}): {}", result.name, result.source, result.came);
//! }
//! assert_eq!(report.deviations().count(), 0);
//! # Ok(())
//! # }
//! ```

mod catalogue;
pub mod import;
mod probe;
mod raw;
mod report;
mod run;
mod script;
mod target;
#[cfg(feature = "testing")]
pub mod testing;
mod wire;

pub use catalogue::builtin_cases;
pub use probe::{Contact, Probe, ProbeError, Report};
pub use report::{html, table};
pub use run::{CaseResult, Verdict};
pub use script::{Case, Layer, Requirement, ScriptError, parse};
pub use target::{TargetError, Trust};
pub use wire::codes::{ErrorCode, ErrorSpace};
