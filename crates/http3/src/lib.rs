//! HTTP/3 and QPACK, with no I/O.

pub mod qpack;
