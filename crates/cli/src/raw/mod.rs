//! `clearway raw`: transfers directly over QUIC, without HTTP.
//!
//! [`request`] is the protocol, [`pattern`] the content; [`ask()`] and [`answer()`] are the two
//! sides of a request; [`get`] (with its [`work`]) and [`serve`] are the two commands, with their
//! options in [`args`].

mod answer;
mod args;
mod ask;
mod get;
pub(crate) mod pattern;
mod report;
mod request;
mod serve;
mod work;

use answer::answer;
pub(crate) use args::{ABOUT, Command};
use ask::ask;
use request::{ALPN, Request};

use crate::failure::Failure;
use crate::{log, qlog};

/// Runs one of the commands.
///
/// # Errors
/// See [`crate::failure::Kind`].
pub(crate) fn command(command: &Command) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let options = match command {
        Command::Serve(args) => &args.qlog,
        Command::Get(args) => &args.qlog,
    };
    let qlog = options.open("raw")?;
    let outcome = match command {
        Command::Serve(args) => runtime.block_on(serve::serve(args, qlog.as_ref())),
        Command::Get(args) => runtime.block_on(get::get(args, qlog.as_ref())),
    };
    log::end();
    drop(runtime);
    qlog::finish(qlog);
    outcome
}
