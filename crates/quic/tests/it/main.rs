//! Tests with two endpoints in virtual time. `../README.md` says what each file tests.

mod ack_frequency;
mod address;
mod bbr;
mod buffers;
mod careful_resume;
mod death_spiral;
mod determinism;
mod early_data;
mod features;
mod flow_control;
mod handshake_loss;
mod hostile;
mod idle;
mod idle_timeout;
mod inspection;
mod l4s;
mod loss_response;
mod migration;
mod mtu_probe_at_restart;
mod operations;
mod pitfalls;
mod quic_lb;
mod reliable_reset;
mod restart;
mod shards;
#[cfg(feature = "specimens")]
mod specimens;
mod spiral;
mod streams;
mod transfer;
mod versions;
mod worlds;
