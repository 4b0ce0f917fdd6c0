//! Tests of the lab's public API.

mod script;
mod smoke;
#[cfg(feature = "specimens")]
mod specimens;
