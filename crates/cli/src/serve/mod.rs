//! `clearway serve`: a directory over HTTP/3.
//!
//! A request goes through [`site`]: [`place`] makes a path of its URL, [`root`]
//! opens it without ever leaving the directory, [`conditions`] and [`range`]
//! decide what to answer, [`download`], [`listing`] and [`upload`] (into a [`half`]
//! file; [`leftovers`] are removed) do it, [`content`] is the body that leaves, out of
//! a [`source`] such as [`pieces`] of a file, with the [`sender_report`] as its trailer,
//! and [`log`] tells of it. None of it takes more than [`limits`] and
//! [`bounds`] allow, and [`priority`] says which thread goes first.
//! [`secret`] outlives the server, and [`certificate`] is replaced while all that runs, which [`command`] starts and ends.

mod args;
mod bounds;
mod certificate;
mod command;
mod conditions;
mod content;
mod download;
mod half;
mod leftovers;
mod limits;
mod listing;
mod log;
mod pieces;
mod place;
mod priority;
mod range;
mod root;
mod secret;
mod sender_report;
mod site;
mod source;
#[cfg(test)]
pub(crate) mod test_dir;
mod upload;
mod validators;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
pub(crate) use pieces::Pieces;
pub(crate) use sender_report::SenderReport;
pub(crate) use source::Source;
