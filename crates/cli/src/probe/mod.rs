//! `clearway probe`: sends a server what a correct client never sends, and compares its answers
//! with what the RFCs ask for.
//!
//! The prober is the crate `clearway-prober`; here are its options, its exit codes and where its
//! output goes.

mod args;
mod command;
mod selection;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
