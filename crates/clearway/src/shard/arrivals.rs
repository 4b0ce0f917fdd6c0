//! Datagrams on their way to a connection: whose they are, who is let in.

use std::sync::atomic::Ordering;

use clearway_quic::connection::{EndpointEvent, RecvMeta};
use clearway_quic::endpoint::{ConnectionHandle, DatagramEvent, Endpoint, Incoming};
use clearway_quic::{Instant, Role};
use clearway_udp::steering;

use super::Clock;
use super::connections::Connections;
use super::link::count;
use super::outlet::answer;
use super::strays::{Stray, Strays};
use crate::config::Admission;
use crate::connection::{Shared, Stage};
use crate::error::EndpointError;
use crate::panic::{CaughtPanic, catch};
use crate::warnings;

/// Handshakes begun per turn. At some 0.2 ms each, a flood of new clients takes less than
/// a millisecond between two looks at the live connections.
const CLIENTS_PER_TURN: usize = 4;

/// Panics while datagrams were routed, with none in between that was routed without,
/// after which the shard ends. A packet that makes routing panic must not end it; when
/// every packet does, what routing works on is broken and nobody is served any more.
const ROUTING_PANICS: u32 = 1_000;

impl Connections {
    /// The shard that owns a datagram, if it is not this one.
    pub(super) fn owner_elsewhere(&self, datagram: &[u8]) -> Option<usize> {
        let shards = self.house.shards();
        if shards < 2 {
            return None;
        }
        let owner = steering::shard_of(datagram, self.position.key, shards);
        (owner != self.position.index).then_some(owner)
    }

    pub(super) fn pass_on(&self, owner: usize, from: RecvMeta, datagram: &[u8]) {
        let taken = self
            .house
            .shard(owner)
            .is_some_and(|link| link.push_stray(from, datagram));
        count(if taken {
            &self.link.counts.strays_passed
        } else {
            &self.link.counts.strays_dropped
        });
    }

    /// Whether a client that comes now may begin at once: none waits that came before.
    pub(super) fn has_room_for_client(&self) -> bool {
        self.begun < CLIENTS_PER_TURN && self.newcomers.is_empty()
    }

