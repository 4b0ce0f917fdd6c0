//! Tests of HTTP/3: two endpoints in virtual time, or one over a transport in memory.

mod common;
#[path = "../../../quic/tests/it/explore/mod.rs"]
mod explore;

mod edges;
mod exchange;
mod hostile;
mod memory;
mod splits;
mod worlds;
