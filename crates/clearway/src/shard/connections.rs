//! The connections of a shard: found, let in, served in turns, forgotten.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use clearway_quic::connection::{ConnectionError, EndpointEvent, Received, Transmit};
use clearway_quic::endpoint::{Arrival, Endpoint, Handle, Incoming};
use clearway_quic::error::{Code, TransportError};
use clearway_quic::{Instant, Role};
use clearway_udp::{SteeringKey, steering};
use rustc_hash::FxHashMap;
use tokio::io::unix::AsyncFd;

use super::deadlines::{Deadlines, Place};
use super::link::{CloseAll, Link, count};
use super::outlet::{Outlet, Sent, answer};
use super::strays::Stray;
use super::{Clock, Watched};
use crate::config::Admission;
use crate::connection::{Counted, Shared, Stage, State, Wakes};
use crate::endpoint::House;
use crate::error::EndpointError;
use crate::panic::{CaughtPanic, catch};

/// Trains one connection may send before the others get their turn.
const TRAINS_PER_TURN: usize = 4;

/// Handshakes begun per turn. At about 0.1 ms each, a flood of new clients takes
/// no more than a few milliseconds between two looks at the live connections.
const CLIENTS_PER_TURN: usize = 16;

/// Clients' first datagrams that wait for a turn with room.
const WAITING_ROOM: usize = 512;

/// Panics while datagrams were routed, with none in between that was routed without,
/// after which the shard ends. A packet that makes routing panic must not end it; when
/// every packet does, what routing works on is broken and nobody is served any more.
const ROUTING_PANICS: u32 = 1_000;

/// What the shard knows of one connection.
#[derive(Debug)]
struct Entry {
    shared: Arc<Shared>,
    /// In the queue for a turn.
    ready: bool,
    place: Place,
    /// A client's, not yet handed to the application.
    unannounced: bool,
}

/// What is to be known of a connection after its turn.
#[derive(Clone, Copy)]
struct Rest {
    deadline: Option<Instant>,
    /// The application may have it.
    usable: bool,
}

/// How a turn ended.
enum Turn {
    Over,
    /// There was a panic in the connection, now or before.
    Panicked,
}

/// How a turn goes on.
enum Step {
    /// By sending this.
    Send(Transmit),
    /// When the socket takes what it was given before.
    Wait(Rest),
    /// Not: nothing more may leave now.
    Done(Rest),
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
    pub(super) socket: AsyncFd<Watched>,
    pub(super) outlet: Outlet,
    pub(super) deadlines: Deadlines,
    house: Arc<House>,
    position: Position,
    table: FxHashMap<Handle, Entry>,
    ready: VecDeque<Handle>,
    wakes: Wakes,
    endpoint_events: Vec<EndpointEvent>,
    /// Answers that need no connection.
    response: Vec<u8>,
    /// Clients for a later turn.
    waiting: VecDeque<Stray>,
    /// Handshakes begun in this turn.
    begun: usize,
    closing: Option<CloseAll>,
    /// Connections gone in this turn of theirs, still counted.
    ended: usize,
    /// Panics while datagrams were routed, since one was routed without.
    routing_panics: u32,
    /// Datagrams whose routing is to panic.
    #[cfg(feature = "testing")]
    routing_faults: u32,
}

