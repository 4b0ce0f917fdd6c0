//! `clearway tunnel`: a local UDP port whose packets go through an HTTP/3 proxy to one target
//! (CONNECT-UDP, RFC 9298).
//!
//! [`command`] reads the local socket and passes each packet to the [`flow`] of its sender, which
//! has a tunnel of its own; [`flows`] is their bounded table.

mod args;
mod command;
mod flow;
mod flows;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
