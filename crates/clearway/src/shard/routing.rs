//! Routing: the connection that a datagram belongs to, and which clients are accepted.

use std::sync::atomic::Ordering;

use clearway_quic::connection::{EndpointEvent, RecvMeta};
use clearway_quic::endpoint::{
    ConnectionHandle, DatagramEvent, Endpoint, Incoming, Postponed, Source,
};
use clearway_quic::{Instant, Role};
use clearway_udp::steering;

use super::Clock;
use super::chores::{Chore, Leisure};
use super::connections::{Connections, SourceStanding};
use super::driver::broken;
use super::link::count;
use super::pending_clients::PendingClient;
use super::strays::{QueuedDatagram, Strays};
use super::transmitter::send_datagram;
use crate::config::Admission;
use crate::connection::{ConnectionShared, Stage};
use crate::error::EndpointError;
use crate::log_limit;
use crate::panic::{CaughtPanic, catch};

/// Consecutive panics in routing after which the shard fails. A single packet that makes
/// routing panic must not end the shard; when every packet does, its routes are broken and
/// no client is served any more.
const ROUTING_PANICS: u32 = 1_000;

/// Returns the source that a client counts towards.
fn source_of(endpoint: &Endpoint, from: RecvMeta) -> Option<Source> {
    endpoint.admission().source_of(from.remote.ip())
}

impl Connections {
    /// Returns the shard that owns a datagram, if it is not this one.
    pub(super) fn owner_elsewhere(&self, datagram: &[u8]) -> Option<usize> {
        let shards = self.endpoint_shared.shards();
        if shards < 2 {
            return None;
        }
        let owner = steering::shard_of(datagram, self.position.key, shards);
        (owner != self.position.index).then_some(owner)
    }

    pub(super) fn pass_on(&self, owner: usize, from: RecvMeta, datagram: &[u8]) {
        let taken = self
            .endpoint_shared
            .shard(owner)
            .is_some_and(|link| link.push_stray(from, datagram));
        count(if taken {
            &self.link.counts.strays_passed
        } else {
            &self.link.counts.strays_dropped
        });
    }

    /// Whether a new client may begin at once: no earlier client waits.
    pub(super) fn has_room_for_client(&self, now: Instant) -> bool {
        self.begun < self.handshake_pace.per_turn(now)
            && !self.pending_clients.has_ordinary()
            && self.handshake_pace.pause(now).is_none()
    }

    /// Returns the connection that a datagram belongs to, or `None` if it was handled here. A
    /// new client begins if there is `room`, and waits otherwise.
    pub(super) fn route(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        unix_now: u64,
        from: RecvMeta,
        datagram: &[u8],
        room: bool,
    ) -> Option<ConnectionHandle> {
        #[cfg(feature = "testing")]
        self.strike();
        if self.pending_clients.keep(from, datagram) {
            return None;
        }
        let event = endpoint.receive(now, unix_now, from, datagram, &mut self.response);
        if let DatagramEvent::Incoming(incoming) = event {
            let source = source_of(endpoint, from);
            if room && !self.pending_clients.must_wait(now, source) {
                return self.accept_client(endpoint, now, from, *incoming);
            }
            self.defer_client(now, source, *incoming, from, datagram);
            return None;
        }
        self.on_datagram_event(endpoint, now, from, event)
    }

    /// Does what a datagram calls for, or a client that has waited. Returns the connection that it belongs to.
    fn on_datagram_event(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        from: RecvMeta,
        event: DatagramEvent,
    ) -> Option<ConnectionHandle> {
        match event {
            DatagramEvent::Connection(handle) => {
                self.mark_ready(handle);
                Some(handle)
            }
            DatagramEvent::Incoming(incoming) => self.accept_client(endpoint, now, from, *incoming),
            DatagramEvent::Response => {
                self.respond(from);
                None
            }
            DatagramEvent::Dropped(_) => None,
        }
    }

    #[cfg(feature = "testing")]
    #[expect(clippy::panic, reason = "it is what a test asked for")]
    fn strike(&mut self) {
        if let Some(left) = self.routing_faults.checked_sub(1) {
            self.routing_faults = left;
            panic!("injected into routing");
        }
    }

    #[cfg(feature = "testing")]
    pub(super) fn set_fault(&mut self, fault: super::Fault) {
        if let super::Fault::Routing(datagrams) = fault {
            self.routing_faults = datagrams;
        }
    }

    /// Resets the count of consecutive panics in routing.
    pub(super) fn on_routed(&mut self) {
        self.routing_panics = 0;
    }

