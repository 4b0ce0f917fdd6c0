//! The connections of a shard, and operations that concern all of them.

use std::sync::Arc;
use std::time::Duration;

use clearway_quic::connection::{ConnectionError, EndpointEvent};
use clearway_quic::endpoint::{ConnectionHandle, Postponed};
use clearway_quic::error::{Code, TransportError};
use clearway_quic::{Instant, Role};
use clearway_udp::SteeringKey;
use rustc_hash::FxHashMap;

use super::async_socket::AsyncSocket;
use super::backlog::Backlog;
use super::chores::{Chore, Chores, Leisure};
use super::deadlines::{DeadlineSlot, Deadlines};
use super::eviction::EvictionState;
use super::handshake_pace::{HandshakePace, is_recent};
use super::lingering::Lingering;
use super::link::{CloseAll, CloseWhen, ShardLink};
use super::overdue::Overdue;
use super::pending_clients::PendingClients;
use super::scheduler::{Pressure, Scheduler, TimeAccount};
use super::transmitter::Transmitter;
use crate::connection::{Activity, ConnectionShared, Stage, State, Wakeups};
use crate::endpoint::EndpointShared;
use crate::error::EndpointError;
use crate::panic::catch;

/// The shard's entry of one connection.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) shared: Arc<ConnectionShared>,
    /// Our role in the connection.
    pub(super) role: Role,
    /// How much of the event loop's time it has used.
    pub(super) account: TimeAccount,
    pub(super) deadline: DeadlineSlot,
    /// Accepted, but not passed to the application yet.
    pub(super) unannounced: bool,
    /// Its source was an [offender](super::offenders) when it began.
    pub(super) of_offender: bool,
    pub(super) activity: Activity,
    /// It is among those whose timers [wait](super::overdue).
    pub(super) is_overdue: bool,
}

impl Entry {
    /// Whether this is a client that has acknowledged nothing since its handshake.
    pub(super) fn is_silent_client(&self) -> bool {
        self.role == Role::Server && self.activity.unanswered
    }
}

/// What is known of the source of a connection when it begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SourceStanding {
    /// Many connections came from it lately.
    pub(super) has_many: bool,
    /// Several of its connections ended with errors of their own.
    pub(super) is_offender: bool,
}

/// The index of a shard, and the key that steers datagrams to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) index: usize,
    pub(crate) key: SteeringKey,
}

/// How long after the turn of a favored connection its next datagram is expected.
pub(super) const FAVORED_WINDOW: Duration = Duration::from_millis(8);

/// Connections and clients that wait from which on a turn for all of them is long.
const CROWD: usize = 8;

/// The state of a shard, except its receive buffers.
pub(super) struct Connections {
    pub(super) link: Arc<ShardLink>,
    pub(super) socket: AsyncSocket,
    pub(super) transmitter: Transmitter,
    pub(super) deadlines: Deadlines,
    pub(super) overdue: Overdue,
    pub(super) eviction: EvictionState,
    pub(super) endpoint_shared: Arc<EndpointShared>,
    pub(super) position: Position,
    pub(super) table: FxHashMap<ConnectionHandle, Entry>,
    pub(super) scheduler: Scheduler,
    pub(super) chores: Chores,
    pub(super) backlog: Backlog,
    /// Bytes of the backlog that are charged to the memory budget.
    pub(super) backlog_counted: usize,
    pub(super) wakeups: Wakeups,
    pub(super) endpoint_events: Vec<EndpointEvent>,
    /// Buffer for responses without a connection.
    pub(super) response: Vec<u8>,
    pub(super) pending_clients: PendingClients<Postponed>,
    pub(super) handshake_pace: HandshakePace,
    /// How much was left in the socket when it was last read.
    pub(super) pressure: Pressure,
    /// When a favored connection last had a turn.
    pub(super) favored_at: Option<Instant>,
    /// Handshakes begun in this turn.
    pub(super) begun: usize,
    pub(super) closing: Option<CloseAll>,
    /// Until when connections may deliver what is left, before they are closed.
    pub(super) lingering: Option<Lingering>,
    /// Connections that have ended but are still counted.
    pub(super) ended: usize,
    /// Consecutive panics while datagrams were routed.
    pub(super) routing_panics: u32,
    /// Datagrams left for which a test makes routing panic.
    #[cfg(feature = "testing")]
    pub(super) routing_faults: u32,
}

