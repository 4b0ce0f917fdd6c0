//! Connection IDs (RFC 9000 §5.1).

#![cfg_attr(
    not(test),
    deny(
        clippy::arithmetic_side_effects,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::unwrap_used
    )
)]

pub mod generator;
pub mod id;
pub mod lengths;
pub(crate) mod local;
pub mod quic_lb;
pub(crate) mod remote;

pub use id::{ConnectionId, ResetToken};
pub use lengths::CidLengths;

/// The content of a NEW_CONNECTION_ID frame (RFC 9000 §19.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewCid {
    /// The sequence number, by which both ends refer to this connection ID.
    pub sequence: u64,
    /// Connection IDs with lower sequence numbers have to be retired.
    pub retire_prior_to: u64,
    /// The connection ID.
    pub cid: ConnectionId,
    /// The stateless reset token for this connection ID.
    pub reset_token: ResetToken,
}
