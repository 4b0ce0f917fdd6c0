//! One HTTP/3 connection, client or server.
//!
//! ```text
//! drive      events of the transport in, writes out, the end
//! inbound    the peer's unidirectional streams
//! control    frames on its control stream
//! receive    frames on request streams; section: the header sections among them
//! message    what a header section begins; lookahead: what follows it, and its end
//! body       what the application reads; discard: what it leaves unread
//! send       what the application writes
//! close      resets, stops, GOAWAY, failures
//! datagrams  HTTP datagrams
//! deadlines  what takes a client too long
//! ```
//!
//! The way of a batch: every event of the transport goes into
//! [`on_quic_event`](Connection::on_quic_event); what comes of it is polled with
//! [`poll_event`](Connection::poll_event); the application calls what it likes;
//! then [`flush`](Connection::flush), then the transport's `transmit`. A server also
//! calls [`handle_timeout`](Connection::handle_timeout) when
//! [`next_timeout`](Connection::next_timeout) has come.

mod body;
mod close;
mod control;
mod datagrams;
mod deadlines;
mod discard;
mod drive;
mod inbound;
mod lookahead;
mod message;
mod receive;
mod section;
mod send;

use std::collections::VecDeque;
use std::sync::Arc;

use clearway_quic::Role;
use clearway_quic::stream::StreamId;
use rustc_hash::FxHashMap;

use crate::error::ConnectionError;
use crate::event::Event;
use crate::goaway::Goaway;
use crate::limits::{Allowances, Counters, Limits};
use crate::memory;
use crate::outlet::Outlet;
use crate::priority::Priority;
use crate::progress::Progress;
use crate::qpack::{Decoder, Encoder};
use crate::request::Exchange;
use crate::settings::Settings;
use crate::timeouts::Timeouts;

use discard::Discarded;

pub use datagrams::DatagramError;

/// What an endpoint is set up with; shared by its connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bounds on what a peer may cost.
    pub limits: Limits,
    /// How long a client may keep a server waiting.
    pub timeouts: Timeouts,
    /// Largest QPACK dynamic table of either direction, bytes.
    pub qpack_max_table_capacity: u64,
    /// Most streams that may wait for our dynamic table.
    pub qpack_blocked_streams: u64,
    /// Take extended CONNECT (servers; RFC 9220).
    pub extended_connect: bool,
    /// Take HTTP datagrams; the transport must take DATAGRAM frames
    /// (RFC 9297 §2.1.1).
    pub datagrams: bool,
    /// Send settings, frames and streams without meaning, so that peers stay able
    /// to ignore them (RFC 9114 §7.2.8).
    pub grease: bool,
    /// The server's settings as known when 0-RTT was made possible (clients;
    /// RFC 9114 §7.2.4.2). The dynamic table waits for those that arrive all the
    /// same: what is refused of 0-RTT is sent again as it was, and must not refer
    /// to a table that the server does not offer any more (RFC 9204 §3.2.3).
    pub remembered: Option<Settings>,
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
            grease: true,
            remembered: None,
        }
    }
}

impl Config {
    /// The settings we announce.
    #[must_use]
    pub fn settings(&self, role: Role) -> Settings {
        Settings {
            max_field_section_size: Some(self.limits.max_field_section),
            qpack_max_table_capacity: self.qpack_max_table_capacity,
            qpack_blocked_streams: self.qpack_blocked_streams,
            enable_connect_protocol: self.extended_connect && role == Role::Server,
            h3_datagram: self.datagrams,
        }
    }
}

/// The three streams each end has for itself, as ours.
#[derive(Debug, Default)]
struct Outbound {
    control: Lane,
    encoder: Lane,
    decoder: Lane,
    greased: Option<StreamId>,
}

/// One stream of ours without end.
#[derive(Debug, Default)]
struct Lane {
    id: Option<StreamId>,
    outlet: Outlet,
}

/// The state of HTTP/3 on one connection. It owns no I/O and no transport: every
/// call that reads or writes borrows one.
#[derive(Debug)]
pub struct Connection {
    role: Role,
    config: Arc<Config>,
    /// Chooses among reserved values.
    grease: u64,
    outbound: Outbound,
    inbound: inbound::Inbound,
    /// The peer's settings, once they arrived.
    peer: Option<Settings>,
    /// Until then, those of an earlier connection count.
    remembers: bool,
    encoder: Encoder,
    decoder: Decoder,
    requests: FxHashMap<StreamId, Exchange>,
    /// `None` while nothing of a request is left to do.
    lingering: Option<Box<Lingering>>,
    /// The index of the first request not seen (server) or not made (client).
    next_request: u64,
    /// Priorities of requests that have not arrived.
    early: Vec<(StreamId, Priority)>,
    goaway: Goaway,
    /// The push IDs the peer, a client, would take; only to see it reduced.
    max_push_id: Option<u64>,
    events: VecDeque<Event>,
    allowances: Allowances,
    clock: deadlines::Clock,
    interval: deadlines::Interval,
    counters: Counters,
    life: Life,
    /// Frames are put together here.
    scratch: Vec<u8>,
}

/// What the application is done with, and the peer is not.
#[derive(Debug, Default)]
struct Lingering {
    /// Rests of requests that nobody reads (server).
    discarding: FxHashMap<StreamId, Discarded>,
    /// What was sent to its end on streams that wait for its acknowledgment only.
    delivering: FxHashMap<StreamId, Progress>,
    /// Bytes held of field sections that have arrived in part, over all streams.
    gathered: usize,
    sampled: deadlines::Sampled,
}

