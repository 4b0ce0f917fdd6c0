//! The library over sockets on loopback.

mod common;

mod closing;
mod datagrams;
mod early;
mod failures;
mod hostile_http;
mod http;
mod interim;
mod living;
mod own_socket;
mod panics;
mod qlog;
mod serving;
mod socket_errors;
mod streams;
