//! Limits on what clients can use of an endpoint.

use core::time::Duration;

use ipnet::IpNet;

/// Limits on the clients of an [`Endpoint`](super::Endpoint), or of all endpoints that
/// share an [`AdmissionControl`](super::AdmissionControl) together.
///
/// A *source* is an IPv4 address or an IPv6 prefix of 56 bits, which is what a provider
/// typically assigns to a customer. An IPv6 prefix of 48 bits, which a site may have, gets
/// sixteen times the limit of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// At this many handshakes and above, addresses must be validated by Retry first, and
    /// handshakes get less time. Default 1,000: with some 25 KiB each they use 25 MB.
    pub retry_above: usize,
    /// At this many handshakes, even clients with validated addresses are refused. Default
    /// 10,000: with some 25 KiB each they use 250 MB.
    pub refuse_above: usize,
    /// At this many handshakes of a source and above, the source must validate its address
    /// by Retry; at eight times as many it is refused. Default 256: the clients behind one
    /// address seldom start as many within a round trip.
    pub per_source: usize,
    /// How long a handshake may take from its first packet while there are
    /// [`retry_above`](Self::retry_above) or more; zero = only
    /// [`Config::handshake_timeout`](crate::connection::Config::handshake_timeout) applies.
    /// Applies to handshakes that started earlier too. Default 10 s: several times what a
    /// client needs that loses every second packet on a path of 200 ms.
    pub handshake_timeout_under_load: Duration,
    /// Most connections of clients, including handshakes. Default 100,000: idle ones use
    /// about 10 KiB each, which makes 1 GB.
    pub connections: usize,
    /// Most connections of a source, including handshakes from validated addresses. Default
    /// 10,000: enough for a provider whose customers share addresses, and a tenth of
    /// [`connections`](Self::connections).
    pub connections_per_source: usize,
    /// Networks to which no limit per source applies, such as load balancers and proxies
    /// that connect for many others. Connections of theirs that end with an error of the client do
    /// not make later ones wait. Their clients share addresses, so that tokens of earlier
    /// connections do not validate an address there (RFC 9000 §8.1.3), and another port is
    /// taken for another path (§9.4). Empty by default.
    pub trusted: Vec<IpNet>,
    /// Most stateless resets sent per second, and at once after a pause (RFC 9000 §10.3.3).
    /// Default 1,000: an attacker needs no more than a thousand datagrams of 42 bytes to
    /// use them up, and the clients of a restarted server are reset within a few of their
    /// own retransmissions.
    pub resets_per_second: u32,
    /// Most refusals sent per second, and at once after a pause; further clients get no
    /// answer and try again. Default 1,000: a refusal costs about a hundredth of a
    /// handshake.
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
