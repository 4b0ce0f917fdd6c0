//! `clearway view`: traces in the browser.

mod args;
mod server;
mod source;

pub(crate) use self::args::{ABOUT, Args};
pub(crate) use self::server::command;
