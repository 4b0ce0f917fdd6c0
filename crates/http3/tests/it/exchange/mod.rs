//! Requests and responses between two HTTP/3 endpoints.

pub(crate) mod pair;
mod session_limits;
mod sessions;

mod bodies;
mod endings;
mod extensions;
