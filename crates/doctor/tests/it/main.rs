//! The doctor on this host, in network namespaces of its own; and on captures of other kernels.
#![allow(
    unreachable_pub,
    clippy::unwrap_used,
    missing_docs,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::cast_possible_truncation,
    reason = "a test that cannot go on has failed; counts are small"
)]

#[cfg(target_os = "linux")]
mod buffer;
mod captures;
#[cfg(target_os = "linux")]
mod host;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod programs;
#[cfg(target_os = "linux")]
mod provoked;
