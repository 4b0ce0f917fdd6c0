//! Sockets on loopback.

mod faults;
mod icmp;
mod icmp_flood;
mod loopback;
mod steering;
