//! An HTTP/3 connection, client or server.
//!
//! ```text
//! drive         transport events in, writes out, the end of the connection
//! peer_streams  the peer's unidirectional streams; control: frames on its control stream
//! receive       frames on request streams; section: field sections
//! message       decoded requests and responses; lookahead: what follows the header section
//! body          reading bodies; discard: request bodies that the application does not read
//! send          sending messages
//! close         resets, stops, GOAWAY, connection errors
//! datagrams     HTTP datagrams
//! sessions      WebTransport sessions; session_streams: their streams; session_flow: their limits
//! deadlines     the deadlines of a server
//! ```
//!
//! Every batch takes these steps: pass each event of the transport to
//! [`on_quic_event`](Connection::on_quic_event), poll [`poll_event`](Connection::poll_event) and
//! make the application's calls, then call [`flush`](Connection::flush), and then the transport's
//! `transmit`. A server also calls [`handle_timeout`](Connection::handle_timeout) at the time
//! [`next_timeout`](Connection::next_timeout).

mod body;
mod close;
mod control;
mod datagrams;
mod deadlines;
#[cfg(feature = "defects")]
mod defective;
mod discard;
mod drive;
mod instructions;
mod lookahead;
mod message;
mod peer_streams;
mod receive;
mod section;
mod send;
mod session_flow;
mod session_streams;
mod sessions;
#[cfg(not(feature = "defects"))]
mod sound;

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_quic::Role;
use clearway_quic::stream::StreamId;
use rustc_hash::FxHashMap;

use crate::count::Count;
use crate::early_datagrams::EarlyDatagrams;
use crate::error::ConnectionError;
use crate::event::Event;
use crate::exchange::Exchange;
use crate::goaway::Goaway;
use crate::limits::{Counters, Limits, RateLimits};
use crate::memory;
use crate::message_state::MessageState;
use crate::priority::Priority;
use crate::progress::Progress;
use crate::qpack::{Decoder, Encoder};
use crate::send_buffer::SendBuffer;
use crate::settings::Settings;
use crate::timeouts::Timeouts;
use crate::webtransport::{SessionLimits, WebTransport};

use discard::DiscardedRequest;

pub use datagrams::DatagramError;

/// The configuration of an endpoint, shared by its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Limits on the resources that a peer can use.
    pub limits: Limits,
    /// How long a server waits for a client.
    pub timeouts: Timeouts,
    /// Maximum size of the QPACK dynamic table in each direction, in bytes. 4 KiB, as HTTP/2's
    /// HPACK has by default.
    pub qpack_max_table_capacity: u64,
    /// Maximum number of streams that may be blocked on our dynamic table. 16.
    pub qpack_blocked_streams: u64,
    /// Whether a server accepts extended CONNECT (RFC 9220). Off, because the application has to
    /// handle it.
    pub extended_connect: bool,
    /// Whether HTTP datagrams are supported. The transport must support DATAGRAM frames (RFC 9297
    /// §2.1.1). Off, because the application has to handle them.
    pub datagrams: bool,
    /// How many WebTransport sessions a peer may open at once on a connection; 0 turns WebTransport
    /// off. Needs `datagrams`, and `extended_connect` on a server. 0, because the application has to
    /// handle them.
    pub webtransport_sessions: u16,
    /// Limits of each WebTransport session, which apply if the peer announces some too
    /// (draft-ietf-webtrans-http3-16 §5). 512 KiB of data and 100 streams of each directionality:
    /// half of what the transport allows at first, and like it the window for data grows with the
    /// reader's rate. All 0 means no flow control by session.
    pub session_limits: SessionLimits,
    /// Whether to send reserved settings, frames and streams, which the peer must ignore (RFC 9114
    /// §7.2.8). On, so that peers stay able to.
    pub grease: bool,
    /// The server's settings from the connection that made 0-RTT possible (clients; RFC 9114
    /// §7.2.4.2). The encoder does not use a dynamic table until the server's new settings arrive:
    /// if 0-RTT is rejected, its data is sent again unchanged, and must not refer to a table that
    /// the server no longer offers (RFC 9204 §3.2.3).
    pub remembered_settings: Option<Settings>,
    /// The defect of a server, for tests of what finds defects.
    #[cfg(feature = "defects")]
    pub defects: Option<crate::defects::Defects>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            timeouts: Timeouts::default(),
            qpack_max_table_capacity: 4 << 10,
            qpack_blocked_streams: 16,
            extended_connect: false,
            datagrams: false,
            webtransport_sessions: 0,
            session_limits: SessionLimits {
                data: 512 << 10,
                bidi_streams: 100,
                uni_streams: 100,
            },
            grease: true,
            remembered_settings: None,
            #[cfg(feature = "defects")]
            defects: None,
        }
    }
}

