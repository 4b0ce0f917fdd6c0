//! `clearway serve` as clients see it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod certificate;
pub(crate) mod client;
#[cfg(target_os = "linux")]
mod dont_fragment;
mod early;
mod ending;
#[cfg(target_os = "linux")]
pub(crate) mod failing_calls;
mod greeting;
mod hidden;
#[cfg(target_os = "linux")]
mod icmp_flood;
mod limits;
mod listing;
mod log;
mod observe;
mod range;
mod sandbox;
mod secret;
mod sender_report;
mod shards;
mod site_path;
mod stalled_log;
mod timeouts;
mod tokens;
mod upload;
mod validators;
#[cfg(target_os = "linux")]
mod writers;
