//! For tests of what is built on sockets: system calls that fail on purpose, and the ICMP errors
//! that a stranger forges. With the feature `testing` only.

mod faults;
mod forge;

pub use self::faults::Faults;
pub use self::forge::{Flood, Forger, IcmpMessage};
pub use crate::linux::Call;
