//! Tests of HTTP/3: two endpoints in virtual time, or one over a transport in memory.

mod common;

mod edges;
mod exchange;
mod findings;
mod flush_due;
mod hostile;
mod instructions;
mod memory;
mod splits;
mod take_end;
mod worlds;
