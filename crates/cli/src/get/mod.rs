//! `clearway get`: what URLs name, over HTTP/3.
//!
//! [`job`] makes of the command line what there is to do, [`trust`] whom to
//! believe, [`route`] where servers are. [`fetch`] runs the jobs, [`transfer`] does one: [`request`] builds
//! what is sent (with an [`upload`]), [`answer`] reads the head of what comes,
//! [`writer`] gathers the rest for [`destination`], where a [`part`] file waits under
//! a [`temporary`] name to be whole; [`held`] is what an earlier run left. [`cause`] names
//! failures, [`tally`] counts, [`progress`] and [`summary`] show.

mod answer;
mod args;
mod cause;
mod command;
mod destination;
mod existing_file;
mod fetch;
mod job;
mod part;
mod progress;
mod request;
mod route;
mod summary;
mod tally;
mod temporary;
mod transfer;
mod trust;
mod upload;
mod writer;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
