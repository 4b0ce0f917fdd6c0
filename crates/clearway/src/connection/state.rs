//! The state of a connection under its lock, and the tasks that wait for its streams.

use std::collections::VecDeque;
use std::task::Waker;

use clearway_quic::connection::{Connection, ConnectionError, Event};
use clearway_quic::error::Code;
use clearway_quic::stream::{Directionality, StreamEvent, StreamId};
use clearway_quic::{Instant, Role};
use rustc_hash::FxHashMap;

use super::wakeups::{Signal, Wakeups, available};
use crate::endpoint::budget::BufferLimit;
use crate::http::layer::{HttpLayer, HttpView};
use crate::http::requests::ArrivedRequest;
use crate::log_limit;
use crate::shard::ShardLink;
use crate::slice::slice_of;
use crate::spans::ConnectionSpan;

/// The minimum charged for a connection, in bytes: an idle one holds 8.2 KiB, or 11.2 KiB over
/// HTTP/3; tables, tasks and the allocator take the rest.
const IDLE_MEMORY: usize = 16 << 10;

/// The minimum during its handshake, in bytes; TLS holds some 20 KiB of it.
const HANDSHAKE_MEMORY: usize = 40 << 10;

/// The memory beside the transport and HTTP/3, in bytes: locks, tables, tasks.
const OVERHEAD: usize = 4 << 10;

/// Most tasks that are woken at once to open streams.
const MAX_OPENERS_WOKEN: u64 = 64;

/// How a sending half ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendEnd {
    /// Everything was acknowledged.
    Delivered,
    /// The peer stopped reading it, with this code.
    Stopped(u64),
}

/// The state of a sending half that has a handle or is not delivered yet.
#[derive(Debug, Default)]
pub(crate) struct SendSlot {
    pub(crate) writer: Option<Waker>,
    pub(crate) watchers: Vec<Waker>,
    pub(crate) end: Option<SendEnd>,
    /// The handle was dropped after `finish`, and delivery is pending.
    pub(crate) detached: bool,
}

/// The result of accepting a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    Stream(StreamId),
    /// There is one, but what was accepted before gets its turn first.
    Later,
    None,
}

/// How many events of a connection's streams are dispatched in one turn of the event loop.
#[derive(Debug)]
pub(crate) struct EventSlice {
    /// `None` before the first dispatch.
    left: Option<usize>,
    busy: u8,
}

impl EventSlice {
    /// A slice for a turn in which `busy` connections have work.
    pub(crate) fn beside(busy: u8) -> Self {
        Self { left: None, busy }
    }

    /// A slice without a limit.
    pub(crate) fn unlimited() -> Self {
        Self {
            left: Some(usize::MAX),
            busy: 0,
        }
    }

    /// Whether events were left for the next turn.
    pub(crate) fn is_used_up(&self) -> bool {
        self.left == Some(0)
    }

    fn has_room(&mut self, state: &State) -> bool {
        let left = self.left.get_or_insert_with(|| {
            // Requests are taken in slices anyway.
            if state.http.is_some() && state.quic.role() == Role::Server {
                usize::MAX
            } else {
                slice_of(state.quic.open_streams(), self.busy)
            }
        });
        *left > 0
    }

    /// Counts an event that may wake a task.
    fn count(&mut self, event: &Event) {
        if let Event::Stream(StreamEvent::Readable(_) | StreamEvent::Writable(_)) = event
            && let Some(left) = &mut self.left
        {
            *left = left.saturating_sub(1);
        }
    }
}

/// What a connection was doing when it last had a turn.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Activity {
    /// When it last transferred data.
    pub(crate) last: Instant,
    /// Bytes of stream data transferred in both directions.
    pub(crate) moved: u64,
    /// A request or a stream is open, or the handshake is incomplete.
    pub(crate) busy: bool,
    /// The handshake is complete, and the peer has acknowledged nothing since.
    pub(crate) unanswered: bool,
}

