//! The connections of a shard: found, let in, served in turns, forgotten.

use std::sync::Arc;

use clearway_quic::connection::{ConnectionError, EndpointEvent};
use clearway_quic::endpoint::ConnectionHandle;
use clearway_quic::error::{Code, TransportError};
use clearway_quic::{Instant, Role};
use clearway_udp::SteeringKey;
use rustc_hash::FxHashMap;

use super::WatchedSocket;
use super::backlog::Backlog;
use super::crowding::{Activity, Crowd};
use super::deadlines::{Deadlines, Place};
use super::link::{CloseAll, Link};
use super::newcomers::Newcomers;
use super::outlet::Outlet;
use super::turns::{Account, Turns};
use crate::connection::{Shared, Stage, State, Wakes};
use crate::endpoint::House;
use crate::error::EndpointError;
use crate::panic::catch;

/// What the shard knows of one connection.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) shared: Arc<Shared>,
    /// Our role in it.
    pub(super) role: Role,
    /// What it has used of the loop's time.
    pub(super) account: Account,
    pub(super) place: Place,
    /// A client's, not yet handed to the application.
    pub(super) unannounced: bool,
    pub(super) activity: Activity,
}

/// Which shard this is among how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) index: usize,
    pub(crate) key: SteeringKey,
}

/// A shard without its receive buffers.
pub(super) struct Connections {
    pub(super) link: Arc<Link>,
    pub(super) socket: WatchedSocket,
    pub(super) outlet: Outlet,
    pub(super) deadlines: Deadlines,
    pub(super) crowd: Crowd,
    pub(super) house: Arc<House>,
    pub(super) position: Position,
    pub(super) table: FxHashMap<ConnectionHandle, Entry>,
    pub(super) turns: Turns,
    pub(super) backlog: Backlog,
    /// Bytes of the backlog that are counted against the memory budget.
    pub(super) backlog_counted: usize,
    pub(super) wakes: Wakes,
    pub(super) endpoint_events: Vec<EndpointEvent>,
    /// Answers that need no connection.
    pub(super) response: Vec<u8>,
    pub(super) newcomers: Newcomers,
    /// The socket had more to give when it was last looked at.
    pub(super) pressed: bool,
    /// Handshakes begun in this turn.
    pub(super) begun: usize,
    pub(super) closing: Option<CloseAll>,
    /// Connections gone in this turn of theirs, still counted.
    pub(super) ended: usize,
    /// Panics while datagrams were routed, since one was routed without.
    pub(super) routing_panics: u32,
    /// Datagrams whose routing is to panic.
    #[cfg(feature = "testing")]
    pub(super) routing_faults: u32,
}

