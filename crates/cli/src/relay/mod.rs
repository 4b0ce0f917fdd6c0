//! `clearway relay`: a userspace network between two UDP programs.
//!
//! Datagrams pass through the same link models as in the lab, in real time, so
//! that any QUIC stack can be put through them on a host whose kernel has no
//! netem. The parts: [`Args`] become a [`Config`]; [`Relay`] is the handle of a
//! thread that runs a [`worker`]; the worker owns the sockets and one
//! [`flow`] per client address; [`stats`] counts and [`report`] prints.

mod args;
mod command;
mod config;
mod flow;
mod handle;
mod lateness;
mod report;
mod stats;
mod table;
mod worker;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
pub(crate) use config::Config;
pub(crate) use handle::Relay;
pub(crate) use stats::RelayStats;

#[cfg(test)]
mod tests;
