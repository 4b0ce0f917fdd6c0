//! Traces of real connections: written, read and diagnosed.

#[path = "../../../quic/tests/it/common/mod.rs"]
mod common;

mod extreme;
mod healthy;
mod roundtrip;
