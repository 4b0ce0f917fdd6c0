//! `clearway get`: fetches URLs over HTTP/3.
//!
//! [`job`] turns the command line into jobs. [`fetch`] runs them, and [`transfer`] a single one:
//! [`request`] builds the request (with an [`upload`]), [`answer`] interprets the response's
//! headers, and [`writer`] gathers the body for its [`destination`], where a [`part`] has a
//! [`temporary`] name and a [`description`] until it is complete; [`existing_file`] is what an earlier run left.
//! [`cause`] classifies failures, [`tally`] counts, and [`progress`] and [`summary`] print.

mod answer;
mod args;
mod cause;
mod command;
mod description;
mod destination;
mod existing_file;
mod fetch;
mod job;
mod part;
mod progress;
mod request;
mod summary;
mod tally;
mod temporary;
mod transfer;
mod upload;
mod writer;

pub(crate) use args::{ABOUT, Args};
pub(crate) use cause::failure;
pub(crate) use command::{client, command};
