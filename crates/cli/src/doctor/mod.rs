//! `clearway doctor`: where this host loses UDP datagrams, and whose fault it is.
//!
//! The diagnosis is the crate `clearway-doctor`; here are its options, its exit codes and where its
//! output goes.

mod args;
mod command;
mod hops;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
