//! Invariants that hold whenever a connection has nothing more to send.

use std::collections::BTreeSet;

use clearway_recovery::{PathRecovery, Space};

use super::Connection;
use super::network::can_send;
use super::space::SPACES;
use super::state::HandshakeState;
use crate::cid::ConnectionId;
use crate::cid::remote::RemoteCids;
use crate::path::Path;
use crate::path::paths::Paths;
use crate::stream::Sendability;

impl Connection {
    /// Checks the ledger, and that everything outstanding or queued has a timer that moves
    /// it on. For tests, after [`transmit`](Self::transmit) returned `None`. Walks every
    /// packet.
    ///
    /// # Panics
    /// If an invariant does not hold.
    #[doc(hidden)]
    pub fn check_invariants(&self) {
        if !self.lifecycle.is_open() {
            return;
        }
        self.network.recovery.check_invariants();
        self.check_paths();
        // Without credit only the client can continue. Without a connection ID for the path
        // nothing can be sent until the peer, whose own timer runs, issues one (RFC 9000
        // §9.5).
        let blocked = self
            .network
            .is_amplification_blocked(self.lifecycle.handshake);
        if blocked || !can_send(self.network.paths.active(), &self.frames) {
            return;
        }
        // Data that a server sends after its flight has no timer (RFC 9002 §6.2.1) until
        // the client, whose timer runs, has finished the handshake.
        if !self.is_client() && self.lifecycle.handshake == HandshakeState::Running {
            return;
        }
        if let Some(what) = self.waiting() {
            // The credit left on a new path may be too little for the next frame. Its
            // validation ends in any case, and the connection continues from there.
            let validating = self.network.paths.active().validation.deadline().is_some();
            assert!(
                validating
                    || self.network.recovery.next_timeout().is_some()
                    || self.timers.pacing.is_some(),
                "{:?}: {what} waits and no timer will send it: {:?}, {:?}, \
                 {} of {} bytes in flight, path {:?}",
                self.role,
                self.lifecycle.handshake,
                self.network.limit(),
                self.network.active_recovery().in_flight(),
                self.network.active_recovery().window(),
                self.network.paths.active(),
            );
        }
    }

    /// Checks that loss recovery and connection IDs know the existing paths, and no other.
    fn check_paths(&self) {
        let there: BTreeSet<_> = self.network.paths.iter().map(Path::id).collect();
        let recovery: BTreeSet<_> = self
            .network
            .recovery
            .paths()
            .map(PathRecovery::id)
            .collect();
        assert_eq!(recovery, there, "paths of loss recovery");
        let active = self.network.paths.active_id();
        assert_eq!(
            self.network.recovery.active_path(),
            active,
            "of loss recovery"
        );
        for path in self.frames.remote_cids.paths() {
            assert!(there.contains(&path), "a connection ID for {path:?}");
        }
        for path in there {
            let known = self.frames.remote_cids.paths().filter(|each| *each == path);
            let expected =
                usize::from(self.frames.remote_cids.cid(path) != Some(ConnectionId::EMPTY));
            assert_eq!(known.count(), expected, "connection IDs for {path:?}");
        }
    }

    /// Returns the paths, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn paths(&self) -> &Paths {
        &self.network.paths
    }

    /// Returns the peer's connection IDs, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn remote_cids(&self) -> &RemoteCids {
        &self.frames.remote_cids
    }

    /// Returns something that `transmit` left unsent.
    fn waiting(&self) -> Option<&'static str> {
        SPACES.into_iter().find_map(|space| {
            self.keys.sending_kind(space)?;
            let state = self.frames.spaces.get(space)?;
            if state.crypto.has_data_to_send() {
                return Some("CRYPTO");
            }
            if state.probes > 0 {
                return Some("a probe");
            }
            if state.ping {
                return Some("PING");
            }
            (space == Space::Data && self.frames.has_pending_data()).then(|| self.waiting_data())
        })
    }

    fn waiting_data(&self) -> &'static str {
        if self.frames.local_cids.has_frames() {
            "NEW_CONNECTION_ID"
        } else if self.frames.remote_cids.has_frames() {
            "RETIRE_CONNECTION_ID"
        } else if !self.frames.datagrams_out.is_empty() {
            "DATAGRAM"
        } else if matches!(self.frames.streams.sendability(), Sendability::Ready) {
            "a stream"
        } else {
            "a control frame"
        }
    }
}
