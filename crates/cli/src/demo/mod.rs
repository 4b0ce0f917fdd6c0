//! `clearway demo`: a download through a difficult network, on real sockets.
//!
//! [`args`] are the options; [`run`] performs one download over HTTP/3: a server of a [`site`], a
//! [`crate::relay`] and a client; [`series`] records the sender's window through an observer;
//! [`breakdown`] shows what the sender waited for; [`report`] and [`chart`] print the results.

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
