//! The library over sockets on loopback.

mod common;

mod closing;
mod crowding;
mod datagrams;
mod early;
mod failures;
mod guide;
mod hostile_http;
mod http;
mod icmp_flood;
mod interim;
mod limits;
mod living;
mod own_parts;
mod own_socket;
mod panics;
mod qlog;
mod serving;
mod socket_errors;
mod streams;
