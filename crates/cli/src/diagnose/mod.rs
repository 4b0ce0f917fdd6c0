//! `clearway diagnose`: what is wrong with connections, from their traces.

mod args;
mod command;
mod text;

pub(crate) use self::args::{ABOUT, Args};
pub(crate) use self::command::command;
