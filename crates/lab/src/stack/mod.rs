//! What a transport has to be able to do to live in the lab.
//!
//! [`Clearway`] is ours. Any other stack that takes bytes and time and gives
//! bytes and time (quinn-proto, noq-proto) can be plugged in by implementing
//! [`Stack`] and [`StackFactory`] in a crate of its own.

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

pub use clearway::{Clearway, ClearwayFactory, Observers, Watch, Watcher};
pub use identity::{Certificates, Tls};
pub use secrets::Secrets;

/// A connection of one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u64);

/// A bidirectional stream of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream(pub u64);

/// How far a connection is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Life {
    /// The handshake is under way.
    Handshaking,
    /// Streams can be used.
    Connected,
    /// It has ended, for this reason.
    Closed(String),
}

/// What a read brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// These bytes.
    Data(Bytes),
    /// Nothing yet.
    Blocked,
    /// The stream has ended.
    End,
}

/// A sender's figures at one moment; what a stack does not know stays zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Congestion window, bytes.
    pub window: u64,
    /// The smallest window its controller ever has, bytes.
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
    /// Of those, acknowledged after all.
    pub spurious_losses: u64,
    /// UDP payload bytes sent.
    pub bytes_sent: u64,
    /// Probe timeouts.
    pub ptos: u64,
    /// CE marks that the peer reported.
    pub ce_marks: u64,
    /// Times the window came down.
    pub congestion_events: u64,
    /// Times persistent congestion collapsed the window.
    pub persistent_events: u64,
    /// Key updates.
    pub key_updates: u64,
    /// How long each reason for not sending held; empty if the stack does not tell.
    pub limits: Vec<(Limit, Duration)>,
    /// Whether its last reason for not sending was that there was nothing to
    /// send.
    pub has_nothing_to_send: bool,
}

/// One end's transport: an endpoint with its connections, sans-I/O.
pub trait Stack {
    /// A datagram has arrived. Answers leave with the next [`Stack::transmit`].
    fn receive(&mut self, now: Time, packet: Packet);
    /// Hands everything that may leave now to `emit`.
    fn transmit(&mut self, now: Time, emit: &mut dyn FnMut(Packet));
    /// When [`Stack::handle_timeout`] wants to be called.
    fn next_timeout(&self) -> Option<Time>;
    /// The time of [`Stack::next_timeout`] has come.
    fn handle_timeout(&mut self, now: Time);

    /// Begins a connection.
    ///
    /// # Errors
    /// If the stack refuses, with its words.
    fn connect(&mut self, now: Time, remote: SocketAddr) -> Result<ConnId, String>;
    /// The next connection a peer began.
    fn accept(&mut self) -> Option<ConnId>;
    /// How far a connection is.
    fn life(&self, conn: ConnId) -> Life;
    /// Opens a bidirectional stream; `None` while the peer allows no more.
    fn open(&mut self, conn: ConnId) -> Option<Stream>;
    /// The next stream the peer opened.
    fn accept_stream(&mut self, conn: ConnId) -> Option<Stream>;
    /// Takes as much of `data` as there is room for and advances it.
    ///
    /// # Errors
    /// If the stream cannot be written to.
    fn write(&mut self, conn: ConnId, stream: Stream, data: &mut Bytes) -> Result<(), String>;
    /// Ends the stream after what was written.
    ///
    /// # Errors
    /// If the stream cannot be written to.
    fn finish(&mut self, conn: ConnId, stream: Stream) -> Result<(), String>;
    /// What has arrived.
    ///
    /// # Errors
    /// If the stream was reset or does not exist.
    fn read(&mut self, conn: ConnId, stream: Stream) -> Result<Read, String>;
    /// Closes the connection.
    fn close(&mut self, now: Time, conn: ConnId);
    /// The host moved to `to`: go on from there (RFC 9000 §9.2).
    ///
    /// # Errors
    /// If the stack cannot migrate now.
    fn migrate(&mut self, now: Time, conn: ConnId, to: SocketAddr) -> Result<(), String>;
    /// The figures of a connection.
    fn figures(&self, now: Time, conn: ConnId) -> Figures;
    /// Panics if anything that must hold does not; asked at the end of a run
    /// in debug builds.
    fn check(&self) {}
}

/// What a stack is born with.
#[derive(Clone, Copy, Debug)]
pub struct Birth {
    /// Its address.
    pub address: SocketAddr,
    /// Client or server.
    pub role: Role,
    /// All of its randomness.
    pub seed: u64,
    /// Which end of which flow it is, counted from 0, for traces.
    pub index: usize,
}

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// It connects.
    Client,
    /// It accepts.
    Server,
}

/// Makes stacks of one kind and with one configuration.
pub trait StackFactory {
    /// What it makes, for tables: `cubic`, `quinn/bbr`.
    fn name(&self) -> String;
    /// Whether its applications' streams can be those of `protocol`.
    fn speaks(&self, protocol: Protocol) -> bool {
        protocol == Protocol::Raw
    }
    /// Makes one.
    fn build(&self, birth: &Birth) -> Box<dyn Stack>;
}

/// The server name every lab certificate is for.
pub const SERVER_NAME: &str = "localhost";

/// The application protocol of the lab.
pub const ALPN: &str = "lab";

/// What lies between an application's streams and the transport.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// Nothing: its streams are QUIC's.
    #[default]
    Raw,
    /// HTTP/3: its streams are requests, what it writes are bodies.
    Http3,
}

impl Protocol {
    /// What TLS calls it.
    #[must_use]
    pub const fn alpn(self) -> &'static str {
        match self {
            Self::Raw => ALPN,
            // Capture readers know it by this (RFC 9114 §3.1).
            Self::Http3 => "h3",
        }
    }
}

/// Wall time of virtual time zero, in Unix seconds: certificates and tickets
/// are judged by a clock that does not depend on the day of the run.
pub const UNIX_ORIGIN: u64 = 1_800_000_000;

/// Virtual time zero, for traces that share the lab's clock.
pub const ORIGIN: clearway_quic::Instant = clearway_quic::Instant::ZERO;

/// The address a packet says it is from, with the host's port.
fn source(local_ip: Option<IpAddr>, own: SocketAddr) -> SocketAddr {
    SocketAddr::new(local_ip.unwrap_or(own.ip()), own.port())
}
