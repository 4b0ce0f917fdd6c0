//! Traces of real connections: written, read and diagnosed.

#[path = "../../../quic/tests/it/common/mod.rs"]
mod common;

mod every_event;
mod extreme;
mod healthy;
mod roundtrip;