impl Connections {
    pub(super) fn new(
        link: Arc<Link>,
        socket: WatchedSocket,
        house: Arc<House>,
        position: Position,
    ) -> Self {
        Self {
            link,
            socket,
            outlet: Outlet::new(),
            deadlines: Deadlines::default(),
            crowd: Crowd::default(),
            house,
            position,
            table: FxHashMap::default(),
            turns: Turns::default(),
            backlog: Backlog::default(),
            backlog_counted: 0,
            wakes: Wakes::default(),
            endpoint_events: Vec::new(),
            response: Vec::with_capacity(1500),
            newcomers: Newcomers::new(
                u64::from(position.key.k0) << 32 | u64::from(position.key.k1),
            ),
            pressed: false,
            begun: 0,
            closing: None,
            ended: 0,
            routing_panics: 0,
            #[cfg(feature = "testing")]
            routing_faults: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether something can be done without waiting.
    pub(super) fn has_work(&self) -> bool {
        !self.newcomers.is_empty() || !self.turns.is_empty() && !self.outlet.is_blocked()
    }

    pub(super) fn shared(&self, handle: ConnectionHandle) -> Option<&Shared> {
        Some(&self.table.get(&handle)?.shared)
    }

    /// Does something to a connection that then gets a turn, in which its end is noticed
    /// if it should panic.
    fn visit(&mut self, handle: ConnectionHandle, stage: Stage, act: impl FnOnce(&mut State)) {
        if let Some(shared) = self.shared(handle) {
            // Why it is gone was said when it went.
            let _ = shared.visit(stage, act);
            self.mark_ready(handle);
        }
    }

    /// The connection gets a turn.
    pub(super) fn mark_ready(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.table.get_mut(&handle) {
            self.turns.push(handle, &mut entry.account);
        }
    }

    /// Ends the handshakes that take too long while there are many.
    pub(super) fn expire_handshakes(&mut self, now: Instant) {
        loop {
            let overdue = self.link.endpoint().next_overdue(now);
            let Some(handle) = overdue else {
                return;
            };
            self.visit(handle, Stage::Timeout, |state| {
                state.quic.expire_handshake(now);
            });
            self.mark_ready(handle);
        }
    }

    /// A connection that a handle began.
    pub(super) fn adopt(&mut self, now: Instant, shared: Arc<Shared>) {
        let handle = shared.handle;
        self.insert(shared, Role::Client);
        if let Some(close) = self.closing.clone() {
            self.visit(handle, Stage::Call, |state| {
                state.quic.close(now, close.code, &close.reason);
            });
        }
    }

    pub(super) fn insert(&mut self, shared: Arc<Shared>, role: Role) {
        let handle = shared.handle;
        let accepted = role == Role::Server;
        self.table.insert(
            handle,
            Entry {
                shared,
                account: Account::default(),
                role,
                place: Place::default(),
                unannounced: accepted,
                activity: Activity {
                    last: self.link.clock.now(),
                    moved: 0,
                    busy: true,
                },
            },
        );
        self.mark_ready(handle);
    }

    /// Timers whose time has come.
    pub(super) fn handle_timeouts(&mut self, now: Instant) {
        while let Some(handle) = self.deadlines.pop(now) {
            let Some(entry) = self.table.get_mut(&handle) else {
                continue;
            };
            if self.deadlines.is_due(handle, &mut entry.place, now) {
                self.visit(handle, Stage::Timeout, |state| state.handle_timeout(now));
            }
        }
    }

    /// Every connection gets a turn, clients on a new path.
    pub(super) fn move_to(&mut self, now: Instant, socket: WatchedSocket) {
        self.socket = socket;
        self.outlet.forget();
        let handles: Vec<ConnectionHandle> = self.table.keys().copied().collect();
        for handle in handles {
            self.visit(handle, Stage::Call, |state| {
                if state.quic.role() == Role::Client
                    && let Err(error) = state.quic.migrate(now, None)
                {
                    // The server will see the new address all the same.
                    tracing::debug!(%error, "no fresh path for a connection");
                    state.quic.ping();
                }
            });
        }
    }

    /// Closes every connection, and those to come.
    pub(super) fn close_all(&mut self, now: Instant, close: CloseAll) {
        let handles: Vec<ConnectionHandle> = self.table.keys().copied().collect();
        for handle in handles {
            self.visit(handle, Stage::Call, |state| {
                state.quic.close(now, close.code, &close.reason);
            });
        }
        self.closing = Some(close);
    }

    /// Nobody will accept any more.
    pub(super) fn refuse_clients(&mut self) {
        self.closing.get_or_insert(CloseAll {
            code: 0,
            reason: Vec::new(),
        });
    }

    /// The loop ends for this reason: what comes after it has the socket.
    pub(super) fn on_failure(&self, failure: &EndpointError) {
        tracing::error!(%failure, shard = self.position.index, "a shard has ended");
        if self.link.set_failure(failure.clone()) {
            self.link.keep_socket(self.socket.get_ref().0.clone());
        }
    }

    /// The loop is over: whoever is left hears why.
    pub(super) fn fail_all(&mut self, ended: Result<(), EndpointError>) {
        let reason = match &ended {
            Ok(()) => "the endpoint's event loop has ended".to_owned(),
            Err(failure) => failure.to_string(),
        };
        let error = TransportError::new(Code::INTERNAL_ERROR, reason);
        for (_, entry) in self.table.drain() {
            let _ = entry.shared.visit(Stage::Call, |state| {
                state.fail(ConnectionError::Transport(error.clone()), &mut self.wakes);
            });
            self.wakes.fire(&entry.shared);
            let _ = catch(|| drop(entry));
            self.house.population.remove();
        }
        self.backlog = Backlog::default();
        self.count_backlog();
        // Handles that are left hold the link, and must hold nobody's place.
        let _ = catch(|| self.link.endpoint().forget_all());
        if let Err(failure) = ended {
            self.house.on_shard_failed(failure);
        }
    }
}
