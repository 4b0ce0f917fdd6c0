//! Transport settings.

use core::time::Duration;

use clearway_recovery::congestion::{CongestionControl, NewPath, SlowStart};
use clearway_recovery::controller::{Controller, Ect, SavedPath};

use crate::ack::{DEFAULT_ACK_THRESHOLD, DEFAULT_MAX_ACK_DELAY};
use crate::bucket::Rate;
use crate::path::ecn::Mark;
use crate::path::mtu::{DEFAULT_MAX_MTU, MAX_SIZE};
use crate::stream;
use crate::wire::VersionPreference;

/// Transport settings of a connection. The defaults suit most uses.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Stream counts, windows and memory budgets.
    pub streams: stream::Config,
    /// The congestion controller of every path. CUBIC by default, because it shares a
    /// bottleneck fairly with what most hosts run. Select another with
    /// `Algorithm::Bbr.into()`, or your own with [`CongestionControl::custom`].
    pub controller: CongestionControl,
    /// How the controller's first slow start ends.
    pub slow_start: SlowStart,
    /// Servers: begin to send to a client with part of what an earlier connection from the same
    /// address measured, if it measured it less than a [lifetime](CarefulResume::lifetime) ago
    /// (Careful Resume, RFC 9959). The client keeps the measurement, sealed in the token that it
    /// returns.
    ///
    /// `None` by default: it is safe for the networks of most clients, but not for a server whose
    /// address leads to different places (anycast), nor where many clients share a bottleneck and
    /// come back at the same time (RFC 9959 §4.3.1, §5). `Some(CarefulResume::default())` switches
    /// it on.
    pub careful_resume: Option<CarefulResume>,
    /// Close the connection after this long without a packet from the peer; zero = never.
    /// The smaller value of both ends applies (RFC 9000 §10.1). 30 seconds by default,
    /// which outlasts most interruptions of a mobile network.
    pub idle_timeout: Duration,
    /// Give up a handshake that is not complete after this long, whatever the peer sends
    /// meanwhile. Zero = never; then only the idle timeout applies, which a peer can
    /// postpone for ever. The default, a minute, is many times what a path with heavy loss
    /// needs.
    pub handshake_timeout: Duration,
    /// Servers: give up a client whose ClientHello is not complete after this long; zero =
    /// only `handshake_timeout` applies. A ClientHello is one or a few datagrams that leave
    /// together, so what is missing is a retransmission. The default, five seconds, has
    /// room for two of them if the client has no round-trip sample yet (after 1 and 3 s),
    /// and for half a dozen otherwise. With 30 % loss in both directions as many handshakes
    /// complete as without this deadline.
    pub client_hello_timeout: Duration,
    /// Send a PING after this long without ack-eliciting packets sent, to keep the
    /// connection from idling out (RFC 9000 §10.1.2). Off by default, because it keeps
    /// mobile radios awake.
    pub keep_alive: Option<Duration>,
    /// RTT assumed before the first sample. 333 ms by default (RFC 9002 §6.2.2).
    pub initial_rtt: Duration,
    /// Longest delay of acknowledgements sent (RFC 9000 §13.2.1). 25 ms by default, as in
    /// RFC 9000 §18.2.
    pub max_ack_delay: Duration,
    /// Offer and use the ACK frequency extension (draft-ietf-quic-ack-frequency). On by
    /// default: fewer ACKs save both ends work.
    pub ack_frequency: bool,
    /// Ack-eliciting packets after which an acknowledgement is due, until the peer requests
    /// another number; at least 1. 2 by default (RFC 9000 §13.2.2).
    pub ack_threshold: u64,
    /// Largest UDP payload that MTU discovery tries, in bytes (RFC 9000 §14.3). 1,452 by
    /// default: Ethernet with IPv6.
    pub max_mtu: u16,
    /// Whether to search for an MTU above 1,200 bytes. On by default: larger packets cost
    /// less per byte.
    pub mtu_discovery: bool,
    /// Largest UDP payload accepted, in bytes (`max_udp_payload_size`). 65,527 by default:
    /// all that UDP carries.
    pub max_udp_payload: u16,
    /// Whether to mark packets as the controller asks, ECT(0) or ECT(1), and to act on CE
    /// marks (RFC 9000 §13.4, RFC 9331). On by default; paths that damage marks are
    /// detected.
    pub ecn: bool,
    /// Most bytes of DATAGRAM messages queued in each direction; 0 = DATAGRAM frames are
    /// not accepted. 1 MiB by default.
    pub datagram_buffer: usize,
    /// Most connection IDs that the peer may issue to us (RFC 9000 §5.1.1). 8 by default:
    /// more than the paths that can be probed at once.
    pub active_connection_id_limit: u64,
    /// Whether the peer may migrate to other addresses (RFC 9000 §9.1). On by default,
    /// since NAT rebinding looks the same.
    pub allow_migration: bool,
    /// How much work the peer may cause with frames that transfer no new data: control
    /// frames, STREAM frames that are empty or repeat known data, small DATAGRAM frames
    /// that are dropped because nobody reads them, and ACK frames of more than 64 ranges
    /// that acknowledge nothing new. The unit is about the cost of looking up one stream:
    /// most frames cost one unit, PATH_CHALLENGE four, RETIRE_CONNECTION_ID eight. When the
    /// budget is exhausted, the connection is closed with PROTOCOL_VIOLATION (RFC 9000
    /// §21.9). Time and useful work refill it: a unit for 64 new bytes of stream data in
    /// either direction, eight for each stream opened.
    ///
    /// 40,000 units at once are a few milliseconds of a core, comparable to a few
    /// handshakes, which an attacker can cause as well. 4,000 units a second are less than
    /// a thousandth of a core, and many times what an honest peer sends on a connection
    /// that transfers nothing.
    pub unproductive_work: Rate,
    /// Whether to send reserved versions and transport parameters and to clear the QUIC bit
    /// at random, which keeps the extension points usable (RFC 9287, RFC 9000 §18.1). On by
    /// default.
    pub grease: bool,
    /// The QUIC versions that this end speaks, most preferred first.
    ///
    /// A client begins with version 1 if that is in the list (RFC 9368 §2.5), or with the version of
    /// a stored session ticket, names all versions in its first flight, and follows the server to
    /// another one. A server switches a client
    /// to the first of its versions that the client has available (RFC 9368 §2.3), and answers a
    /// first flight of a version that is not in the list with Version Negotiation.
    ///
    /// Version 1, then version 2 (RFC 9369) by default: all peers speak version 1, and version 2
    /// has the same features, so that a switch costs some key derivations without a gain on most
    /// networks. Put version 2 first to keep middleboxes from relying on version 1, and use
    /// [`VersionPreference::V1_ONLY`] to announce nothing.
    pub versions: VersionPreference,
    /// Initiate a key update after this many packets in one key phase. `None` by default:
    /// only at the limits of RFC 9001 §6.6, which apply in any case.
    pub key_update_after: Option<u64>,
    /// A known bug to reproduce, for tests of detectors.
    #[cfg(feature = "specimens")]
    pub specimen: Option<clearway_recovery::specimens::Specimen>,
    /// The defect of a server, for tests of what finds defects.
    #[cfg(feature = "defects")]
    pub defects: Option<crate::defects::Defects<crate::defects::Quirk>>,
}

