//! Bytes on the wire (RFC 9000 §16–19): readers, writers, headers, frames.
pub mod cursor;

pub use cursor::{Reader, Writer};
