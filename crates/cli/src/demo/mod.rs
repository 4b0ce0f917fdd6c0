//! `clearway demo`: the main job, on real sockets.
//!
//! [`args`] say what to do; [`run`] does it once over HTTP/3: a server of a
//! [`site`], a [`crate::relay`] and a client; [`series`] records the sender's window through an observer;
//! [`breakdown`] is what it waited for; [`report`] and [`chart`] show it.

mod args;
mod breakdown;
mod chart;
mod command;
mod report;
mod run;
mod series;
mod site;

pub(crate) use args::{ABOUT, Args};
pub(crate) use breakdown::Breakdown;
pub(crate) use command::command;
