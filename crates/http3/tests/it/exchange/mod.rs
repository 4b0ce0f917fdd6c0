//! Requests and responses between two ends of ours.

mod talk;

mod bodies;
mod endings;
mod extensions;