/// The bounds of Careful Resume (RFC 9959).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CarefulResume {
    /// How old a measurement may be. An hour by default: paths of homes and offices change less
    /// often, and a path that has changed is noticed within a round trip. Minutes where paths are
    /// known to vary.
    pub lifetime: Duration,
    /// The largest window in bytes that is taken without measuring (max_jump). 16 MiB by default:
    /// 200 Mbit/s over a satellite.
    pub max_jump: u64,
}

impl Default for CarefulResume {
    fn default() -> Self {
        Self {
            lifetime: Duration::from_secs(60 * 60),
            max_jump: 16 << 20,
        }
    }
}

impl CarefulResume {
    /// Returns what of `saved`, which is `age` old, may be used.
    pub(crate) fn admit(&self, saved: SavedPath, age: Duration) -> Option<SavedPath> {
        // Half of it is taken.
        let most = self.max_jump.saturating_mul(2);
        (age <= self.lifetime).then(|| SavedPath {
            capacity: saved.capacity.min(most),
            ..saved
        })
    }
}

impl Config {
    /// Creates the congestion controller of a new path.
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

    /// Returns the ECN mark that a path with this controller is tested with.
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
            careful_resume: None,
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
            versions: VersionPreference::default(),
            key_update_after: None,
            #[cfg(feature = "specimens")]
            specimen: None,
            #[cfg(feature = "defects")]
            defects: None,
        }
    }
}