/// The state of a connection, under its lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) quic: Connection,
    /// Why the connection ended.
    pub(crate) error: Option<Box<ConnectionError>>,
    pub(crate) connected: bool,
    /// The sending halves that have a handle or are not delivered yet.
    pub(crate) sends: FxHashMap<StreamId, SendSlot>,
    /// The tasks that wait to read, by stream.
    pub(crate) readers: FxHashMap<StreamId, Waker>,
    /// HTTP/3, on endpoints that speak it.
    http: Option<Box<HttpLayer>>,
    pub(super) span: ConnectionSpan,
    /// All handles were dropped.
    pub(super) orphaned: bool,
    /// How many streams may be accepted before other tasks run: one more than are left of the
    /// [slice](slice_of), or 0 before it begins.
    accepts_left: u8,
    /// Tasks that were woken to open a stream and have not yet, by directionality.
    openers_woken: OpenersWoken,
    /// The bytes of the transport's buffers that are charged.
    pub(super) buffered: u32,
    /// The other memory when it was last measured, in bytes, and the second of that.
    other_memory: u32,
    other_memory_checked: u32,
    /// How much it may buffer.
    buffer_limit: BufferLimit,
    /// Where a test makes it panic.
    #[cfg(feature = "testing")]
    pub(crate) fault: Option<super::Stage>,
}

#[derive(Debug, Default)]
struct OpenersWoken {
    bidirectional: u8,
    unidirectional: u8,
}

impl OpenersWoken {
    fn get_mut(&mut self, directionality: Directionality) -> &mut u8 {
        match directionality {
            Directionality::Bidirectional => &mut self.bidirectional,
            Directionality::Unidirectional => &mut self.unidirectional,
        }
    }
}

impl State {
    pub(super) fn new(quic: Connection, http: Option<Box<HttpLayer>>) -> Self {
        Self {
            span: ConnectionSpan::begin(&quic),
            quic,
            error: None,
            connected: false,
            sends: FxHashMap::default(),
            readers: FxHashMap::default(),
            http,
            orphaned: false,
            accepts_left: 0,
            openers_woken: OpenersWoken::default(),
            buffered: 0,
            buffer_limit: BufferLimit::Configured,
            other_memory: 0,
            other_memory_checked: 0,
            #[cfg(feature = "testing")]
            fault: None,
        }
    }

    /// Returns when to wake up and call [`Self::handle_timeout`].
    pub(crate) fn next_wakeup(&self) -> Option<Instant> {
        let http = self.http.as_ref().and_then(|http| http.next_timeout());
        let quic = self.quic.next_wakeup();
        [quic, http].into_iter().flatten().min()
    }

