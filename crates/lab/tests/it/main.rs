//! Tests of the lab's public API.

mod hunt;
mod script;
mod smoke;
#[cfg(feature = "specimens")]
mod specimens;
