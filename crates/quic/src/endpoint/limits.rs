//! What an endpoint lets strangers take of it.

use core::time::Duration;

use ipnet::IpNet;

/// Bounds on the clients of one [`Endpoint`](super::Endpoint), or of all endpoints that
/// share an [`AdmissionControl`](super::AdmissionControl) together.
///
/// A *source* is an IPv4 address, or an IPv6 prefix of 56 bits, which is what one
/// customer of a provider typically holds. Sixteen times as much as to a source is
/// allowed to an IPv6 prefix of 48 bits, which a site can have of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// From this many handshakes on, addresses have to be validated by Retry first,
    /// and handshakes get less time. 1,000: with some 25 KiB each they hold 25 MB.
    pub retry_above: usize,
    /// From this many handshakes on, even validated clients are refused. 10,000:
    /// with some 25 KiB each they hold 250 MB.
    pub refuse_above: usize,
    /// From this many handshakes of one source on, that source is asked to validate
    /// by Retry; from eight times as many on it is refused. 256: the clients behind
    /// one address seldom begin as many within a round trip.
    pub per_source: usize,
    /// How long a handshake may take, from its first packet on, while
    /// [`retry_above`](Self::retry_above) or more are open; zero = as long as
    /// [`Config::handshake_timeout`](crate::connection::Config::handshake_timeout)
    /// says. It applies to those begun earlier too. 10 s: several times what a
    /// client needs that loses every second packet on a path of 200 ms.
    pub handshake_timeout_under_load: Duration,
    /// Connections of clients, handshakes among them. 100,000: quiet ones hold about
    /// 10 KiB each, which makes 1 GB.
    pub connections: usize,
    /// Connections of one source, handshakes of validated addresses among them.
    /// 10,000: enough for a provider that has its customers share addresses, and a
    /// tenth of [`connections`](Self::connections).
    pub connections_per_source: usize,
    /// Addresses that are no source: no bound per source holds for them. For load
    /// balancers and proxies that connect for many others. None by default.
    pub trusted: Vec<IpNet>,
    /// Stateless resets that are sent in a second, and at once after a pause
    /// (RFC 9000 §10.3.3); the others are not sent. 1,000: an attacker can spend as
    /// many datagrams of 42 bytes, and the clients of a server that was restarted
    /// hear within a few of their own retransmissions.
    pub resets_per_second: u32,
    /// Refusals that are sent in a second, and at once after a pause; other clients
    /// are left without an answer and try again. 1,000: each costs about as much as
    /// a hundredth of a handshake.
    pub refusals_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retry_above: 1_000,
            refuse_above: 10_000,
            per_source: 256,
            handshake_timeout_under_load: Duration::from_secs(10),
            connections: 100_000,
            connections_per_source: 10_000,
            trusted: Vec::new(),
            resets_per_second: 1_000,
            refusals_per_second: 1_000,
        }
    }
}
