//! `clearway balance`: a load balancer for QUIC in front of several servers.
//!
//! [`command`] runs a balancer of `clearway-balancer` as [`args`] or the configuration [`file`] say,
//! [`control`] is how `status` and `drain` reach it, [`take_over`] how another process replaces it, [`keygen`] writes a `[quic_lb]` section,
//! [`report`] shows what was forwarded and dropped, and [`metrics`] serves the same to Prometheus.

mod args;
mod command;
mod control;
mod discovery;
mod file;
mod keygen;
mod metrics;
mod report;
mod request;
mod take_over;
mod watch;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
pub(crate) use file::{Watched, invalid as invalid_file, read as read_file};
