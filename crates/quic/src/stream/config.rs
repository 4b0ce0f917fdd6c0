//! What we grant the peer, what the peer grants us.

/// How much streams may use. Windows grow by themselves up to the budgets
/// (`window`), so the initial values only shape the first round trips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Bidirectional streams the peer may have open at once.
    pub max_bidi_streams: u64,
    /// Unidirectional streams the peer may have open at once.
    pub max_uni_streams: u64,
    /// Initial receive window of a stream, bytes.
    pub stream_window: u64,
    /// Initial receive window of the connection, bytes.
    pub connection_window: u64,
    /// Largest receive window of the connection, and of a stream, bytes: what a
    /// peer can make us hold.
    pub receive_budget: u64,
    /// Least that writers of the connection may buffer together, bytes. The actual
    /// amount follows the congestion window
    /// ([`set_send_window_hint`](super::Streams::set_send_window_hint)), and is no
    /// more than 64 KiB beyond what the peer's MAX_DATA lets out.
    pub send_budget: u64,
    /// Most bytes taken from the application and not yet acknowledged, over all
    /// streams, whatever the congestion window: what a peer that acknowledges
    /// nothing can make us hold. The default has room for as much in flight as
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
    /// The limits for our own transport parameters.
    #[must_use]
    pub fn initial_limits(&self) -> PeerLimits {
        PeerLimits {
            max_data: self.connection_window,
            bidi_local: self.stream_window,
            bidi_remote: self.stream_window,
            uni: self.stream_window,
            streams_bidi: self.max_bidi_streams,
            streams_uni: self.max_uni_streams,
        }
    }

    /// The same with every value in the range of a transport parameter, and budgets
    /// no smaller than the windows they bound.
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

/// What of [`PeerLimits`] is needed for as long as streams are opened.
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
    /// The larger of each: limits never shrink (RFC 9000 §4.1, §7.4.1).
    pub(super) fn raised_to(self, other: Self) -> Self {
        Self {
            bidi_local: self.bidi_local.max(other.bidi_local),
            bidi_remote: self.bidi_remote.max(other.bidi_remote),
            uni: self.uni.max(other.uni),
        }
    }
}
