//! Sockets on loopback.

mod icmp;
mod loopback;
mod steering;
