//! How many streams may be open (RFC 9000 §4.6).

use super::MAX_STREAM_COUNT;
use crate::count::Count;

/// The streams of one directionality that we open.
#[derive(Debug, Default)]
pub(super) struct LocalStreams {
    /// How many were opened.
    pub(super) opened: u64,
    /// How many the peer allows.
    pub(super) limit: u64,
    /// Whether the application waits for a higher limit.
    pub(super) wanted: bool,
    /// The limit in the last STREAMS_BLOCKED.
    pub(super) blocked_at: Option<u64>,
    /// A STREAMS_BLOCKED is to be sent.
    pub(super) blocked_pending: bool,
}

impl LocalStreams {
    /// Opens the next stream and returns its index.
    pub(super) fn open(&mut self) -> Option<u64> {
        if self.opened < self.limit {
            let index = self.opened;
            self.opened.count_one();
            return Some(index);
        }
        self.wanted = true;
        None
    }

    /// Schedules STREAMS_BLOCKED if the peer does not know that the application waits.
    pub(super) fn note_blocked(&mut self) {
        self.blocked_pending = self.is_blocked() && self.blocked_at != Some(self.limit);
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.wanted && self.opened >= self.limit
    }

    /// Raises the limit and returns the old one.
    pub(super) fn raise(&mut self, limit: u64) -> u64 {
        let old = self.limit;
        if limit > old {
            self.limit = limit;
            self.blocked_pending = false;
        }
        old
    }

    /// Returns true once when the application waited and the limit has been raised.
    pub(super) fn take_available(&mut self) -> bool {
        let available = self.wanted && self.opened < self.limit;
        if available {
            self.wanted = false;
        }
        available
    }

    /// Resets the limit after the server has rejected 0-RTT.
    pub(super) fn forget_limit(&mut self) {
        self.limit = 0;
        self.blocked_at = None;
        self.blocked_pending = false;
    }
}

/// The streams of one directionality that the peer opens.
#[derive(Debug)]
pub(super) struct RemoteStreams {
    /// How many may be open at once.
    concurrent: u64,
    /// How many were opened.
    pub(super) opened: u64,
    /// How many of those the application accepted.
    pub(super) accepted: u64,
    /// How many of those are finished.
    closed: u64,
    /// How many we allowed, as last advertised.
    pub(super) granted: u64,
    /// A MAX_STREAMS is to be sent.
    pub(super) pending: bool,
}

impl RemoteStreams {
    pub(super) fn new(concurrent: u64) -> Self {
        Self {
            concurrent,
            opened: 0,
            accepted: 0,
            closed: 0,
            granted: concurrent,
            pending: false,
        }
    }

    /// Counts a finished stream. The limit is raised by a quarter at a time.
    pub(super) fn close(&mut self) {
        self.closed.count_one();
        let fresh = self.limit().saturating_sub(self.granted);
        self.pending = fresh > 0 && fresh >= self.concurrent / 4;
    }

    /// Raises the limit as far as possible and returns it.
    pub(super) fn grant(&mut self) -> u64 {
        self.pending = false;
        self.granted = self.limit();
        self.granted
    }

    fn limit(&self) -> u64 {
        let limit = self.closed.saturating_add(self.concurrent);
        limit.min(MAX_STREAM_COUNT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_limit_is_raised_by_a_quarter_at_a_time() {
        let mut remote = RemoteStreams::new(8);
        remote.close();
        assert!(!remote.pending);
        remote.close();
        assert!(remote.pending);
        assert_eq!(remote.grant(), 10);
        let mut single = RemoteStreams::new(1);
        single.close();
        assert!(single.pending);
        let mut most = RemoteStreams::new(MAX_STREAM_COUNT);
        most.close();
        assert!(!most.pending);
    }

    #[test]
    fn streams_blocked_is_sent_once_per_limit() {
        let mut local = LocalStreams::default();
        assert_eq!(local.open(), None);
        local.note_blocked();
        assert!(local.blocked_pending);
        local.blocked_at = Some(0);
        local.note_blocked();
        assert!(!local.blocked_pending);
        assert!(!local.take_available());
        assert_eq!(local.raise(1), 0);
        assert!(local.take_available());
        assert!(!local.take_available());
        assert_eq!(local.open(), Some(0));
    }
}
