//! `clearway serve`: a directory over HTTP/3.
//!
//! A request goes through [`site`]: [`site_path`] turns its URL into a path, [`root`] opens it
//! without ever leaving the directory, [`conditions`] and [`range`] decide on the response, and
//! [`download`], [`listing`] and [`upload`] (into a [`temporary_file`]; [`leftovers`] are removed)
//! produce it. [`content`] is the body of the response, from a [`source`] such as [`pieces`] of a
//! file, with the [`sender_report`] as its trailer, and [`log`] is the access log. [`limits`] and
//! [`limit_options`] bound the resources used, and [`priority`] ranks the threads. [`secret`] outlives the server, [`load_balancer`] makes its connection IDs, and [`certificate`]
//! is replaced while it runs; [`proxy_options`] make it a proxy for UDP, and [`echo`] answers WebTransport sessions; [`command`] starts and ends it.

mod allocator;
mod args;
mod certificate;
mod command;
mod conditions;
mod content;
mod download;
mod echo;
mod leftovers;
mod limit_options;
mod limits;
mod listing;
mod load_balancer;
mod log;
mod observe;
mod pieces;
mod priority;
mod proxy_options;
mod range;
mod read_buffer;
mod resident;
mod root;
mod secret;
mod sender_report;
mod site;
mod site_path;
mod source;
mod temporary_file;
#[cfg(test)]
pub(crate) mod test_dir;
mod upload;
mod validators;

pub(crate) use args::{ABOUT, Args};
pub(crate) use command::command;
pub(crate) use pieces::Pieces;
pub(crate) use sender_report::SenderReport;
pub(crate) use source::Source;
