//! How a connection behaves.

use core::time::Duration;

use clearway_recovery::congestion::{CongestionControl, NewPath, SlowStart};
use clearway_recovery::controller::{Controller, Ect};

use crate::ack::{DEFAULT_ACK_THRESHOLD, DEFAULT_MAX_ACK_DELAY};
use crate::bucket::Rate;
use crate::path::ecn::Mark;
use crate::path::mtu::{DEFAULT_MAX_MTU, MAX_SIZE};
use crate::stream;

/// Transport settings of a connection. Every default is meant to be left alone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Stream counts, windows and memory budgets.
    pub streams: stream::Config,
    /// Congestion control of every path: CUBIC by default, which shares a bottleneck
    /// fairly with what most hosts run. `Algorithm::Bbr.into()` chooses another of
    /// ours, [`CongestionControl::custom`] one of your own.
    pub controller: CongestionControl,
    /// How its first slow start ends.
    pub slow_start: SlowStart,
    /// Close after this long without a packet from the peer; zero = never
    /// (RFC 9000 §10.1). The smaller of both ends' values holds.
    pub idle_timeout: Duration,
    /// Give a handshake up that is not complete after this long, whatever the peer
    /// sends meanwhile; zero = never, which leaves it to the idle timeout, which a
    /// peer can put off for ever. The default, a minute, is many times what a path
    /// with heavy loss takes.
    pub handshake_timeout: Duration,
    /// Servers: give a client up whose ClientHello is not complete after this long;
    /// zero = when `handshake_timeout` says. A ClientHello is one or a few datagrams
    /// that leave together, so what lacks is a retransmission: the default, five
    /// seconds, has room for two of them if nothing tells the client of its round
    /// trip (after 1 and 3 s), and for half a dozen otherwise. With 30 % loss both
    /// ways as many handshakes complete as without this deadline.
    pub client_hello_timeout: Duration,
    /// Send a PING after this long without one from the peer, so that the idle
    /// timeout never strikes (RFC 9000 §10.1.2).
    pub keep_alive: Option<Duration>,
    /// RTT assumed before the first sample (RFC 9002 §6.2.2).
    pub initial_rtt: Duration,
    /// Longest delay of our acknowledgements (RFC 9000 §13.2.1).
    pub max_ack_delay: Duration,
    /// Offer and use the ACK frequency extension (draft-ietf-quic-ack-frequency).
    pub ack_frequency: bool,
    /// Ack-eliciting packets that make an acknowledgement due until the peer
    /// asks for another number; at least 1 (RFC 9000 §13.2.2).
    pub ack_threshold: u64,
    /// Largest UDP payload to search for, in bytes (RFC 9000 §14.3).
    pub max_mtu: u16,
    /// Search for a larger MTU than 1,200 bytes.
    pub mtu_discovery: bool,
    /// Largest UDP payload we take, in bytes.
    pub max_udp_payload: u16,
    /// Mark packets as the controller asks, ECT(0) or ECT(1), and act on CE
    /// marks (RFC 9000 §13.4, RFC 9331).
    pub ecn: bool,
    /// DATAGRAM frames: bytes queued at most each way; 0 = not offered.
    pub datagram_buffer: usize,
    /// Connection IDs of the peer that we keep (RFC 9000 §5.1.1).
    pub active_connection_id_limit: u64,
    /// Whether the peer may migrate (RFC 9000 §9.1).
    pub allow_migration: bool,
    /// How much work the peer may ask for by frames that transfer no new data: control
    /// frames, STREAM frames that are empty or repeat what is known, small DATAGRAM
    /// frames that are dropped because nobody reads them, and ACK frames of more than
    /// 64 ranges that acknowledge nothing new. In units of
    /// about one stream looked up: most frames cost one, PATH_CHALLENGE four,
    /// RETIRE_CONNECTION_ID eight. Beyond it the connection ends with
    /// PROTOCOL_VIOLATION (RFC 9000 §21.9). Beside time, useful work pays for more: a
    /// unit for 64 new bytes of stream data either way, eight for a stream that opens.
    ///
    /// 40,000 at once is a few milliseconds of a core, of the order of some
    /// handshakes, which an attacker can have as well. 4,000 a second is less than a
    /// thousandth of a core, and many times what an honest peer sends over a
    /// connection that transfers nothing.
    pub unproductive_work: Rate,
    /// Reserved versions, transport parameters and the QUIC bit, to keep the
    /// extension points open (RFC 9287, RFC 9000 §18.1).
    pub grease: bool,
    /// Start a key update after this many packets in one phase; the limits of
    /// RFC 9001 §6.6 hold in any case.
    pub key_update_after: Option<u64>,
    /// A known bug, to be found by somebody's detector.
    #[cfg(feature = "specimens")]
    pub specimen: Option<clearway_recovery::specimens::Specimen>,
}

impl Config {
    /// A congestion controller for a new path.
    pub(crate) fn build_controller(&self, mds: u64, seed: u64) -> Box<dyn Controller> {
        let path = NewPath {
            mds,
            slow_start: self.slow_start,
            seed,
        };
        #[cfg(feature = "specimens")]
        if let Some(specimen) = self.specimen {
            return specimen.build(&self.controller, &path);
        }
        self.controller.build(&path)
    }

    /// The mark that a path of this controller is tested with.
    pub(crate) fn mark(&self, controller: &dyn Controller) -> Mark {
        match (self.ecn, controller.ecn()) {
            (false, _) => Mark::NotEct,
            (true, Ect::Ect0) => Mark::Ect0,
            (true, Ect::Ect1) => Mark::Ect1,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            streams: stream::Config::default(),
            controller: CongestionControl::default(),
            slow_start: SlowStart::default(),
            idle_timeout: Duration::from_secs(30),
            handshake_timeout: Duration::from_secs(60),
            client_hello_timeout: Duration::from_secs(5),
            keep_alive: None,
            initial_rtt: Duration::from_millis(333),
            max_ack_delay: DEFAULT_MAX_ACK_DELAY,
            ack_frequency: true,
            ack_threshold: DEFAULT_ACK_THRESHOLD,
            max_mtu: DEFAULT_MAX_MTU,
            mtu_discovery: true,
            max_udp_payload: MAX_SIZE,
            ecn: true,
            datagram_buffer: 1 << 20,
            active_connection_id_limit: 8,
            allow_migration: true,
            unproductive_work: Rate {
                burst: 40_000,
                per_second: 4_000,
            },
            grease: true,
            key_update_after: None,
            #[cfg(feature = "specimens")]
            specimen: None,
        }
    }
}