    /// Counts a panic in routing, which drops the datagram.
    ///
    /// # Errors
    /// If there were too many in a row.
    pub(super) fn on_routing_panic(&mut self, panic: CaughtPanic) -> Result<(), EndpointError> {
        let count = &self.link.counts.routing_panics;
        count.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%panic, "routing a datagram panicked; the datagram was dropped");
        self.routing_panics = self.routing_panics.saturating_add(1);
        if self.routing_panics > ROUTING_PANICS {
            return Err(EndpointError::Panicked(panic));
        }
        Ok(())
    }

    /// Makes a new client wait, because enough handshakes began in this turn.
    fn defer_client(
        &mut self,
        now: Instant,
        source: Option<Source>,
        incoming: Incoming,
        from: RecvMeta,
        datagram: &[u8],
    ) {
        let datagram = QueuedDatagram {
            from,
            datagram: datagram.to_vec(),
        };
        let dcid = incoming.destination_cid();
        let attempt = incoming.postpone();
        let pending = &mut self.pending_clients;
        let dropped = pending.push(now, source, dcid, attempt, datagram);
        count(&self.link.counts.clients_deferred);
        if dropped.is_some() {
            // That one will retransmit.
            count(&self.link.counts.clients_dropped);
        }
    }

    /// Routes datagrams that other shards have forwarded.
    ///
    /// # Errors
    /// As [`on_routing_panic`](Self::on_routing_panic).
    pub(super) fn take_strays(
        &mut self,
        now: Instant,
        mut strays: Strays,
    ) -> Result<(), EndpointError> {
        while let Some(stray) = strays.pop() {
            let room = self.has_room_for_client(now);
            self.take_stray(now, stray, room)?;
        }
        Ok(())
    }

    /// Begins handshakes of waiting clients, as many as this turn has room for, and sends their first
    /// flights. Now and then one of a quiet source begins whatever else this turn does.
    ///
    /// # Errors
    /// If there were too many panics in a row, or the socket fails permanently.
    pub(super) fn begin_pending_clients(
        &mut self,
        now: Instant,
        leisure: Leisure,
    ) -> Result<(), EndpointError> {
        if self.handshake_pace.may_begin_quiet(now)
            && let Some(client) = self.pending_clients.pop_quiet()
        {
            self.handshake_pace.on_quiet(now);
            self.begin_client(now, client)?;
        }
        while leisure.allows(Chore::Handshakes)
            && self.begun < self.handshake_pace.per_turn(now)
            && self.handshakes_resume_at().is_none()
            && let Some(client) = self.pending_clients.pop(now)
        {
            self.begin_client(now, client)?;
        }
        self.send_trains(now).map_err(broken)
    }

    /// Begins the handshake of a client that has waited, unless it is turned away, and gives it a turn.
    ///
    /// # Errors
    /// As [`begin_pending_clients`](Self::begin_pending_clients).
    fn begin_client(
        &mut self,
        now: Instant,
        client: PendingClient<Postponed>,
    ) -> Result<(), EndpointError> {
        let before = self.begun;
        let began = self.link.clock.now();
        let PendingClient { attempt, datagrams } = client;
        let Some(from) = datagrams.first().map(|first| first.from) else {
            return Ok(());
        };
        if let Some(handle) = self.reconsider(now, from, attempt)? {
            for datagram in datagrams {
                self.pass_copy(now, handle, datagram);
            }
            self.serve_begun(handle).map_err(broken)?;
        }
        if self.begun > before {
            let ended = self.link.clock.now();
            self.handshake_pace.on_handshake(began, ended);
        } else {
            self.handshake_pace.on_turned_away();
        }
        Ok(())
    }

    /// Decides about a client that has waited. Returns its connection, unless it is turned away.
    ///
    /// # Errors
    /// As [`on_routing_panic`](Self::on_routing_panic).
    fn reconsider(
        &mut self,
        now: Instant,
        from: RecvMeta,
        attempt: Postponed,
    ) -> Result<Option<ConnectionHandle>, EndpointError> {
        self.catch_routing(|shard, endpoint| {
            let event = endpoint.reconsider(now, attempt, &mut shard.response);
            shard.on_datagram_event(endpoint, now, from, event)
        })
    }

    /// Routes a datagram that another shard has forwarded.
    ///
    /// # Errors
    /// As [`on_routing_panic`](Self::on_routing_panic).
    fn take_stray(
        &mut self,
        now: Instant,
        stray: QueuedDatagram,
        room: bool,
    ) -> Result<(), EndpointError> {
        let unix_now = Clock::unix_seconds();
        let handle = self.catch_routing(|shard, endpoint| {
            let QueuedDatagram { from, datagram } = &stray;
            shard.route(endpoint, now, unix_now, *from, datagram, room)
        })?;
        if let Some(handle) = handle {
            self.pass_copy(now, handle, stray);
        }
        Ok(())
    }

    /// Finds the connection of a datagram by `route`. If that panics, the datagram is dropped.
    ///
    /// # Errors
    /// As [`on_routing_panic`](Self::on_routing_panic).
    fn catch_routing(
        &mut self,
        route: impl FnOnce(&mut Self, &mut Endpoint) -> Option<ConnectionHandle>,
    ) -> Result<Option<ConnectionHandle>, EndpointError> {
        let link = self.link.clone();
        match catch(|| route(self, &mut link.endpoint())) {
            Ok(handle) => {
                self.on_routed();
                Ok(handle)
            }
            Err(panic) => self.on_routing_panic(panic).map(|()| None),
        }
    }

    /// Passes a datagram that was queued to its connection.
    fn pass_copy(&mut self, now: Instant, handle: ConnectionHandle, copy: QueuedDatagram) {
        let QueuedDatagram { from, mut datagram } = copy;
        if self.backlog.has(handle) {
            // Behind the datagrams that arrived earlier.
            self.set_aside(handle, from, &datagram);
        } else if let Some(shared) = self.shared(handle) {
            let _ = shared.with_state(Stage::Receive, |state| {
                state.quic.receive(now, from, &mut datagram);
            });
        }
    }

    /// Begins the connection of a new client, if the application admits it.
    fn accept_client(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        from: RecvMeta,
        incoming: Incoming,
    ) -> Option<ConnectionHandle> {
        if self.closing.is_some() || self.admit(&incoming) == Admission::Refuse {
            endpoint.refuse(&incoming, &mut self.response);
            self.respond(from);
            return None;
        }
        self.begun = self.begun.saturating_add(1);
        self.handshake_pace.on_untimed_handshake(now);
        let source = source_of(endpoint, from);
        let pending = &mut self.pending_clients;
        let standing = source.map_or_else(SourceStanding::default, |source| SourceStanding {
            has_many: pending.record_handshake(now, source),
            is_offender: pending.offenders.contains(now, source),
        });
        let accepted = match self.reduced_config() {
            Some(config) => endpoint.accept_with(now, incoming, config),
            None => endpoint.accept(now, incoming),
        };
        let (handle, mut connection) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                let remote = from.remote;
                match log_limit::client_warning() {
                    Some(suppressed) => {
                        tracing::warn!(%error, %remote, suppressed, "cannot start the TLS handshake of a client");
                    }
                    None => {
                        tracing::debug!(%error, %remote, "cannot start the TLS handshake of a client");
                    }
                }
                return None;
            }
        };
        let (endpoint_shared, link) = (self.endpoint_shared.clone(), self.link.clone());
        let shared = catch(move || {
            endpoint_shared.observe(&mut connection);
            let http = endpoint_shared.http(&connection, handle, now, None);
            ConnectionShared::new(connection, handle, link, http)
        });
        match shared {
            Ok(shared) => {
                self.endpoint_shared.connection_count.add();
                self.insert(shared, Role::Server, standing);
                Some(handle)
            }
            Err(panic) => {
                tracing::error!(%panic, remote = %from.remote, "setting up a connection panicked; the client was dropped");
                self.link.count_panic();
                endpoint.on_event(handle, EndpointEvent::Drained);
                None
            }
        }
    }

    /// Returns the decision about a new client. A panic of the application refuses it.
    fn admit(&self, incoming: &Incoming) -> Admission {
        if !self.endpoint_shared.has_backlog() {
            count(&self.link.counts.backlog_refusals);
            return Admission::Refuse;
        }
        catch(|| self.endpoint_shared.admit(incoming.remote())).unwrap_or_else(|panic| {
            tracing::error!(%panic, remote = %incoming.remote(), "the admit callback panicked; the client was refused");
            self.link.count_panic();
            Admission::Refuse
        })
    }

    fn respond(&self, from: RecvMeta) {
        let socket = self.socket.get_ref();
        if !send_datagram(socket, from.remote, from.local_ip, &self.response) {
            count(&self.link.counts.answers_dropped);
        }
    }
}