impl Config {
    /// Returns the settings to send.
    #[must_use]
    pub fn settings(&self, role: Role) -> Settings {
        Settings {
            max_field_section_size: Some(self.limits.max_field_section),
            qpack_max_table_capacity: self.qpack_max_table_capacity,
            qpack_blocked_streams: self.qpack_blocked_streams,
            enable_connect_protocol: self.extended_connect && role == Role::Server,
            h3_datagram: self.datagrams,
            webtransport_sessions: self.webtransport_sessions,
            session_limits: match self.webtransport_sessions {
                0 => SessionLimits::default(),
                _ => self.session_limits,
            },
        }
    }
}

/// The unidirectional streams that we opened.
#[derive(Debug, Default)]
struct LocalStreams {
    control: CriticalStream,
    encoder: CriticalStream,
    decoder: CriticalStream,
    /// A stream of a reserved type.
    reserved: Option<StreamId>,
}

/// A stream that must stay open for the whole connection (RFC 9114 §6.2.1, RFC 9204 §4.2).
#[derive(Debug, Default)]
struct CriticalStream {
    id: Option<StreamId>,
    send_buffer: SendBuffer,
}

/// The state of an HTTP/3 connection. It owns no I/O and no transport: every call that reads or
/// writes borrows a transport.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Arc<Config>,
    /// Selects the reserved values to send.
    grease_seed: u64,
    local_streams: LocalStreams,
    peer_streams: peer_streams::PeerStreams,
    /// The peer's settings, once they have arrived.
    peer: Option<Settings>,
    /// Whether the remembered settings apply until then.
    use_remembered: bool,
    encoder: Encoder,
    decoder: Decoder,
    requests: FxHashMap<StreamId, Exchange>,
    /// `None` while there are no such streams.
    lingering: Option<Box<Lingering>>,
    /// `None` before the first session is asked for.
    webtransport: Option<Box<WebTransport>>,
    /// The index of the first request stream that was not seen (server) or not opened (client).
    next_request: u64,
    goaway: Goaway,
    /// The client's MAX_PUSH_ID or 0, kept to check that it does not decrease.
    max_push_id: u64,
    events: VecDeque<Event>,
    rate_limits: RateLimits,
    timers: deadlines::Timers,
    instructions_wait: instructions::Wait,
    /// Whether something was written since the last flush.
    has_written: bool,
    interval: deadlines::SampleInterval,
    counters: Counters,
    state: ConnectionState,
    /// A buffer in which frames are encoded.
    scratch: Vec<u8>,
}

/// Streams that the application is done with, but the peer is not; and datagrams and priorities that
/// came before their stream.
#[derive(Debug, Default)]
struct Lingering {
    early_datagrams: EarlyDatagrams,
    /// Priorities of requests that have not arrived yet.
    early_priorities: Vec<(StreamId, Priority)>,
    /// Requests for WebTransport sessions that wait for the client's SETTINGS.
    held_sessions: Vec<Event>,
    /// Requests whose remaining data is read and discarded (server).
    discarding: FxHashMap<StreamId, DiscardedRequest>,
    /// Streams that were sent completely and wait only for the acknowledgment.
    unacknowledged: FxHashMap<StreamId, Progress>,
    /// Bytes buffered for incomplete field sections, over all streams.
    incomplete_sections: usize,
    last_sample: deadlines::LastSample,
}

/// The state of the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ConnectionState {
    Open,
    /// Failed; the next flush closes the transport.
    Failed(Box<ConnectionError>),
    Closed,
}

impl Connection {
    /// Creates the HTTP/3 state of a new connection. `seed` selects the reserved values that are
    /// sent if [`Config::grease`] is set; any number will do.
    #[must_use]
    pub fn new(role: Role, config: Arc<Config>, seed: u64) -> Self {
        Self {
            role,
            grease_seed: seed,
            local_streams: LocalStreams::default(),
            peer_streams: peer_streams::PeerStreams::default(),
            peer: None,
            use_remembered: role == Role::Client,
            encoder: Encoder::new(
                usize::try_from(config.qpack_max_table_capacity).unwrap_or(usize::MAX),
            ),
            decoder: Decoder::new(
                config.qpack_max_table_capacity,
                config.qpack_blocked_streams,
            ),
            requests: FxHashMap::default(),
            lingering: None,
            webtransport: None,
            next_request: 0,
            goaway: Goaway::default(),
            max_push_id: 0,
            events: VecDeque::new(),
            rate_limits: RateLimits::new(&config.limits),
            timers: deadlines::Timers::default(),
            instructions_wait: instructions::Wait::default(),
            has_written: false,
            interval: deadlines::SampleInterval::of(&config.timeouts),
            counters: Counters::default(),
            state: ConnectionState::Open,
            scratch: Vec::new(),
            config,
        }
    }

    /// Returns the local role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the next event, or `None` if there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The peer's settings, once they have arrived.
    #[must_use]
    pub fn peer_settings(&self) -> Option<&Settings> {
        self.peer.as_ref()
    }

