//! What a turn does while the next look at the socket is urgent, and what a new client waits for.

use std::time::Duration;

use clearway_quic::endpoint::Source;

use super::peer::Peer;
use super::{SERVER, Scope, Shard, client_config};
use crate::shard::connections::{Connections, FAVORED_WINDOW};
use crate::shard::scheduler::TimeAccount;

impl Shard {
    fn loop_state(&mut self) -> &mut Connections {
        &mut self.driver.as_mut().expect("runs").shard
    }

    /// Queues a client that wants to begin; `begun` others of its source have begun lately.
    fn add_client(&mut self, number: u8, begun: usize) {
        let now = self.now;
        let source = Source::of([10, 0, 2, number].into());
        let pending_clients = &mut self.loop_state().pending_clients;
        for _ in 0..begun {
            pending_clients.record_handshake(now, source);
        }
        self.add_newcomer(number, Some(source));
    }

    /// Queues a turn of a connection that is not favored, and a client of a source that has begun a
    /// handshake lately.
    fn with_work_that_can_wait() -> Self {
        let mut shard = Self::new(&Scope::new(1, |_| true));
        let state = shard.loop_state();
        let handle = *state.table.keys().next().expect("connected");
        let entry = state.table.get_mut(&handle).expect("listed");
        entry.account = TimeAccount::default();
        state.mark_ready(handle);
        state.favored_at = None;
        shard.add_client(1, 1);
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
fn turn_after_one_of_a_favored_connection_among_many_does_one_kind_of_work_that_can_wait() {
    let mut shard = Shard::with_work_that_can_wait();
    let now = shard.now;
    shard.loop_state().favored_at = Some(now);
    for number in 2..8 {
        assert!(!shard.loop_state().must_hurry(now), "few wait");
        shard.add_client(number, 1);
    }
    assert!(shard.loop_state().must_hurry(now));
    assert!(!shard.loop_state().must_hurry(now + FAVORED_WINDOW));
    shard.take_turn();
    assert_eq!(shard.left(), 1);
}

#[test]
fn turn_of_a_favored_connection_is_remembered() {
    let mut shard = Shard::new(&Scope::new(1, |_| true));
    let state = shard.loop_state();
    state.favored_at = None;
    let handle = *state.table.keys().next().expect("connected");
    state.mark_ready(handle);
    shard.take_turn();
    assert!(shard.loop_state().favored_at.is_some());
}

#[test]
fn client_of_a_quiet_source_begins_whatever_the_turn_does_but_no_second_one_at_once() {
    let mut shard = Shard::new(&Scope::new(1, |_| true));
    shard.add_client(1, 0);
    shard.add_client(2, 0);
    shard.add_client(3, 1);
    let waiting = |shard: &mut Shard| {
        let now = shard.now;
        shard.download();
        // Other handshakes pause all the time.
        let pace = &mut shard.loop_state().handshake_pace;
        pace.on_handshake(now, now + Duration::from_millis(1));
        shard.take_turn();
        shard.loop_state().pending_clients.len()
    };
    assert_eq!(waiting(&mut shard), 2);
    assert_eq!(waiting(&mut shard), 2);
    shard.now += Duration::from_millis(5);
    assert_eq!(waiting(&mut shard), 1);
    shard.now += Duration::from_millis(5);
    assert_eq!(waiting(&mut shard), 1, "its source is not quiet");
}

#[test]
fn first_flight_leaves_in_the_turn_in_which_the_handshake_begins() {
    let mut shard = Shard::new(&Scope::new(1, |_| true));
    let mut peer = Peer::new(7, shard.now, SERVER, client_config());
    let from = peer.address;
    let datagrams = peer.flush(shard.now);
    let arrived = datagrams.into_iter().map(|datagram| (from, datagram));
    shard.socket.queues().arrived.extend(arrived);
    shard.signal_readable();
    // After another handshake, it does not begin while the socket is read.
    let now = shard.now;
    shard.download();
    let pace = &mut shard.loop_state().handshake_pace;
    pace.on_handshake(now, now + Duration::from_millis(1));
    let turn = shard.driver.as_mut().expect("runs").turn();
    turn.expect("the loop goes on");
    assert!(shard.loop_state().pending_clients.is_empty());
    let sent = &shard.socket.queues().sent;
    assert!(sent.iter().any(|sent| sent.0 == from), "{sent:?}");
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
