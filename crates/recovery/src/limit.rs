//! The reason why a connection is not sending: exactly one at a time.
//!
//! This module defines the name and the group of each reason, and what it means to the
//! controller and the rate estimator:
//!
//! | limit                 | growth clock | window used | app-limited | group       |
//! |-----------------------|--------------|-------------|-------------|-------------|
//! | Handshake             | stopped      | no          | no          | Handshake   |
//! | Amplification         | stopped      | no          | no          | Handshake   |
//! | Congestion            | runs         | yes         | no          | Network     |
//! | Pacing                | runs         | yes         | no          | Network     |
//! | Scheduling            | stopped      | yes         | no          | Host        |
//! | ConnectionFlowControl | stopped      | no          | no          | FlowControl |
//! | StreamFlowControl     | stopped      | no          | no          | FlowControl |
//! | StreamLimit           | stopped      | no          | no          | FlowControl |
//! | Application           | stopped      | no          | yes         | Application |
//!
//! CUBIC grows by the time for which the window was the limit (RFC 9438 §5.8).
//! Neither pacing (RFC 9002 §7.8) nor a host that did not take what the window
//! allowed leaves the window unused. The delivery rate is marked only where the
//! application was the limit, because the peer's flow control counts as the network.
//! The stream limit is flow control, as in RFC 9000 §4.6.

use core::fmt;
use core::time::Duration;

use crate::time::{Instant, nanos};

/// The one reason a connection is not sending at this instant.
///
/// The send path chooses the first that applies: amplification; then congestion, pacing,
/// scheduling, if something could be sent within flow control; otherwise handshake, while it runs;
/// then connection flow control, stream flow control, stream limit, application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Limit {
    /// The handshake has not completed, so application data can't flow yet.
    Handshake,
    /// The peer's address is not validated (RFC 9000 §8.1).
    Amplification,
    /// The congestion window is full.
    Congestion,
    /// The window has room, but the pacer has not released the next train yet.
    Pacing,
    /// The socket or the host did not accept datagrams that were ready.
    Scheduling,
    /// The peer's connection flow-control window is used up.
    ConnectionFlowControl,
    /// All data waits for flow-control credit of its stream.
    StreamFlowControl,
    /// The application waits for permission to open a stream (RFC 9000 §4.6).
    StreamLimit,
    /// The application had nothing to send while window and pacer were open.
    Application,
}

/// Who can remove a [`Limit`], as reports show it to users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum LimitGroup {
    /// The handshake or the validation of the peer's address had not completed.
    Handshake,
    /// The network: the congestion window or the pacer.
    Network,
    /// This host did not accept datagrams that were ready.
    Host,
    /// The receiver: its flow-control windows and stream limits.
    FlowControl,
    /// There was nothing to send.
    Application,
}

impl LimitGroup {
    /// All groups, in the order in which reports show them.
    pub const ALL: [Self; 5] = [
        Self::Handshake,
        Self::Network,
        Self::Host,
        Self::FlowControl,
        Self::Application,
    ];

    /// Returns its name as a key in JSON and other machine-readable output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Network => "network",
            Self::Host => "host",
            Self::FlowControl => "flow_control",
            Self::Application => "application",
        }
    }

    /// Returns its name as reports show it to a person.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Network => "network",
            Self::Host => "this host",
            Self::FlowControl => "flow control",
            Self::Application => "application",
        }
    }
}

impl Limit {
    /// All limits, in the order of the table.
    pub const ALL: [Self; 9] = [
        Self::Handshake,
        Self::Amplification,
        Self::Congestion,
        Self::Pacing,
        Self::Scheduling,
        Self::ConnectionFlowControl,
        Self::StreamFlowControl,
        Self::StreamLimit,
        Self::Application,
    ];

