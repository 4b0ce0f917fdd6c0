//! Requests and responses between two ends of ours.

pub(crate) mod talk;

mod bodies;
mod endings;
mod extensions;
