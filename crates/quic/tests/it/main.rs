//! Two ends in virtual time: what each file tests is in `../README.md`.

mod common;

mod ack_frequency;
mod address;
mod bbr;
mod buffers;
mod credit;
mod death_spiral;
mod determinism;
mod early_data;
mod explore;
mod features;
mod handshake_loss;
mod hostile;
mod idle;
mod idle_timeout;
mod l4s;
mod migration;
mod moving;
mod operations;
mod response;
mod restart;
mod shards;
#[cfg(feature = "specimens")]
mod specimens;
mod streams;
mod transfer;
mod traps;
mod worlds;
