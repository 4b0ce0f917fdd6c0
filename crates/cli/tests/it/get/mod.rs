//! `clearway get` as a user runs it.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod answer;
#[cfg(target_os = "linux")]
mod closed_port;
pub(crate) mod command;
#[cfg(target_os = "linux")]
mod durable;
mod endings;
mod failure;
pub(crate) mod faulty_server;
mod forged;
mod names;
mod origin;
mod output;
mod resume;
mod route;
mod secrets;
mod terminal;
mod tickets;
mod upload;
