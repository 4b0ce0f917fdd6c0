//! `clearway view`: traces in the browser.

mod args;
mod http;
mod server;

pub(crate) use self::args::{ABOUT, Args};
pub(crate) use self::server::command;