    /// Returns its name as a key in JSON and other machine-readable output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Handshake => "handshake",
            Self::Amplification => "amplification",
            Self::Congestion => "congestion",
            Self::Pacing => "pacing",
            Self::Scheduling => "scheduling",
            Self::ConnectionFlowControl => "connection_flow_control",
            Self::StreamFlowControl => "stream_flow_control",
            Self::StreamLimit => "stream_limit",
            Self::Application => "application",
        }
    }

    /// Returns the limit of this [`name`](Self::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|limit| limit.name() == name)
    }

    /// Returns its `BlockedReason` in qlog's `connection_data_blocked_updated`
    /// (draft-ietf-quic-qlog-quic-events). `handshake` is an extension.
    #[must_use]
    pub const fn qlog_name(self) -> &'static str {
        match self {
            Self::Amplification => "amplification_protection",
            Self::Congestion => "congestion_control",
            Self::StreamLimit => "stream_id",
            Self::Handshake
            | Self::Pacing
            | Self::Scheduling
            | Self::ConnectionFlowControl
            | Self::StreamFlowControl
            | Self::Application => self.name(),
        }
    }

    /// Returns the limit of this [`qlog_name`](Self::qlog_name).
    #[must_use]
    pub fn from_qlog_name(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|limit| limit.qlog_name() == name)
    }

    /// Returns who can remove it.
    #[must_use]
    pub const fn group(self) -> LimitGroup {
        match self {
            Self::Handshake | Self::Amplification => LimitGroup::Handshake,
            Self::Congestion | Self::Pacing => LimitGroup::Network,
            Self::Scheduling => LimitGroup::Host,
            Self::ConnectionFlowControl | Self::StreamFlowControl | Self::StreamLimit => {
                LimitGroup::FlowControl
            }
            Self::Application => LimitGroup::Application,
        }
    }

    /// Returns whether the window may grow by the time spent in this state (CUBIC's t, RFC
    /// 9438 §4.2 and §5.8). While pacing, the window's rate is in full use (RFC 9002 §7.8).
    /// While the receiver, the application or the host is the limit, the window is not
    /// used.
    #[must_use]
    pub const fn runs_growth_clock(self) -> bool {
        match self {
            Self::Congestion | Self::Pacing => true,
            Self::Handshake
            | Self::Amplification
            | Self::Scheduling
            | Self::ConnectionFlowControl
            | Self::StreamFlowControl
            | Self::StreamLimit
            | Self::Application => false,
        }
    }

    /// Returns whether a train that ended with this limit used the window (RFC 9002 §7.8).
    pub(crate) const fn uses_window(self) -> bool {
        match self {
            Self::Congestion | Self::Pacing | Self::Scheduling => true,
            Self::Handshake
            | Self::Amplification
            | Self::ConnectionFlowControl
            | Self::StreamFlowControl
            | Self::StreamLimit
            | Self::Application => false,
        }
    }

    /// Returns whether delivery-rate samples are marked application-limited
    /// (draft-ietf-ccwg-bbr §4.1.1.4).
    pub(crate) const fn is_application(self) -> bool {
        match self {
            Self::Application => true,
            Self::Handshake
            | Self::Amplification
            | Self::Congestion
            | Self::Pacing
            | Self::Scheduling
            | Self::ConnectionFlowControl
            | Self::StreamFlowControl
            | Self::StreamLimit => false,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for LimitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// Measures for how long each limit was the reason. The times are exact and add up to the
/// clock's whole life.
#[derive(Clone, Debug)]
pub struct LimitClock {
    current: Limit,
    started: Instant,
    since: Instant,
    /// Nanoseconds by limit, up to `since`.
    spent: [u64; Limit::ALL.len()],
}

impl LimitClock {
    /// Creates a clock that starts at `now` with the first limit.
    pub(crate) const fn new(limit: Limit, now: Instant) -> Self {
        Self {
            current: limit,
            started: now,
            since: now,
            spent: [0; Limit::ALL.len()],
        }
    }

    /// Returns the current limit.
    #[must_use]
    pub const fn current(&self) -> Limit {
        self.current
    }

    /// Returns when the clock was started.
    #[must_use]
    pub const fn started(&self) -> Instant {
        self.started
    }

    /// Sets the limit from `now` on. Returns whether it changed.
    pub(crate) fn set(&mut self, limit: Limit, now: Instant) -> bool {
        if limit == self.current {
            return false;
        }
        self.spent[self.current as usize] += nanos(now - self.since);
        // An older clock reading must not count time twice.
        self.since = self.since.max(now);
        self.current = limit;
        true
    }

    /// Returns the time for which `limit` has been the reason, up to `now`.
    #[must_use]
    pub fn spent(&self, limit: Limit, now: Instant) -> Duration {
        let running = if limit == self.current {
            nanos(now - self.since)
        } else {
            0
        };
        Duration::from_nanos(self.spent[limit as usize] + running)
    }

    /// Returns the time for which each limit has been the reason, up to `now`.
    pub fn breakdown(&self, now: Instant) -> impl Iterator<Item = (Limit, Duration)> {
        Limit::ALL
            .map(|limit| (limit, self.spent(limit, now)))
            .into_iter()
    }

    /// Returns the time since the start, which is the sum of the breakdown.
    #[cfg(test)]
    pub(crate) fn elapsed(&self, now: Instant) -> Duration {
        now.max(self.since) - self.started
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn documented_table_matches_the_predicates() {
        let source = include_str!("limit.rs");
        let rows: Vec<Vec<&str>> = source
            .lines()
            .filter_map(|line| line.strip_prefix("//! | "))
            .skip(1)
            .map(|row| row.split('|').map(str::trim).collect())
            .collect();
        assert_eq!(rows.len(), Limit::ALL.len());
        for (row, limit) in rows.iter().zip(Limit::ALL) {
            assert_eq!(row[0], format!("{limit:?}"));
            assert_eq!(row[1] == "runs", limit.runs_growth_clock(), "{limit:?}");
            assert_eq!(row[2] == "yes", limit.uses_window(), "{limit:?}");
            assert_eq!(row[3] == "yes", limit.is_application(), "{limit:?}");
            assert_eq!(
                row[4].trim_end_matches('|').trim(),
                format!("{:?}", limit.group())
            );
        }
    }

    #[test]
    fn limit_names_are_unique_and_found_by_name() {
        for limit in Limit::ALL {
            assert_eq!(Limit::from_name(limit.name()), Some(limit));
            assert_eq!(Limit::from_qlog_name(limit.qlog_name()), Some(limit));
            assert_eq!(limit.to_string(), limit.name());
        }
        assert_eq!(Limit::from_name("stream_id"), None);
        assert_eq!(Limit::from_qlog_name("stream_limit"), None);
    }

    #[test]
    fn every_group_has_a_limit_and_its_own_index() {
        for (slot, group) in LimitGroup::ALL.into_iter().enumerate() {
            assert_eq!(group as usize, slot);
            assert!(Limit::ALL.iter().any(|limit| limit.group() == group));
        }
    }

    #[test]
    fn every_limit_has_its_own_index() {
        for (slot, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, slot);
        }
    }

    #[test]
    fn time_is_charged_to_the_current_limit() {
        let mut clock = LimitClock::new(Limit::Handshake, at(10));
        assert!(clock.set(Limit::Congestion, at(25)));
        assert!(!clock.set(Limit::Congestion, at(30)));
        assert_eq!(clock.since, at(25));
        assert!(clock.set(Limit::Application, at(60)));
        let spent = |limit| nanos(clock.spent(limit, at(61)));
        assert_eq!(spent(Limit::Handshake), 15);
        assert_eq!(spent(Limit::Congestion), 35);
        assert_eq!(spent(Limit::Application), 1);
        assert_eq!(nanos(clock.elapsed(at(61))), 51);
    }

    proptest! {
        #[test]
        fn breakdown_sums_to_the_elapsed_time(
            start in 0_u64..1 << 40,
            // Some clock readings are older than the one before.
            steps in prop::collection::vec((0_usize..9, -50_i64..1 << 30), 0..60),
            tail in 0_u64..1 << 30,
        ) {
            let mut now = start;
            let mut latest = start;
            let mut clock = LimitClock::new(Limit::Handshake, at(start));
            for (limit, step) in steps {
                now = now.saturating_add_signed(step).max(start);
                latest = latest.max(now);
                clock.set(Limit::ALL[limit], at(now));
            }
            let end = at(latest + tail);
            let sum: Duration = clock.breakdown(end).map(|(_, spent)| spent).sum();
            prop_assert_eq!(sum, clock.elapsed(end));
            prop_assert_eq!(sum, end - at(start));
        }
    }
}
