//! Requests and responses between two HTTP/3 endpoints.

pub(crate) mod pair;
mod sessions;

mod bodies;
mod endings;
mod extensions;
