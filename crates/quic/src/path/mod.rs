//! One network path (RFC 9000 §8, §9, §13.4, §14).
pub mod amplification;
pub mod ecn;
pub mod mtu;
pub mod validation;

pub use clearway_recovery::PathId;
