//! Whole connections on several paths: what `paths.rs` explores, with everything
//! that a connection does about it, by repeating sequences from the handshake on.

mod client;
mod server;
mod victim;

use crate::explore::{Bounds, ExpectClean, explore_by_replay};
use client::ClientWorld;
use server::ServerWorld;

#[test]
fn any_packets_probes_answers_and_waits_at_a_server_connection() {
    explore_by_replay("a server connection", ServerWorld::new, Bounds::to_depth(4)).expect_clean();
}

#[test]
fn any_moves_probes_answers_and_waits_at_a_client_connection() {
    explore_by_replay("a client connection", ClientWorld::new, Bounds::to_depth(4)).expect_clean();
}
