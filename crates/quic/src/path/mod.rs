//! One network path (RFC 9000 §8, §9, §13.4, §14).
pub mod amplification;
pub mod ecn;
pub mod mtu;
pub mod validation;

/// A path of one connection, numbered in the order of appearance. Local to
/// this end; never on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathId(pub u32);
