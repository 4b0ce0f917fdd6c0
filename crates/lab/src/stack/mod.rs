//! The interface between a transport and the lab.
//!
//! [`Clearway`] is our own. Any other sans-I/O stack (quinn-proto, noq-proto) can be plugged in by
//! implementing [`Stack`] and [`StackFactory`] in a separate crate.

mod clearway;
mod http3;
mod identity;
mod secrets;
mod streams;

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use bytes::Bytes;
use clearway_links::{Packet, Time};

pub use clearway_quic::event::Observer;
use clearway_recovery::limit::Limit;

pub use clearway::{Clearway, ClearwayFactory, ObserverFactory, Observers, SharedObserverFactory};
pub use identity::{Certificates, Tls};
pub use secrets::Secrets;

/// A connection of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A bidirectional stream of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

/// The state of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectionState {
    /// The handshake is in progress.
    Handshaking,
    /// Streams can be used.
    Connected,
    /// It has ended, with this reason.
    Closed(String),
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// These bytes.
    Data(Bytes),
    /// No data yet.
    Blocked,
    /// The stream has ended.
    End,
}

/// Statistics of a sender at one moment; what a stack does not report stays zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Congestion window, bytes.
    pub window: u64,
    /// The controller's minimum window, bytes.
    pub floor: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Pacing rate, bytes per second.
    pub pacing_rate: u64,
    /// Smoothed RTT.
    pub smoothed_rtt: Duration,
    /// Minimum RTT, once measured.
    pub min_rtt: Option<Duration>,
    /// Largest UDP payload sent, bytes.
    pub mtu: u16,
    /// QUIC packets sent.
    pub packets_sent: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Of these, the packets acknowledged later.
    pub spurious_losses: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// Probe timeouts.
    pub ptos: u64,
    /// CE marks that the peer reported.
    pub ce_marks: u64,
    /// Number of window reductions.
    pub congestion_events: u64,
    /// Number of window collapses through persistent congestion.
    pub persistent_events: u64,
    /// Key updates.
    pub key_updates: u64,
    /// How long each limit was in effect; empty if the stack does not report it.
    pub limits: Vec<(Limit, Duration)>,
    /// Whether its last limit was that there was nothing to send.
    pub has_nothing_to_send: bool,
}

/// The transport of one host: an endpoint with its connections, sans-I/O.
pub trait Stack {
    /// Processes a datagram that arrived. Responses leave with the next [`Stack::transmit`].
    fn receive(&mut self, now: Time, packet: Packet);
    /// Passes everything that may be sent now to `emit`.
    fn transmit(&mut self, now: Time, emit: &mut dyn FnMut(Packet));
    /// When [`Stack::handle_timeout`] has to be called.
    fn next_timeout(&self) -> Option<Time>;
    /// Called at the time of [`Stack::next_timeout`].
    fn handle_timeout(&mut self, now: Time);

    /// Starts a connection.
    ///
    /// # Errors
    /// If the stack refuses, with its reason.
    fn connect(&mut self, now: Time, remote: SocketAddr) -> Result<ConnId, String>;
    /// The next connection that a peer started.
    fn accept(&mut self) -> Option<ConnId>;
    /// The state of a connection.
    fn life(&self, conn: ConnId) -> ConnectionState;
    /// Opens a bidirectional stream; `None` while the peer allows no more.
    fn open(&mut self, conn: ConnId) -> Option<Stream>;
    /// The next stream the peer opened.
    fn accept_stream(&mut self, conn: ConnId) -> Option<Stream>;
    /// Writes as much of `data` as there is room for and advances it.
    ///
    /// # Errors
    /// If the stream cannot be written to.
    fn write(&mut self, conn: ConnId, stream: Stream, data: &mut Bytes) -> Result<(), String>;
    /// Ends the stream after the data written so far.
    ///
    /// # Errors
    /// If the stream cannot be written to.
    fn finish(&mut self, conn: ConnId, stream: Stream) -> Result<(), String>;
    /// Reads what has arrived.
    ///
    /// # Errors
    /// If the stream was reset or does not exist.
    fn read(&mut self, conn: ConnId, stream: Stream) -> Result<Read, String>;
    /// Closes the connection.
    fn close(&mut self, now: Time, conn: ConnId);
    /// The host moved to the address `to`: continue from there (RFC 9000 §9.2).
    ///
    /// # Errors
    /// If the stack cannot migrate now.
    fn migrate(&mut self, now: Time, conn: ConnId, to: SocketAddr) -> Result<(), String>;
    /// The statistics of a connection.
    fn figures(&self, now: Time, conn: ConnId) -> SenderStats;
    /// Panics if an invariant is violated; called at the end of a run in debug builds.
    fn check(&self) {}
}

/// What a stack is created with.
#[derive(Clone, Copy, Debug)]
pub struct StackSetup {
    /// Its address.
    pub address: SocketAddr,
    /// Client or server.
    pub role: Role,
    /// The seed of all its randomness.
    pub seed: u64,
    /// The end and the index of its flow, counted from 0, for traces.
    pub index: usize,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The connecting end.
    Client,
    /// The accepting end.
    Server,
}

/// Creates stacks of one kind and configuration.
pub trait StackFactory {
    /// Its name in tables: `cubic`, `quinn/bbr`.
    fn name(&self) -> String;
    /// Whether it supports application streams over `protocol`.
    fn speaks(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Raw
    }
    /// Creates a stack.
    fn build(&self, birth: &StackSetup) -> Box<dyn Stack>;
}

/// The server name of every lab certificate.
pub const SERVER_NAME: &str = "localhost";

/// The application protocol of the lab.
pub const ALPN: &str = "lab";

/// The protocol between an application's streams and the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// None: its streams are QUIC's.
    #[default]
    Raw,
    /// HTTP/3: its streams are requests, what it writes are bodies.
    Http3,
}

impl Protocol {
    /// The ALPN identifier.
    #[must_use]
    pub const fn alpn(self) -> &'static str {
        match self {
            Self::Raw => ALPN,
            // Readers of captures know it by this name (RFC 9114 §3.1).
            Self::Http3 => "h3",
        }
    }
}

/// Wall time of virtual time zero, in Unix seconds: the validity of certificates and tickets must
/// not depend on the day of the run.
pub const UNIX_ORIGIN: u64 = 1_800_000_000;

/// Virtual time zero, for traces that share the lab's clock.
pub const ORIGIN: clearway_quic::Instant = clearway_quic::Instant::ZERO;

/// The source address of a packet, with the host's port.
fn source(local_ip: Option<IpAddr>, own: SocketAddr) -> SocketAddr {
    SocketAddr::new(local_ip.unwrap_or(own.ip()), own.port())
}
