//! Tests of HTTP/3: two endpoints in virtual time, or one over a transport in memory.

mod common;

mod edges;
mod exchange;
mod findings;
mod hostile;
mod memory;
mod splits;
mod worlds;
