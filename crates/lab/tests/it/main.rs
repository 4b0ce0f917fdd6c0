//! The lab as a library.

mod script;
mod smoke;
#[cfg(feature = "specimens")]
mod specimens;
