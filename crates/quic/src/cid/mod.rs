//! Connection IDs (RFC 9000 §5.1).
pub mod id;

pub use id::{ConnectionId, ResetToken};
