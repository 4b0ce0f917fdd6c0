//! What a turn does while somebody downloads.

use clearway_quic::cid::ConnectionId;

use super::silent::not_a_handshake;
use super::{Scope, Shard};
use crate::shard::connections::Connections;
use crate::shard::scheduler::TimeAccount;

/// What the client that waits calls the server.
const DCID: [u8; 4] = [7; 4];

impl Shard {
    fn loop_state(&mut self) -> &mut Connections {
        &mut self.driver.as_mut().expect("runs").shard
    }

    /// Queues a turn of a connection that is not favored, and a client that wants to begin.
    fn with_work_that_can_wait() -> Self {
        let mut shard = Self::new(&Scope::new(1, |_| true));
        let now = shard.now;
        let state = shard.loop_state();
        let handle = *state.table.keys().next().expect("connected");
        let entry = state.table.get_mut(&handle).expect("listed");
        entry.account = TimeAccount::default();
        state.mark_ready(handle);
        let dcid = ConnectionId::new(&DCID).expect("short");
        state
            .pending_clients
            .push(now, None, dcid, not_a_handshake());
        shard
    }

    /// Returns how much of that is left.
    fn left(&mut self) -> usize {
        let state = self.loop_state();
        state.scheduler.prompt() + usize::from(!state.pending_clients.is_empty())
    }
}

#[test]
fn turn_beside_a_download_does_one_kind_of_work_that_can_wait() {
    let mut shard = Shard::with_work_that_can_wait();
    assert_eq!(shard.left(), 2);
    for left in [1, 0] {
        shard.download();
        shard.take_turn();
        assert_eq!(shard.left(), left);
    }
}

#[test]
fn turn_does_all_that_waits_if_nobody_downloads() {
    let mut shard = Shard::with_work_that_can_wait();
    shard.take_turn();
    assert_eq!(shard.left(), 0);
}

#[test]
fn handshake_of_a_turn_leaves_room_for_one_in_the_next_whatever_that_does() {
    let mut shard = Shard::new(&Scope::new(1, |_| true));
    shard.download();
    shard.loop_state().begun = 1;
    let now = shard.now;
    assert!(!shard.loop_state().has_room_for_client(now));
    shard.take_turn();
    shard.download();
    let now = shard.now;
    assert!(shard.loop_state().has_room_for_client(now));
}