impl Connections {
    pub(super) fn new(
        link: Arc<ShardLink>,
        socket: AsyncSocket,
        endpoint_shared: Arc<EndpointShared>,
        position: Position,
    ) -> Self {
        Self {
            link,
            socket,
            transmitter: Transmitter::new(),
            deadlines: Deadlines::default(),
            overdue: Overdue::default(),
            eviction: EvictionState::default(),
            endpoint_shared,
            position,
            table: FxHashMap::default(),
            scheduler: Scheduler::default(),
            chores: Chores::default(),
            backlog: Backlog::default(),
            backlog_counted: 0,
            wakeups: Wakeups::default(),
            endpoint_events: Vec::new(),
            response: Vec::with_capacity(1500),
            pending_clients: PendingClients::new(
                u64::from(position.key.k0) << 32 | u64::from(position.key.k1),
            ),
            handshake_pace: HandshakePace::default(),
            pressure: Pressure::default(),
            favored_at: None,
            begun: 0,
            closing: None,
            lingering: None,
            ended: 0,
            routing_panics: 0,
            #[cfg(feature = "testing")]
            routing_faults: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Whether there is work to do without waiting.
    pub(super) fn has_work(&self) -> bool {
        self.may_begin_handshakes()
            || !self.overdue.is_empty() && self.timeouts_resume_at().is_none()
            || !self.scheduler.is_empty() && !self.transmitter.is_blocked()
    }

    /// Whether the handshake of a waiting client may begin now.
    fn may_begin_handshakes(&self) -> bool {
        !self.pending_clients.is_empty() && self.handshakes_resume_at().is_none()
    }

    /// Whether the next look at the socket is urgent: connections download or upload, a favored one is served
    /// among many others, or more was in the socket than could be read in the time for it.
    pub(super) fn must_hurry(&self, now: Instant) -> bool {
        self.pressure == Pressure::Overrun
            || self.handshake_pace.is_beside_bulk(now)
            || self.is_beside_favored(now)
    }

    /// Whether a favored connection had a turn lately, and others wait that would delay its next one.
    fn is_beside_favored(&self, now: Instant) -> bool {
        let waiting = [
            self.scheduler.prompt(),
            self.scheduler.waiting(),
            self.pending_clients.len(),
        ];
        waiting.into_iter().sum::<usize>() >= CROWD
            && is_recent(self.favored_at, now, FAVORED_WINDOW)
    }

    /// Returns what this turn may do besides serving favored connections.
    pub(super) fn leisure(&mut self, now: Instant) -> Leisure {
        if !self.must_hurry(now) {
            return Leisure::Ample;
        }
        let mut chores = std::mem::take(&mut self.chores);
        let chore = chores.next(|chore| match chore {
            Chore::Prompt => self.scheduler.prompt() > 0,
            Chore::Round => self.scheduler.waiting() > 0,
            Chore::Handshakes => self.may_begin_handshakes(),
            Chore::Handlers => self.link.turns.has_waiting(),
        });
        self.chores = chores;
        Leisure::Only(chore)
    }

    /// Returns when a waiting client's handshake may begin, if that is later.
    pub(super) fn handshakes_resume_at(&self) -> Option<Instant> {
        if self.pending_clients.is_empty() {
            return None;
        }
        let now = self.link.clock.now();
        let pause = self.handshake_pace.pause(now);
        pause.max(self.pending_clients.resume_at(now))
    }

    /// Returns when the next timeout of a silent client may be handled, if that is later.
    pub(super) fn timeouts_resume_at(&self) -> Option<Instant> {
        if self.overdue.is_empty() {
            return None;
        }
        self.handshake_pace.pause(self.link.clock.now())
    }

    pub(super) fn shared(&self, handle: ConnectionHandle) -> Option<&ConnectionShared> {
        Some(&self.table.get(&handle)?.shared)
    }

    /// Works on a connection, and gives it a turn, in which its end is noticed if it panicked.
    pub(super) fn with_state(
        &mut self,
        handle: ConnectionHandle,
        stage: Stage,
        act: impl FnOnce(&mut State),
    ) {
        if let Some(shared) = self.shared(handle) {
            // A panic was logged where it was caught.
            let _ = shared.with_state(stage, act);
            self.mark_ready(handle);
        }
    }

    /// Queues the connection for a turn.
    pub(super) fn mark_ready(&mut self, handle: ConnectionHandle) {
        if let Some(entry) = self.table.get_mut(&handle) {
            self.scheduler.push(handle, &mut entry.account);
        }
    }

    /// Ends handshakes that take too long while there are many.
    pub(super) fn expire_handshakes(&mut self, now: Instant) {
        loop {
            let overdue = self.link.endpoint().next_overdue(now);
            let Some(handle) = overdue else {
                return;
            };
            self.with_state(handle, Stage::Timeout, |state| {
                state.quic.expire_handshake(now);
            });
            self.mark_ready(handle);
        }
    }

    /// Tells the connection that sent the packet whose beginning is `quoted` that its server's
    /// port is closed.
    pub(super) fn on_port_unreachable(&mut self, quoted: &[u8]) {
        let sender = self.link.endpoint().find_quoted(quoted);
        if let Some(handle) = sender {
            self.with_state(handle, Stage::Timeout, |state| {
                state.quic.on_port_unreachable();
            });
        }
    }

    /// Takes over a connection that a handle has begun.
    pub(super) fn adopt(&mut self, now: Instant, shared: Arc<ConnectionShared>) {
        let handle = shared.handle;
        self.insert(shared, Role::Client, SourceStanding::default());
        if let Some(close) = self.closing.clone() {
            self.with_state(handle, Stage::Call, |state| {
                state.quic.close(now, close.code, &close.reason);
            });
        }
    }

    /// Adds a connection.
    pub(super) fn insert(
        &mut self,
        shared: Arc<ConnectionShared>,
        role: Role,
        source: SourceStanding,
    ) {
        let handle = shared.handle;
        let accepted = role == Role::Server;
        if source.has_many {
            shared.set_of_busy_source();
        }
        self.table.insert(
            handle,
            Entry {
                shared,
                account: self.scheduler.account(source.has_many),
                role,
                deadline: DeadlineSlot::default(),
                unannounced: accepted,
                of_offender: source.is_offender,
                activity: Activity {
                    last: self.link.clock.now(),
                    moved: 0,
                    busy: true,
                    unanswered: false,
                },
                is_overdue: false,
            },
        );
        self.mark_ready(handle);
    }

    /// Handles the timeouts that are due.
    pub(super) fn handle_timeouts(&mut self, now: Instant) {
        while let Some(handle) = self.deadlines.pop(now) {
            let Some(entry) = self.table.get_mut(&handle) else {
                continue;
            };
            if !self.deadlines.is_due(handle, &mut entry.deadline, now) {
                continue;
            }
            if entry.is_silent_client() {
                self.overdue.push(handle, &mut entry.is_overdue);
            } else {
                self.with_state(handle, Stage::Timeout, |state| state.handle_timeout(now));
            }
        }
        self.handle_overdue(now);
    }

    /// Handles some of the timeouts of silent clients.
    fn handle_overdue(&mut self, now: Instant) {
        let clients_wait = self.pending_clients.has_ordinary();
        for _ in 0..self.handshake_pace.timeouts_per_turn(now, clients_wait) {
            let Some(handle) = self.overdue.pop() else {
                return;
            };
            let Some(entry) = self.table.get_mut(&handle) else {
                continue;
            };
            entry.is_overdue = false;
            let began = self.link.clock.now();
            self.with_state(handle, Stage::Timeout, |state| state.handle_timeout(now));
            let ended = self.link.clock.now();
            self.handshake_pace.on_timeout(began, ended);
        }
    }

    /// Returns when a connection next has to be called.
    pub(super) fn next_deadline(&mut self) -> Option<Instant> {
        loop {
            let (at, handle) = self.deadlines.first()?;
            let entry = self.table.get_mut(&handle);
            let refreshed =
                entry.is_some_and(|entry| self.deadlines.refresh(handle, &mut entry.deadline));
            if !refreshed {
                return Some(at);
            }
        }
    }

    /// Moves to another socket: clients migrate, and every connection gets a turn.
    pub(super) fn move_to(&mut self, now: Instant, socket: AsyncSocket) {
        self.socket = socket;
        self.transmitter.forget();
        let handles: Vec<ConnectionHandle> = self.table.keys().copied().collect();
        for handle in handles {
            self.with_state(handle, Stage::Call, |state| {
                if state.quic.role() == Role::Client
                    && let Err(error) = state.quic.migrate(now, None)
                {
                    // The server will notice the new address from the next packet.
                    tracing::debug!(%error, "cannot migrate a connection to the new socket");
                    state.quic.ping();
                }
            });
        }
    }

    /// Closes every connection, and those that are begun later.
    pub(super) fn close_all(&mut self, now: Instant, close: CloseAll) {
        if close.when == CloseWhen::Delivered {
            self.linger(now, close);
            return;
        }
        self.lingering = None;
        let handles: Vec<ConnectionHandle> = self.table.keys().copied().collect();
        for handle in handles {
            self.with_state(handle, Stage::Call, |state| {
                state.quic.close(now, close.code, &close.reason);
            });
        }
        self.closing = Some(close);
    }

    /// Refuses new clients, because no handle is left to accept them.
    pub(super) fn refuse_clients(&mut self) {
        self.closing.get_or_insert(CloseAll {
            code: 0,
            reason: Vec::new(),
            when: CloseWhen::Now,
        });
    }

    /// Stores why the loop failed, and keeps the socket for its successor.
    pub(super) fn on_failure(&self, failure: &EndpointError) {
        if matches!(failure, EndpointError::RuntimeGone) && self.closing.is_some() {
            // The usual end of a program that closes its endpoint while tasks hold handles of it.
            tracing::debug!(
                shard = self.position.index,
                "the runtime has ended after the endpoint was closed"
            );
        } else {
            tracing::error!(%failure, shard = self.position.index, "a shard has failed");
        }
        if self.link.set_failure(failure.clone()) {
            self.link.keep_socket(self.socket.handle());
        }
    }

    /// Fails all connections when the loop has ended.
    pub(super) fn fail_all(&mut self, ended: Result<(), EndpointError>) {
        let reason = match &ended {
            Ok(()) => "the endpoint's event loop has ended".to_owned(),
            Err(failure) => failure.to_string(),
        };
        let error = TransportError::new(Code::INTERNAL_ERROR, reason);
        for (_, entry) in self.table.drain() {
            let _ = entry.shared.with_state(Stage::Call, |state| {
                state.fail(ConnectionError::Transport(error.clone()), &mut self.wakeups);
            });
            entry.shared.wake(&mut self.wakeups);
            let _ = catch(|| drop(entry));
            self.endpoint_shared.connection_count.remove();
        }
        self.backlog = Backlog::default();
        self.count_backlog();
        // Handles that are left keep the link alive, and must not occupy places.
        let _ = catch(|| self.link.endpoint().forget_all());
        if let Err(failure) = ended {
            self.endpoint_shared.on_shard_failed(failure);
        }
    }
}
