//! A source whose connections are closed for errors of its own waits while others are served.

use std::time::Duration;

use clearway_quic::endpoint::Source;
use clearway_quic::error::{Code, TransportError};

use super::{Scope, Shard};
use crate::connection::Stage;
use crate::shard::offenders::Offenders;

/// Longer than it takes until an ended connection is forgotten, and the last pause is over.
const LONG: Duration = Duration::from_secs(5);

/// The number of the client that offends, and of the one that does not.
const OFFENDER: u8 = 1;
const OTHER: usize = 0;

fn offender() -> Source {
    Source::of([10, 0, 0, 10 + OFFENDER].into())
}

impl Shard {
    /// Creates a shard with a client that is there, and one whose connections have failed.
    fn with_failures(code: Code) -> Self {
        let mut shard = Self::new(&Scope::new(1, |_| true));
        (0..8).for_each(|_| shard.connect_and_fail(code));
        shard
    }

    /// The same with an offender, for which there is a pause.
    fn with_offender() -> Self {
        let mut shard = Self::with_failures(Code::PROTOCOL_VIOLATION);
        assert!(shard.offends());
        // The clock stands still during a turn, so that its connections used no time.
        let (now, used) = (shard.now, Duration::from_millis(20));
        shard.offenders().record(now, offender(), used);
        shard
    }

    fn offenders(&mut self) -> &mut Offenders {
        let driver = self.driver.as_mut().expect("runs");
        &mut driver.shard.pending_clients.offenders
    }

    fn offends(&mut self) -> bool {
        let now = self.now;
        self.offenders().contains(now, offender())
    }

    /// Completes the handshake of another connection of client `n`, ends it with an error of the
    /// code, and waits until it is forgotten.
    fn connect_and_fail(&mut self, code: Code) {
        self.connect(OFFENDER);
        let app = self.apps.pop().expect("connected");
        self.peers.pop();
        let shared = app.connection.as_ref().expect("open").shared().clone();
        let now = self.now;
        let aborted = shared.with_state(Stage::Call, |state| {
            state.quic.abort(now, TransportError::new(code, "a test"));
        });
        aborted.expect("alive");
        shared.mark_dirty();
        drop(app);
        let before = self.connections();
        while self.connections() == before {
            self.wait(Duration::from_millis(50));
        }
    }

    pub(super) fn connections(&self) -> usize {
        self.driver.as_ref().expect("runs").shard.table.len()
    }

    /// Sends data to the other client, which acknowledges it.
    fn transfer(&mut self) {
        self.apps[OTHER].write();
        self.settle();
        self.receive_all(OTHER);
        self.wait(Duration::from_millis(50));
        self.receive_all(OTHER);
    }

    /// Sends the first flight of another connection of the offender, and returns whether its
    /// handshake begins at once.
    fn begins_at_once(&mut self) -> bool {
        let before = self.connections();
        let peer = super::Peer::new(OFFENDER, self.now, super::SERVER, super::client_config());
        self.peers.push(peer);
        self.receive_all(self.peers.len() - 1);
        self.connections() > before
    }
}

#[test]
fn client_of_an_offender_waits_beside_transfers_and_begins_in_the_end() {
    let mut shard = Shard::with_offender();
    shard.transfer();
    assert!(!shard.begins_at_once());
    assert!(shard.alarm().is_some(), "nothing would wake the loop");
    shard.wait(LONG);
    assert_eq!(shard.connections(), 2, "it began late");
}

#[test]
fn client_of_an_offender_begins_at_once_if_nobody_else_is_served() {
    let mut shard = Shard::with_offender();
    assert!(shard.begins_at_once());
}

#[test]
fn client_whose_connections_ended_without_its_fault_does_not_wait() {
    for code in [Code::NO_ERROR, Code::INTERNAL_ERROR, Code::crypto(120)] {
        let mut shard = Shard::with_failures(code);
        assert!(!shard.offends(), "{code:?}");
    }
}
