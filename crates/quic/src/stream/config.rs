//! Flow control limits of both ends.

/// Limits and initial windows of streams. Windows grow automatically up to the budgets, so the
/// initial values only matter in the first round trips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Number of bidirectional streams that the peer may have open at once.
    pub max_bidi_streams: u64,
    /// Number of unidirectional streams that the peer may have open at once.
    pub max_uni_streams: u64,
    /// Initial receive window of a stream, bytes.
    pub stream_window: u64,
    /// Initial receive window of the connection, bytes.
    pub connection_window: u64,
    /// Largest receive window of the connection, and of a stream, bytes: what a
    /// peer can make us buffer.
    pub receive_budget: u64,
    /// Smallest budget for data that writers of the connection buffer together, bytes. The actual
    /// budget follows the congestion window, and is no
    /// more than 64 KiB beyond what the peer's MAX_DATA allows to send.
    pub send_budget: u64,
    /// Most bytes taken from the application and not yet acknowledged, over all
    /// streams, whatever the congestion window: the memory that a peer which acknowledges nothing
    /// can make us use. The default has room for as much in flight as
    /// `receive_budget` lets a peer of the same settings grant, and a third more
    /// that waits behind it.
    pub send_limit: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_bidi_streams: 100,
            max_uni_streams: 100,
            stream_window: 512 << 10,
            connection_window: 1 << 20,
            receive_budget: 48 << 20,
            send_budget: 1 << 20,
            send_limit: 64 << 20,
        }
    }
}

impl Config {
    /// Returns the limits for our transport parameters as they are enforced: windows of at most
    /// 1 TiB, and at most 2^60 streams.
    #[must_use]
    pub(crate) fn initial_limits(&self) -> PeerLimits {
        let this = self.clone().normalized();
        PeerLimits {
            max_data: this.connection_window,
            bidi_local: this.stream_window,
            bidi_remote: this.stream_window,
            uni: this.stream_window,
            streams_bidi: this.max_bidi_streams,
            streams_uni: this.max_uni_streams,
        }
    }

    /// Returns the configuration with every value in the range of a transport parameter, and with
    /// budgets no smaller than the windows that they bound.
    #[must_use]
    pub(super) fn normalized(mut self) -> Self {
        let largest = 1 << 40;
        self.max_bidi_streams = self.max_bidi_streams.min(super::MAX_STREAM_COUNT);
        self.max_uni_streams = self.max_uni_streams.min(super::MAX_STREAM_COUNT);
        self.stream_window = self.stream_window.min(largest);
        self.connection_window = self.connection_window.min(largest);
        self.receive_budget = self
            .receive_budget
            .min(largest)
            .max(self.stream_window)
            .max(self.connection_window);
        self
    }
}

/// The flow-control transport parameters of one endpoint (RFC 9000 §18.2), with
/// `local` and `remote` as seen by the endpoint that announced them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLimits {
    /// `initial_max_data`, bytes.
    pub max_data: u64,
    /// `initial_max_stream_data_bidi_local`, bytes: streams the announcer opens.
    pub bidi_local: u64,
    /// `initial_max_stream_data_bidi_remote`, bytes: streams its peer opens.
    pub bidi_remote: u64,
    /// `initial_max_stream_data_uni`, bytes.
    pub uni: u64,
    /// `initial_max_streams_bidi`.
    pub streams_bidi: u64,
    /// `initial_max_streams_uni`.
    pub streams_uni: u64,
}

/// The part of [`PeerLimits`] that is needed to open streams.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StreamLimits {
    pub(super) bidi_local: u64,
    pub(super) bidi_remote: u64,
    pub(super) uni: u64,
}

impl From<PeerLimits> for StreamLimits {
    fn from(limits: PeerLimits) -> Self {
        Self {
            bidi_local: limits.bidi_local,
            bidi_remote: limits.bidi_remote,
            uni: limits.uni,
        }
    }
}

impl StreamLimits {
    /// Returns the larger of each limit: limits never shrink (RFC 9000 §4.1, §7.4.1).
    pub(super) fn raised_to(self, other: Self) -> Self {
        Self {
            bidi_local: self.bidi_local.max(other.bidi_local),
            bidi_remote: self.bidi_remote.max(other.bidi_remote),
            uni: self.uni.max(other.uni),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_without_encoding_are_announced_as_they_are_enforced() {
        let config = Config {
            max_bidi_streams: u64::MAX,
            max_uni_streams: u64::MAX,
            stream_window: u64::MAX,
            connection_window: u64::MAX,
            ..Config::default()
        };
        assert_eq!(
            config.initial_limits(),
            PeerLimits {
                max_data: 1 << 40,
                bidi_local: 1 << 40,
                bidi_remote: 1 << 40,
                uni: 1 << 40,
                streams_bidi: 1 << 60,
                streams_uni: 1 << 60,
            }
        );
    }
}