    /// Handles timeouts that are due; [`Self::dispatch`] has to follow.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.quic.next_timeout().is_some_and(|at| at <= now) {
            self.quic.handle_timeout(now);
        }
        if let Some(http) = &mut self.http {
            http.handle_timeout(now, &mut self.quic);
        }
    }

    /// Dispatches the connection's events to the tasks that wait for them: all of them, or those
    /// of streams only until the slice is used up.
    pub(crate) fn dispatch(
        &mut self,
        link: &ShardLink,
        now: Instant,
        wakeups: &mut Wakeups,
        slice: &mut EventSlice,
    ) {
        while slice.has_room(self)
            && let Some(event) = self.quic.poll_event()
        {
            slice.count(&event);
            if let Some(http) = &mut self.http {
                http.on_event(&mut self.quic, &event);
            }
            match event {
                Event::Connected => {
                    self.connected = true;
                    wakeups.raise(Signal::Connected);
                }
                Event::Stream(event) if self.http.is_none() || self.has_own_streams() => {
                    self.dispatch_stream(event, wakeups);
                }
                Event::DatagramReceived => wakeups.raise(Signal::Datagram),
                Event::Closed(error) => self.fail(error, wakeups),
                // HTTP/3 has received the events of its streams above.
                Event::Stream(_)
                | Event::Confirmed
                | Event::PathChanged { .. }
                | Event::ZeroRttRejected => {}
            }
        }
        self.settle_http(now, wakeups);
        if self.quic.take_datagram_writable() {
            wakeups.raise(Signal::DatagramRoom);
        }
        if self.quic.take_rested() {
            self.release_memory();
        }
        self.close_if_abandoned(link, now);
    }

    /// Frees what nobody can use any more, if the connection has ended and no handle is left:
    /// it drains for three PTOs, in which a server may end thousands of others.
    pub(super) fn release_if_ended(&mut self) {
        if self.error.is_none() || !self.orphaned {
            return;
        }
        self.quic.release_ended();
        self.sends = FxHashMap::default();
        self.readers = FxHashMap::default();
        if let Some(http) = &mut self.http {
            http.release_memory();
        }
    }

    /// Writes what HTTP/3 has to send, and wakes tasks.
    pub(super) fn settle_http(&mut self, now: Instant, wakeups: &mut Wakeups) {
        let Some(http) = &mut self.http else { return };
        #[cfg(feature = "testing")]
        super::Stage::Http.panic_if_injected(self.fault);
        http.settle(now, &mut self.quic, wakeups);
        let ended = http.take_ended_streams();
        for id in ended {
            wakeups.wake(self.readers.remove(&id));
            let gone = clearway_http3::Code::WEBTRANSPORT_SESSION_GONE.0;
            self.end_send(id, SendEnd::Stopped(gone), wakeups);
        }
    }

    /// Whether the application has streams of its own beside HTTP/3 (WebTransport), or waits to
    /// open one.
    fn has_own_streams(&self) -> bool {
        let waits = self.http.as_ref().is_some_and(|http| http.has_sessions());
        waits || !self.sends.is_empty() || !self.readers.is_empty()
    }

    /// Releases memory kept for reuse, as the transport has just done.
    fn release_memory(&mut self) {
        self.sends.shrink_to_fit();
        self.readers.shrink_to_fit();
        if let Some(http) = &mut self.http {
            http.release_memory();
        }
    }

    fn dispatch_stream(&mut self, event: StreamEvent, wakeups: &mut Wakeups) {
        match event {
            StreamEvent::Opened(Directionality::Bidirectional) => wakeups.raise(Signal::OpenedBi),
            StreamEvent::Opened(Directionality::Unidirectional) => wakeups.raise(Signal::OpenedUni),
            StreamEvent::StreamsAvailable(directionality) => {
                wakeups.raise_for(
                    available(directionality),
                    self.openers_to_wake(directionality),
                );
            }
            StreamEvent::Readable(id) => wakeups.wake(self.readers.remove(&id)),
            StreamEvent::Writable(id) => {
                let slot = self.sends.get_mut(&id);
                wakeups.wake(slot.and_then(|slot| slot.writer.take()));
            }
            StreamEvent::Finished(id) => self.end_send(id, SendEnd::Delivered, wakeups),
            StreamEvent::Stopped { id, code } => self.end_send(id, SendEnd::Stopped(code), wakeups),
        }
    }

    /// Accepts a stream that the peer opened, if `busy` connections of the shard have work.
    pub(super) fn accept(&mut self, directionality: Directionality, busy: u8) -> Accepted {
        if self.accepts_left == 1 {
            self.accepts_left = 0;
            if self.quic.acceptable(directionality) > 0 {
                return Accepted::Later;
            }
        }
        if self.accepts_left == 0 {
            let slice = slice_of(self.quic.open_streams(), busy);
            self.accepts_left = u8::try_from(slice).unwrap_or(u8::MAX).saturating_add(1);
        }
        let Some(id) = self.quic.accept(directionality) else {
            self.accepts_left = 0;
            return Accepted::None;
        };
        self.accepts_left = self.accepts_left.saturating_sub(1);
        if directionality == Directionality::Bidirectional {
            self.sends.insert(id, SendSlot::default());
        }
        Accepted::Stream(id)
    }

    /// Returns how many tasks to wake for the streams that can be opened. They are woken
    /// together, because one after the other would send a datagram each. At least one is
    /// woken, to reach the limit: otherwise there is no event when it is raised.
    fn openers_to_wake(&mut self, directionality: Directionality) -> u8 {
        let count = self
            .quic
            .openable(directionality)
            .clamp(1, MAX_OPENERS_WOKEN) as u8;
        *self.openers_woken.get_mut(directionality) = count;
        count
    }

    /// Opens a stream. Returns also how many more tasks to wake, once all that were woken
    /// before have opened theirs.
    pub(crate) fn open(&mut self, directionality: Directionality) -> Option<(StreamId, u8)> {
        let id = self.quic.open(directionality)?;
        self.sends.insert(id, SendSlot::default());
        let openers_woken = self.openers_woken.get_mut(directionality);
        *openers_woken = openers_woken.saturating_sub(1);
        let next = if *openers_woken == 0 {
            self.openers_to_wake(directionality)
        } else {
            0
        };
        Some((id, next))
    }

    fn end_send(&mut self, id: StreamId, end: SendEnd, wakeups: &mut Wakeups) {
        let Some(slot) = self.sends.get_mut(&id) else {
            return;
        };
        slot.end.get_or_insert(end);
        wakeups.wake(slot.writer.take());
        wakeups.wake_all(&mut slot.watchers);
        if slot.detached {
            self.sends.remove(&id);
        }
    }

    /// Logs why the connection ends. A client's application gets the error from its calls; on a
    /// server the log may be the only place. Clients can cause these at will, so warnings are
    /// [limited](log_limit::client_warning).
    fn log_end(&self, error: &ConnectionError) {
        let violation = match error {
            ConnectionError::Transport(error) | ConnectionError::PeerTransport(error) => {
                error.code != Code::NO_ERROR
            }
            _ => false,
        };
        let remote = self.quic.remote_address();
        let handshake = if self.connected { "complete" } else { "failed" };
        let warns = violation && self.quic.role() == Role::Server;
        match warns.then(log_limit::client_warning).flatten() {
            Some(0) => {
                tracing::warn!(%remote, handshake, %error, "connection closed with an error");
            }
            Some(suppressed) => {
                tracing::warn!(%remote, handshake, %error, suppressed, "connection closed with an error");
            }
            None => tracing::debug!(%remote, handshake, %error, "connection closed"),
        }
    }

    /// Whether the connection was closed by this end because of what the peer sent after its
    /// handshake.
    pub(crate) fn peer_at_fault(&self) -> bool {
        self.connected
            && match self.error.as_deref() {
                Some(ConnectionError::Transport(error)) => error.code.blames_peer(),
                Some(ConnectionError::LocalApplication { code }) => {
                    self.http.is_some() && clearway_http3::Code(*code).blames_peer()
                }
                _ => false,
            }
    }

    /// Ends the connection with an error, and wakes all tasks that wait.
    pub(crate) fn fail(&mut self, error: ConnectionError, wakeups: &mut Wakeups) {
        let first = self.error.is_none().then(|| error.clone());
        self.error.get_or_insert_with(|| Box::new(error));
        wakeups.raise_all();
        self.readers
            .drain()
            .for_each(|(_, waker)| wakeups.wake(Some(waker)));
        for slot in self.sends.values_mut() {
            wakeups.wake(slot.writer.take());
            wakeups.wake_all(&mut slot.watchers);
        }
        if let Some(http) = &mut self.http {
            http.fail(wakeups);
        }
        // Last, because reading the address may panic after a panic.
        if let Some(error) = first {
            self.log_end(&error);
            self.span.record_end(&error);
            self.release_if_ended();
        }
    }

    /// Returns HTTP/3 on this connection for a call; `None` if it does not speak it.
    pub(crate) fn http_view(&mut self) -> Option<HttpView<'_>> {
        Some(HttpView {
            layer: self.http.as_deref_mut()?,
            quic: &mut self.quic,
            lost: self.error.as_deref(),
            sends: &mut self.sends,
        })
    }

    /// Takes a [slice](slice_of) of the HTTP requests that have arrived.
    pub(crate) fn take_requests(&mut self, busy: u8) -> VecDeque<ArrivedRequest> {
        let http = self.http.as_deref_mut();
        let slice = slice_of(self.quic.open_streams(), busy);
        http.map(|http| http.take_arrived(slice))
            .unwrap_or_default()
    }

    /// Whether no HTTP request is in progress or undelivered.
    pub(crate) fn http_is_idle(&self) -> bool {
        self.http.as_ref().is_none_or(|http| http.is_idle())
    }

    /// Whether an HTTP request may be sent, now or when the server has room.
    pub(crate) fn takes_requests(&self) -> bool {
        self.error.is_none() && self.http.as_ref().is_some_and(|http| !http.is_going_away())
    }

    /// Whether an HTTP request may be sent before the handshake is complete.
    pub(crate) fn takes_early_requests(&self) -> bool {
        let http = self.http.as_ref();
        self.quic.has_zero_rtt() && http.is_some_and(|http| http.has_remembered_settings())
    }

    /// Lets the connection buffer up to `limit` in each direction.
    pub(crate) fn set_buffer_limit(&mut self, limit: BufferLimit) {
        if std::mem::replace(&mut self.buffer_limit, limit) != limit {
            self.quic.limit_buffers(limit.bytes(), limit.bytes());
        }
    }

    /// Returns the bytes that are buffered: the transport's, and datagrams of HTTP tunnels.
    pub(super) fn buffered_bytes(&self) -> usize {
        let datagrams = self.http.as_ref().map_or(0, |http| http.datagram_bytes());
        self.quic.buffered().saturating_add(datagrams)
    }

    /// Returns the memory of the connection beside its buffers, in bytes: the usual
    /// minimum, or while memory is `tight` what was measured in the last second, if that is
    /// more.
    pub(super) fn other_memory(&mut self, now: Instant, tight: bool) -> usize {
        // Once in each second of the endpoint's time.
        let second = now.saturating_since(Instant::ZERO).as_secs();
        let second = u32::try_from(second).unwrap_or(u32::MAX);
        if tight && (self.other_memory == 0 || self.other_memory_checked != second) {
            self.other_memory_checked = second;
            let http = self.http.as_ref().map_or(0, |http| http.memory());
            let whole = self.quic.memory().saturating_add(http);
            let other_memory = whole.saturating_sub(self.buffered_bytes());
            let other_memory = other_memory.saturating_add(OVERHEAD);
            self.other_memory = u32::try_from(other_memory).unwrap_or(u32::MAX);
        }
        let least = if self.quic.is_handshaking() {
            HANDSHAKE_MEMORY
        } else {
            IDLE_MEMORY
        };
        least.max(self.other_memory as usize)
    }

    /// Returns its activity, for the choice which connection to evict. A connection that has
    /// ended counts as not active.
    pub(crate) fn activity(&self) -> Activity {
        if self.error.is_some() {
            return Activity::default();
        }
        let streams = || match &self.http {
            Some(http) => !http.is_idle(),
            None => self.quic.open_streams() > 0,
        };
        Activity {
            last: self.quic.last_activity(),
            moved: self.quic.stream_bytes_moved(),
            busy: !self.connected || streams(),
            unanswered: self.connected && !self.quic.has_been_acknowledged(),
        }
    }

    /// Returns whether the peer has what the application has ended. Data that it may still add
    /// to, and what the peer sends, do not count.
    fn is_delivered(&self) -> bool {
        let http = self.http.as_ref();
        !self.quic.has_undelivered() && !http.is_some_and(|http| http.has_unsent_messages())
    }

    /// Closes the connection if no handle is left and everything is delivered, or if its endpoint
    /// is being closed and what was ended is delivered.
    pub(super) fn close_if_abandoned(&mut self, link: &ShardLink, now: Instant) {
        if self.error.is_some() {
            return;
        }
        let abandoned = self.orphaned && self.sends.is_empty() && self.http_is_idle();
        if abandoned || link.is_lingering() && self.is_delivered() {
            let (code, reason) = match (link.closed_with(), &self.http) {
                (Some(close), _) => (close.code, &close.reason[..]),
                (None, Some(_)) => (clearway_http3::Code::NO_ERROR.0, &b""[..]),
                (None, None) => (0, &b""[..]),
            };
            self.quic.close(now, code, reason);
        }
    }
}
