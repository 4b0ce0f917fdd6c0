//! `clearway doq`: plain DNS to DNS over QUIC (a [`stub`]) and back (an [`upstream`] server).

mod args;
mod command;
mod stub;
mod upstream;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