/// Whether there is anything left to do.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    Open,
    /// Failed; the transport is closed with the next flush.
    Failed(Box<ConnectionError>),
    Closed,
}

impl Connection {
    /// The HTTP side of a new connection. `seed` chooses reserved values when the
    /// configuration says `grease`; any number does.
    #[must_use]
    pub fn new(role: Role, config: Arc<Config>, seed: u64) -> Self {
        Self {
            role,
            grease: seed,
            outbound: Outbound::default(),
            inbound: inbound::Inbound::default(),
            peer: None,
            remembers: role == Role::Client,
            encoder: Encoder::new(
                usize::try_from(config.qpack_max_table_capacity).unwrap_or(usize::MAX),
            ),
            decoder: Decoder::new(
                config.qpack_max_table_capacity,
                config.qpack_blocked_streams,
            ),
            requests: FxHashMap::default(),
            lingering: None,
            next_request: 0,
            early: Vec::new(),
            goaway: Goaway::default(),
            max_push_id: None,
            events: VecDeque::new(),
            allowances: Allowances::new(&config.limits),
            clock: deadlines::Clock::default(),
            interval: deadlines::Interval::of(&config.timeouts),
            counters: Counters::default(),
            life: Life::Open,
            scratch: Vec::new(),
            config,
        }
    }

    /// Which end we are.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role
    }

    /// The next event, until there is none.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The peer's settings, once they have arrived.
    #[must_use]
    pub fn peer_settings(&self) -> Option<&Settings> {
        self.peer.as_ref()
    }

    /// What the peer's settings allow now: those that arrived, else remembered
    /// ones, else the initial ones (RFC 9114 §7.2.4.2).
    fn allowed(&self) -> Settings {
        let remembered = self.config.remembered.filter(|_| self.remembers);
        self.peer.or(remembered).unwrap_or_default()
    }

    /// Requests begun and not over.
    #[must_use]
    pub fn open_requests(&self) -> usize {
        // What is kept of them after the close is for reading only.
        if self.life == Life::Closed {
            return 0;
        }
        self.requests.len()
    }

    /// Messages that were sent to their end on streams that are not open any more, and
    /// that the peer has not acknowledged.
    #[must_use]
    pub fn undelivered(&self) -> usize {
        self.lingering.as_ref().map_or(0, |it| it.delivering.len())
    }

    /// What was refused or odd.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Why the connection failed, if it did and is not closed yet.
    #[must_use]
    pub fn error(&self) -> Option<&ConnectionError> {
        match &self.life {
            Life::Failed(error) => Some(error),
            Life::Open | Life::Closed => None,
        }
    }

    /// Memory held, bytes.
    #[must_use]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together, less those of parts of it"
    )]
    pub fn memory(&self) -> usize {
        size_of::<Self>() - size_of::<Encoder>() - size_of::<Decoder>()
            + self.encoder.memory()
            + self.decoder.memory()
            + memory::table(&self.requests)
            + self.requests.values().map(Exchange::memory).sum::<usize>()
            + self.lingering.as_ref().map_or(0, |it| it.memory())
            + self.events.capacity() * size_of::<Event>()
            + self.early.capacity() * size_of::<(StreamId, Priority)>()
            + self.scratch.capacity()
            + self.outbound.memory()
            + self.inbound.memory()
    }

    /// Gives back buffers kept for reuse; worth a call when the connection is idle.
    pub fn release(&mut self) {
        for lane in self.outbound.lanes() {
            lane.outlet.release();
        }
        self.inbound.release();
        for exchange in self.requests.values_mut() {
            exchange.receiving.reader.release();
            exchange.outlet.release();
        }
        let idle = self.requests.is_empty();
        self.lingering.take_if(|it| idle && it.is_empty());
        if let Some(lingering) = &mut self.lingering {
            lingering.release();
        }
        self.encoder.release();
        self.decoder.release();
        self.scratch = Vec::new();
        self.events.shrink_to_fit();
        self.requests.shrink_to_fit();
        self.early.shrink_to_fit();
    }

    fn lingering(&mut self) -> &mut Lingering {
        self.lingering.get_or_insert_default()
    }

    fn is_open(&self) -> bool {
        self.life == Life::Open
    }
}

impl Lingering {
    fn is_empty(&self) -> bool {
        self.discarding.is_empty() && self.delivering.is_empty() && self.gathered == 0
    }

    /// So many bytes of an unfinished field section are held no more.
    fn forget_gathered(&mut self, bytes: usize) {
        self.gathered = self.gathered.saturating_sub(bytes);
    }

    /// Gives back buffers kept for reuse.
    fn release(&mut self) {
        for rest in self.discarding.values_mut() {
            rest.receiving.reader.release();
        }
        self.discarding.shrink_to_fit();
        self.delivering.shrink_to_fit();
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    fn memory(&self) -> usize {
        size_of::<Self>()
            + memory::table(&self.discarding)
            + self
                .discarding
                .values()
                .map(Discarded::memory)
                .sum::<usize>()
            + memory::table(&self.delivering)
    }
}

impl Outbound {
    fn lanes(&mut self) -> [&mut Lane; 3] {
        [&mut self.control, &mut self.encoder, &mut self.decoder]
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "sizes of what is in memory together"
    )]
    fn memory(&self) -> usize {
        self.control.outlet.memory() + self.encoder.outlet.memory() + self.decoder.outlet.memory()
    }
}
