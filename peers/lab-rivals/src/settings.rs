//! What a scenario asks of a transport, for stacks that are not ours.
//!
//! Where a scenario leaves a setting alone, each stack keeps its own default,
//! windows included; where it sets one, all get the same.

use std::sync::Arc;
use std::time::Duration;

use clearway_lab::scenario::Case;
use clearway_lab::stack::Tls;
use clearway_quic::connection::Config;
use rustls::{ClientConfig, ServerConfig};

use crate::tls;

/// A controller that a rival has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Controller {
    NewReno,
    Cubic,
    Bbr,
}

impl Controller {
    /// What the catalogue calls it: whose bars it is held to.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NewReno => "newreno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    /// Datagrams of its least window: RFC 9002 §7.2; `BBR.MinPipeCwnd`.
    pub(crate) const fn floor(self) -> u64 {
        match self {
            Self::NewReno | Self::Cubic => 2,
            Self::Bbr => 4,
        }
    }
}

/// Settings of one stack; `None` is its own default.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) controller: Controller,
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// Bytes a stream and a connection may have underway.
    pub(crate) window: Option<u64>,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) initial_rtt: Option<Duration>,
    /// Largest UDP payload to look for.
    pub(crate) max_mtu: Option<u16>,
    /// Packets that may wait without an acknowledgement, asked of the peer.
    pub(crate) ack_threshold: Option<u32>,
}

impl Settings {
    /// What `case` sets.
    pub(crate) fn of(case: &Case, controller: Controller) -> Self {
        let ours = Config::default();
        let asked = &case.transport;
        let tls = Tls {
            certificates: case.certificates,
            x25519_only: case.x25519_only,
            ..Tls::default()
        };
        let (client, server) = tls::configurations(&tls);
        let streams = &asked.streams;
        // Our windows grow up to the budget; the rivals' do not grow.
        let window = streams.stream_window.max(streams.receive_budget);
        let has_window = streams.stream_window != ours.streams.stream_window
            || streams.receive_budget != ours.streams.receive_budget;
        // Every second packet is what they do without being asked.
        let threshold = match (asked.ack_frequency, asked.ack_threshold) {
            (true, _) | (false, 2) => None,
            (false, every) => u32::try_from(every.saturating_sub(1)).ok(),
        };
        Self {
            controller,
            client,
            server,
            window: has_window.then_some(window),
            idle_timeout: changed(asked.idle_timeout, &ours.idle_timeout),
            initial_rtt: changed(asked.initial_rtt, &ours.initial_rtt),
            max_mtu: changed(asked.max_mtu, &ours.max_mtu),
            ack_threshold: threshold,
        }
    }
}

fn changed<T: PartialEq>(asked: T, default: &T) -> Option<T> {
    (asked != *default).then_some(asked)
}

#[cfg(test)]
mod tests {
    use clearway_lab::scenario::{Size, find};

    use super::*;

    fn of(scenario: &str) -> Settings {
        let scenario = find(scenario).expect("a scenario");
        let cases = scenario.cases(Size::Ci, "cubic").expect("its cases");
        Settings::of(&cases[0], Controller::Cubic)
    }

    #[test]
    fn settings_without_a_value_in_the_scenario_are_the_defaults() {
        let settings = of("shallow_25");
        assert_eq!(settings.window, None);
        assert_eq!(settings.idle_timeout, None);
        assert_eq!(settings.max_mtu, None);
        assert_eq!(settings.ack_threshold, None);
    }

    #[test]
    fn what_a_scenario_sets_holds_for_all() {
        assert_eq!(of("tiny_window").window, Some(4_000));
        let patient = of("handshake_loss").idle_timeout;
        assert_eq!(patient, Some(Duration::from_secs(150)));
    }
}
