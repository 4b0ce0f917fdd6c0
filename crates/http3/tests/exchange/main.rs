//! Requests and responses between two ends of ours.

#[path = "../common/mod.rs"]
mod common;
mod talk;

mod bodies;
mod endings;
mod extensions;
