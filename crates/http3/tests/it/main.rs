//! HTTP/3 over two transports in virtual time.

mod common;

mod cuts;
mod exchange;
mod hostile;
