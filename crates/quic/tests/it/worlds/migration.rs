//! Whole connections on several paths: what `paths.rs` explores, with everything
//! that a connection does about it, by repeating sequences from the handshake on.

mod client;
mod server;
mod victim;

use clearway_testing::explore::{Bounds, ExpectClean, explore_by_replay};
use client::ClientWorld;
use server::ServerWorld;

#[test]
fn server_connection_keeps_invariants_under_any_path_events() {
    explore_by_replay("a server connection", ServerWorld::new, Bounds::to_depth(4)).expect_clean();
}

#[test]
fn client_connection_keeps_invariants_under_any_path_events() {
    explore_by_replay("a client connection", ClientWorld::new, Bounds::to_depth(4)).expect_clean();
}