impl Connections {
    pub(super) fn new(
        link: Arc<Link>,
        socket: AsyncFd<Watched>,
        house: Arc<House>,
        position: Position,
    ) -> Self {
        Self {
            link,
            socket,
            outlet: Outlet::new(),
            deadlines: Deadlines::default(),
            house,
            position,
            table: FxHashMap::default(),
            ready: VecDeque::new(),
            wakes: Wakes::default(),
            endpoint_events: Vec::new(),
            response: Vec::with_capacity(1500),
            waiting: VecDeque::new(),
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
        !self.waiting.is_empty() || !self.ready.is_empty() && !self.outlet.is_blocked()
    }

    pub(super) fn shared(&self, handle: Handle) -> Option<&Shared> {
        Some(&self.table.get(&handle)?.shared)
    }

    /// Does something to a connection that then gets a turn, in which its end is noticed
    /// if it should panic.
    fn visit(&mut self, handle: Handle, stage: Stage, act: impl FnOnce(&mut State)) {
        if let Some(shared) = self.shared(handle) {
            // Why it is gone was said when it went.
            let _ = shared.visit(stage, act);
            self.mark_ready(handle);
        }
    }

    /// The connection gets a turn.
    pub(super) fn mark_ready(&mut self, handle: Handle) {
        if let Some(entry) = self.table.get_mut(&handle)
            && !std::mem::replace(&mut entry.ready, true)
        {
            self.ready.push_back(handle);
        }
    }

    /// The shard that owns a datagram, if it is not this one.
    pub(super) fn owner_elsewhere(&self, datagram: &[u8]) -> Option<usize> {
        let shards = self.house.shards();
        if shards < 2 {
            return None;
        }
        let owner = steering::shard_of(datagram, self.position.key, shards);
        (owner != self.position.index).then_some(owner)
    }

    pub(super) fn pass_on(&self, owner: usize, from: Received, datagram: &[u8]) {
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

    /// Whose datagram this is; `None` if it has been dealt with.
    pub(super) fn route(
        &mut self,
        endpoint: &mut Endpoint,
        now: Instant,
        unix_now: u64,
        from: Received,
        datagram: &[u8],
    ) -> Option<Handle> {
        #[cfg(feature = "testing")]
        if let Some(left) = self.routing_faults.checked_sub(1) {
            self.routing_faults = left;
            panic!("injected into routing");
        }
        match endpoint.receive(now, unix_now, from, datagram, &mut self.response) {
            Arrival::Connection(handle) => {
                self.mark_ready(handle);
                Some(handle)
            }
            Arrival::Incoming(_) if self.begun >= CLIENTS_PER_TURN => {
                self.defer(from, datagram);
                None
            }
            Arrival::Incoming(incoming) => self.let_in(endpoint, now, from, *incoming),
            Arrival::Respond => {
                self.answer(from);
                None
            }
            Arrival::Dropped(_) => None,
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
    fn defer(&mut self, from: Received, datagram: &[u8]) {
        if self.waiting.len() < WAITING_ROOM {
            count(&self.link.counts.clients_deferred);
            self.waiting.push_back(Stray {
                from,
                datagram: datagram.to_vec(),
            });
        } else {
            // The client will send it again.
            count(&self.link.counts.clients_dropped);
        }
    }

    /// Datagrams that were copied: clients who waited for this turn, strays.
    ///
    /// # Errors
    /// As [`on_routing_panic`](Self::on_routing_panic).
    pub(super) fn take_copies(
        &mut self,
        now: Instant,
        mut strays: super::strays::Strays,
    ) -> Result<(), EndpointError> {
        self.begun = 0;
        let waiting = self.waiting.len().min(CLIENTS_PER_TURN);
        let deferred: Vec<Stray> = self.waiting.drain(..waiting).collect();
        for stray in deferred {
            self.take_copy(now, stray)?;
        }
        while let Some(stray) = strays.pop() {
            self.take_copy(now, stray)?;
        }
        Ok(())
    }

    fn take_copy(&mut self, now: Instant, mut stray: Stray) -> Result<(), EndpointError> {
        let link = self.link.clone();
        let unix_now = Clock::unix_seconds();
        let Stray { from, datagram } = &mut stray;
        let routed = catch(|| self.route(&mut link.endpoint(), now, unix_now, *from, datagram));
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
        if let Some(shared) = handle.and_then(|handle| self.shared(handle)) {
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
        from: Received,
        incoming: Incoming,
    ) -> Option<Handle> {
        if self.closing.is_some() || self.admit(&incoming) == Admission::Refuse {
            endpoint.refuse(&incoming, &mut self.response);
            self.answer(from);
            return None;
        }
        self.begun = self.begun.saturating_add(1);
        let (handle, mut connection) = match endpoint.accept(now, incoming) {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, remote = %from.remote, "TLS would not begin with a client");
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
                self.insert(shared, true);
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
        catch(|| self.house.admit(incoming.remote())).unwrap_or_else(|panic| {
            tracing::error!(%panic, remote = %incoming.remote(), "a client could not be judged");
            self.link.count_panic();
            Admission::Refuse
        })
    }

    /// A connection that a handle began.
    pub(super) fn adopt(&mut self, now: Instant, shared: Arc<Shared>) {
        let handle = shared.handle;
        self.insert(shared, false);
        if let Some(close) = self.closing.clone() {
            self.visit(handle, Stage::Call, |state| {
                state.quic.close(now, close.code, &close.reason);
            });
        }
    }

    fn insert(&mut self, shared: Arc<Shared>, unannounced: bool) {
        let handle = shared.handle;
        self.table.insert(
            handle,
            Entry {
                shared,
                ready: true,
                place: Place::default(),
                unannounced,
            },
        );
        self.ready.push_back(handle);
    }

    fn answer(&self, from: Received) {
        let socket = self.socket.get_ref();
        if !answer(&**socket, from.remote, from.local_ip, &self.response) {
            count(&self.link.counts.answers_dropped);
        }
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

    /// Every ready connection gets one turn.
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn serve(&mut self) -> io::Result<()> {
        for _ in 0..self.ready.len() {
            let Some(handle) = self.ready.pop_front() else {
                break;
            };
            self.serve_one(handle)?;
        }
        Ok(())
    }

    fn serve_one(&mut self, handle: Handle) -> io::Result<()> {
        let Some(entry) = self.table.get_mut(&handle) else {
            return Ok(());
        };
        entry.ready = false;
        let shared = entry.shared.clone();
        shared.clear_dirty();
        let served = self.take_turn(&shared);
        if let Ok(Turn::Panicked) = served {
            self.forget_broken(&shared);
        }
        // Who waits for the last connection to end finds nothing left of it. What is
        // left may be the application's, such as its observer.
        if let Err(panic) = catch(|| drop(shared)) {
            tracing::error!(%panic, "what a connection left could not be dropped");
        }
        for _ in 0..std::mem::take(&mut self.ended) {
            self.house.population.remove();
        }
        served.map(|_| ())
    }

    /// Hands out the connection's events, sends its trains, notes its timer.
    fn take_turn(&mut self, shared: &Arc<Shared>) -> io::Result<Turn> {
        for _ in 0..TRAINS_PER_TURN {
            let now = self.link.clock.now();
            let step = shared.visit(Stage::Turn, |state| self.step(state, now));
            self.wakes.fire(shared);
            match step {
                Ok(Step::Send(train)) => {
                    // The system call is long: handles need not wait for it.
                    let sent = self.outlet.send(&**self.socket.get_ref(), &train, now);
                    self.after_send(shared, sent)?;
                }
                Ok(Step::Wait(rest)) => {
                    self.finish_turn(shared, rest);
                    self.mark_ready(shared.handle);
                    return Ok(Turn::Over);
                }
                Ok(Step::Done(rest)) => {
                    self.finish_turn(shared, rest);
                    return Ok(Turn::Over);
                }
                Err(_) => return Ok(Turn::Panicked),
            }
        }
        let Ok(rest) = shared.visit(Stage::Turn, |state| self.settle(state)) else {
            return Ok(Turn::Panicked);
        };
        self.finish_turn(shared, rest);
        self.mark_ready(shared.handle);
        Ok(Turn::Over)
    }

    /// One step of a turn, under the connection's lock.
    fn step(&mut self, state: &mut State, now: Instant) -> Step {
        state.dispatch(now, &mut self.wakes);
        if self.outlet.is_blocked() {
            if state.quic.is_transmit_due() {
                state.quic.on_scheduling_limited(now);
            }
            return Step::Wait(self.settle(state));
        }
        let segments = self.socket.get_ref().gso_segments();
        match state.quic.transmit(now, &mut self.outlet.train, segments) {
            Some(train) => Step::Send(train),
            None => {
                state.dispatch(now, &mut self.wakes);
                Step::Done(self.settle(state))
            }
        }
    }

    /// What is to be known of the connection after its turn.
    fn settle(&mut self, state: &mut State) -> Rest {
        while let Some(event) = state.quic.poll_endpoint_event() {
            self.endpoint_events.push(event);
        }
        Rest {
            deadline: state.next_timeout(),
            usable: state.connected || state.quic.has_readable_zero_rtt(),
        }
    }

    fn after_send(&mut self, shared: &Shared, sent: Sent) -> io::Result<()> {
        let now = self.link.clock.now();
        // If that should panic, the next step of the turn finds out.
        let _ = match sent {
            Sent::Taken | Sent::Dropped => return Ok(()),
            Sent::Kept => shared.visit(Stage::Turn, |state| {
                state.quic.on_scheduling_limited(now);
            }),
            Sent::TooLarge(size) => shared.visit(Stage::Turn, |state| {
                state.quic.on_datagram_too_large(now, size);
            }),
            Sent::Broken(error) => return Err(error),
        };
        Ok(())
    }

    /// The end of a connection's turn: its timer, its routes, its announcement.
    fn finish_turn(&mut self, shared: &Arc<Shared>, rest: Rest) {
        let handle = shared.handle;
        if let Some(entry) = self.table.get_mut(&handle) {
            self.deadlines.set(handle, &mut entry.place, rest.deadline);
            if entry.unannounced && rest.usable {
                entry.unannounced = false;
                self.house.accepts.push(Counted::new(shared.clone()));
            }
        }
        if !self.endpoint_events.is_empty() {
            self.apply_endpoint_events(shared);
        }
    }

    fn apply_endpoint_events(&mut self, shared: &Shared) {
        let handle = shared.handle;
        let drained = self.endpoint_events.contains(&EndpointEvent::Drained);
        let (link, events) = (self.link.clone(), &mut self.endpoint_events);
        let applied = catch(|| {
            let mut endpoint = link.endpoint();
            for event in events.drain(..) {
                endpoint.on_event(handle, event);
            }
        });
        self.endpoint_events.clear();
        match applied {
            Ok(()) if drained => self.forget(handle),
            Ok(()) => {}
            // Without its routes it would wait for what never reaches it.
            Err(panic) => shared.kill(Stage::Turn, &panic),
        }
    }

    /// The connection is gone.
    fn forget(&mut self, handle: Handle) {
        if let Some(entry) = self.table.remove(&handle) {
            self.deadlines.remove(handle, entry.place);
            self.ended = self.ended.saturating_add(1);
        }
    }

    /// There was a panic in the connection: its peer is told if that could still be
    /// written, and with a stateless reset whenever it sends something from now on.
    fn forget_broken(&mut self, shared: &Shared) {
        let handle = shared.handle;
        self.endpoint_events.clear();
        if let Some(farewell) = shared.take_farewell() {
            let (remote, local_ip) = (farewell.remote, farewell.local_ip);
            let socket = self.socket.get_ref();
            if !answer(&**socket, remote, local_ip, &farewell.datagram) {
                count(&self.link.counts.answers_dropped);
            }
        }
        let link = self.link.clone();
        let routes = catch(|| link.endpoint().on_event(handle, EndpointEvent::Drained));
        if let Err(panic) = routes {
            tracing::error!(%panic, "routes of a connection could not be removed");
            self.link
                .counts
                .routing_panics
                .fetch_add(1, Ordering::Relaxed);
        }
        self.forget(handle);
    }

    /// The socket is writable again, or should have been by now.
    ///
    /// # Errors
    /// If the socket is broken.
    pub(super) fn flush(&mut self, now: Instant) -> io::Result<()> {
        if !self.outlet.is_blocked() {
            return Ok(());
        }
        let outlet = &mut self.outlet;
        let overdue = outlet.resend_at().is_some_and(|at| at <= now);
        let mut offer = |socket: &Watched| match outlet.resend(&**socket, now) {
            Sent::Kept => Err(io::ErrorKind::WouldBlock.into()),
            // Which connection's it was is forgotten; the transport will find out by loss what
            // does not fit.
            Sent::Taken | Sent::Dropped | Sent::TooLarge(_) => Ok(()),
            Sent::Broken(error) => Err(error),
        };
        let flushed = if overdue {
            offer(self.socket.get_ref())
        } else {
            self.socket.try_io(tokio::io::Interest::WRITABLE, offer)
        };
        match flushed {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Every connection gets a turn, clients on a new path.
    pub(super) fn move_to(&mut self, now: Instant, socket: AsyncFd<Watched>) {
        self.socket = socket;
        self.outlet.forget();
        let handles: Vec<Handle> = self.table.keys().copied().collect();
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
        let handles: Vec<Handle> = self.table.keys().copied().collect();
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
        if let Err(failure) = ended {
            self.house.on_shard_failed(failure);
        }
    }
}
