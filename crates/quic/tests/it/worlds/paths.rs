//! Every sequence of events on paths, with the production types for
//! paths and the peer's connection IDs. Loss recovery, which has to know the same
//! paths, is a set here; `migration.rs` explores with all of a connection.

mod client;
mod network;
mod server;

use clearway_testing::explore::{Bounds, ExpectClean, explore};
use client::ClientWorld;
use server::{Alphabet, ServerWorld};

fn server(name: &str, alphabet: Alphabet, depth: usize) {
    let world = ServerWorld::new(alphabet);
    explore(name, world, Bounds::to_depth(depth)).expect_clean();
}

#[test]
fn server_paths_keep_invariants_under_packets_probes_and_timeouts() {
    server("validation at a server", Alphabet::VALIDATION, 8);
}

#[test]
fn server_paths_keep_amplification_limit() {
    server("amplification at a server", Alphabet::AMPLIFICATION, 8);
}

#[test]
fn server_paths_keep_invariants_as_cids_come_and_go() {
    server("connection IDs at a server", Alphabet::CONNECTION_IDS, 8);
}

#[test]
fn server_paths_keep_invariants_under_any_event() {
    server("a server's paths", Alphabet::ALL, 5);
}

#[test]
fn client_paths_keep_invariants_under_any_event() {
    let world = ClientWorld::new();
    explore("a client's paths", world, Bounds::to_depth(8)).expect_clean();
}
