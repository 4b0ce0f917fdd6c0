//! Traces of real connections: written, read and diagnosed.

mod every_event;
mod extreme;
mod foreign;
mod healthy;
mod qvis;
mod roundtrip;