    /// Whose datagram this is; `None` if it has been dealt with. A client begins if there
    /// is `room`, and waits otherwise.
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
        match endpoint.receive(now, unix_now, from, datagram, &mut self.response) {
            DatagramEvent::Connection(handle) => {
                self.mark_ready(handle);
                Some(handle)
            }
            DatagramEvent::Incoming(incoming) if room => {
                self.let_in(endpoint, now, from, *incoming)
            }
            DatagramEvent::Incoming(_) => {
                self.defer(endpoint, now, from, datagram);
                None
            }
            DatagramEvent::Response => {
                self.answer(from);
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

    /// A datagram was routed without a panic.
    pub(super) fn on_routed(&mut self) {
        self.routing_panics = 0;
    }

    /// A panic while a datagram was routed costs the datagram.
    ///
    /// # Errors
    /// If nothing else has happened for too long.
    pub(super) fn on_routing_panic(&mut self, panic: CaughtPanic) -> Result<(), EndpointError> {
        let count = &self.link.counts.routing_panics;
        count.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%panic, "a datagram could not be routed");
        self.routing_panics = self.routing_panics.saturating_add(1);
        if self.routing_panics > ROUTING_PANICS {
            return Err(EndpointError::Panicked(panic));
        }
        Ok(())
    }

    /// Too many handshakes for one turn.
    fn defer(&mut self, endpoint: &Endpoint, now: Instant, from: RecvMeta, datagram: &[u8]) {
        let source = endpoint.admission().source_of(from.remote.ip());
        let stray = Stray {
            from,
            datagram: datagram.to_vec(),
        };
        if self.newcomers.push(now, source, stray) {
            count(&self.link.counts.clients_deferred);
        } else {
            // The client will send it again.
            count(&self.link.counts.clients_dropped);
        }
    }

    /// Datagrams that other shards passed on.
    ///
    /// # Errors
    /// As [`on_routing_panic`](Self::on_routing_panic).
    pub(super) fn take_strays(
        &mut self,
        now: Instant,
        mut strays: Strays,
    ) -> Result<(), EndpointError> {
        while let Some(stray) = strays.pop() {
            let room = self.has_room_for_client();
            self.take_copy(now, stray, room)?;
        }
        Ok(())
    }

    /// Clients that waited begin, as far as this turn has room.
    ///
    /// # Errors
    /// As [`on_routing_panic`](Self::on_routing_panic).
    pub(super) fn welcome(&mut self, now: Instant) -> Result<(), EndpointError> {
        while self.begun < CLIENTS_PER_TURN
            && let Some(stray) = self.newcomers.pop()
        {
            self.take_copy(now, stray, true)?;
        }
        self.begun = 0;
        Ok(())
    }

    fn take_copy(
        &mut self,
        now: Instant,
        mut stray: Stray,
        room: bool,
    ) -> Result<(), EndpointError> {
        let link = self.link.clone();
        let unix_now = Clock::unix_seconds();
        let Stray { from, datagram } = &mut stray;
        let routed = catch(|| {
            let mut endpoint = link.endpoint();
            self.route(&mut endpoint, now, unix_now, *from, datagram, room)
        });
        let handle = match routed {
            Ok(handle) => {
                self.on_routed();
                handle
            }
            Err(panic) => {
                self.on_routing_panic(panic)?;
                None
            }
        };
        let Some(handle) = handle else { return Ok(()) };
        if self.backlog.has(handle) {
            // Not before what arrived earlier.
            self.keep(handle, *from, datagram);
        } else if let Some(shared) = self.shared(handle) {
            let _ = shared.visit(Stage::Receive, |state| {
                state.quic.receive(now, *from, datagram);
            });
        }
        Ok(())
    }

    /// A client begins, if the application wants one.
    fn let_in(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        from: RecvMeta,
        incoming: Incoming,
    ) -> Option<ConnectionHandle> {
        if self.closing.is_some() || self.admit(&incoming) == Admission::Refuse {
            endpoint.refuse(&incoming, &mut self.response);
            self.answer(from);
            return None;
        }
        self.begun = self.begun.saturating_add(1);
        if let Some(source) = endpoint.admission().source_of(from.remote.ip()) {
            self.newcomers.has_begun(now, source);
        }
        let accepted = match self.narrow_config() {
            Some(config) => endpoint.accept_with(now, incoming, config),
            None => endpoint.accept(now, incoming),
        };
        let (handle, mut connection) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                let remote = from.remote;
                match warnings::about_client() {
                    Some(left_out) => {
                        tracing::warn!(%error, %remote, left_out, "TLS would not begin with a client");
                    }
                    None => tracing::debug!(%error, %remote, "TLS would not begin with a client"),
                }
                return None;
            }
        };
        let (house, link) = (self.house.clone(), self.link.clone());
        let shared = catch(move || {
            house.observe(&mut connection);
            let http = house.http(&connection, handle, now, None);
            Shared::new(connection, handle, link, http)
        });
        match shared {
            Ok(shared) => {
                self.house.population.add();
                self.insert(shared, Role::Server);
                Some(handle)
            }
            Err(panic) => {
                tracing::error!(%panic, remote = %from.remote, "a connection could not begin");
                self.link.count_panic();
                endpoint.on_event(handle, EndpointEvent::Drained);
                None
            }
        }
    }

    /// Whether a client is welcome. An application that cannot tell has not said so.
    fn admit(&self, incoming: &Incoming) -> Admission {
        if !self.house.has_backlog() {
            count(&self.link.counts.backlog_refusals);
            return Admission::Refuse;
        }
        catch(|| self.house.admit(incoming.remote())).unwrap_or_else(|panic| {
            tracing::error!(%panic, remote = %incoming.remote(), "a client could not be judged");
            self.link.count_panic();
            Admission::Refuse
        })
    }

    fn answer(&self, from: RecvMeta) {
        let socket = self.socket.get_ref();
        if !answer(&**socket, from.remote, from.local_ip, &self.response) {
            count(&self.link.counts.answers_dropped);
        }
    }
}
