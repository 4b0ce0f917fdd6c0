//! Streams (RFC 9000 §2–4, §19.4–19.14).
pub mod id;

pub use id::{Directionality, StreamId};
