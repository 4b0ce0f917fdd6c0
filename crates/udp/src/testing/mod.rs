//! Tools for tests of code built on sockets: injected system call failures, and forged ICMP errors.
//! Only with the feature `testing`.

mod faults;
mod forge;

pub use self::faults::Faults;
pub use self::forge::{Flood, Forger, IcmpMessage};
pub use crate::linux::Call;
