//! Sockets on loopback.

mod faults;
#[cfg(target_os = "linux")]
mod forge;
mod icmp;
mod icmp_flood;
mod loopback;
mod steering;
