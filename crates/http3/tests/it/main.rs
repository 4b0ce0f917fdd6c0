//! HTTP/3 over two transports in virtual time.

mod common;

mod cuts;
mod edges;
mod exchange;
mod hostile;
mod memory;
mod worlds;