    /// Returns the peer's settings that apply now: those that arrived, or else the remembered ones,
    /// or else the initial ones (RFC 9114 §7.2.4.2).
    fn allowed(&self) -> Settings {
        let remembered = self.config.remembered_settings;
        let remembered = remembered.filter(|_| self.use_remembered);
        self.peer.or(remembered).unwrap_or_default()
    }

    /// Returns the number of requests that have begun and are not complete.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        // After the close they are kept only for reading.
        if self.state == ConnectionState::Closed {
            return 0;
        }
        self.requests.len()
    }

    /// Returns the number of messages that were sent completely on streams that are no longer open,
    /// and that the peer has not acknowledged.
    #[must_use]
    pub fn unacknowledged_messages(&self) -> usize {
        let lingering = self.lingering.as_ref();
        lingering.map_or(0, |it| it.unacknowledged.len())
    }

    /// Returns whether a message that the application has ended waits for the transport to take it.
    /// Once the transport has all of it, that knows whether it was delivered.
    #[must_use]
    pub fn has_unsent_messages(&self) -> bool {
        let ended = |it: &Exchange| it.sending == MessageState::Done && !it.send_buffer.is_empty();
        self.is_open() && self.requests.values().any(ended)
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the error of a connection that has failed and is not closed yet.
    #[must_use]
    pub fn error(&self) -> Option<&ConnectionError> {
        match &self.state {
            ConnectionState::Failed(error) => Some(error),
            ConnectionState::Open | ConnectionState::Closed => None,
        }
    }

    /// Returns the memory in use, in bytes.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sums and differences of sizes in memory"
    )]
    pub fn memory(&self) -> usize {
        size_of::<Self>() - size_of::<Encoder>() - size_of::<Decoder>()
            + self.encoder.memory()
            + self.decoder.memory()
            + memory::hash_table(&self.requests)
            + self.requests.values().map(Exchange::memory).sum::<usize>()
            + self.lingering.as_ref().map_or(0, |it| it.memory())
            + self.webtransport.as_ref().map_or(0, |it| it.memory())
            + self.events.capacity() * size_of::<Event>()
            + self.scratch.capacity()
            + self.local_streams.memory()
            + self.peer_streams.memory()
    }

    /// Releases buffers that are kept for reuse. Call it when the connection becomes idle.
    pub fn release(&mut self) {
        for stream in self.local_streams.critical_streams() {
            stream.send_buffer.release();
        }
        self.peer_streams.release();
        for exchange in self.requests.values_mut() {
            exchange.receiving.reader.release();
            exchange.send_buffer.release();
        }
        let idle = self.requests.is_empty();
        if let Some(lingering) = &mut self.lingering {
            // Their requests would have arrived long ago.
            let early = core::mem::take(&mut lingering.early_datagrams);
            self.counters.datagrams_dropped.count(early.len() as u64);
        }
        (self.lingering).take_if(|it| idle && it.is_empty() && it.early_priorities.is_empty());
        if let Some(lingering) = &mut self.lingering {
            lingering.release();
        }
        self.encoder.release();
        self.decoder.release();
        self.scratch = Vec::new();
        self.events.shrink_to_fit();
        self.requests.shrink_to_fit();
    }

    fn lingering(&mut self) -> &mut Lingering {
        self.lingering.get_or_insert_default()
    }

    fn is_open(&self) -> bool {
        self.state == ConnectionState::Open
    }
}

impl Lingering {
    fn is_empty(&self) -> bool {
        self.discarding.is_empty()
            && self.unacknowledged.is_empty()
            && self.incomplete_sections == 0
    }

    /// Subtracts bytes of an incomplete field section that are no longer buffered.
    fn release_incomplete(&mut self, bytes: usize) {
        self.incomplete_sections = self.incomplete_sections.saturating_sub(bytes);
    }

    /// Releases buffers that are kept for reuse.
    fn release(&mut self) {
        for request in self.discarding.values_mut() {
            request.receiving.reader.release();
        }
        self.discarding.shrink_to_fit();
        self.early_priorities.shrink_to_fit();
        self.unacknowledged.shrink_to_fit();
    }

    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    fn memory(&self) -> usize {
        size_of::<Self>()
            + memory::hash_table(&self.discarding)
            + self
                .discarding
                .values()
                .map(DiscardedRequest::memory)
                .sum::<usize>()
            + memory::hash_table(&self.unacknowledged)
            + self.early_priorities.capacity() * size_of::<(StreamId, Priority)>()
            + self.held_sessions.capacity() * size_of::<Event>()
            + self.early_datagrams.memory()
    }
}

impl LocalStreams {
    fn critical_streams(&mut self) -> [&mut CriticalStream; 3] {
        [&mut self.control, &mut self.encoder, &mut self.decoder]
    }

    #[expect(clippy::arithmetic_side_effects, reason = "sums of sizes in memory")]
    fn memory(&self) -> usize {
        self.control.send_buffer.memory()
            + self.encoder.send_buffer.memory()
            + self.decoder.send_buffer.memory()
    }
}
