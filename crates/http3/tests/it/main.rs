//! HTTP/3 over two transports in virtual time.

mod common;
#[path = "../../../quic/tests/it/explore/mod.rs"]
mod explore;

mod cuts;
mod edges;
mod exchange;
mod hostile;
mod memory;
mod worlds;
