//! The network paths of a connection (RFC 9000 §8, §9, §13.4, §14).
//!
//! | file | what it owns |
//! |---|---|
//! | `paths` | one path; which path carries data, its fallback, and paths being validated |
//! | `validation` | PATH_CHALLENGE and PATH_RESPONSE on one path |
//! | `amplification` | bytes that may be sent to an unvalidated address |
//! | [`ecn`] | whether ECN marks arrive unharmed |
//! | `mtu` | the largest datagram that arrives |

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

pub(crate) mod amplification;
pub mod ecn;
pub(crate) mod mtu;
pub(crate) mod paths;
pub(crate) mod scope;
pub(crate) mod validation;

pub use clearway_recovery::PathId;

pub(crate) use paths::path::{Addresses, Path, PathDefaults};
