//! The state of the connection at an event, as all detectors need it.

use clearway_recovery::controller::WindowPolicy;
use clearway_recovery::limit::{Limit, LimitGroup};

use super::Profile;
use super::ledger::{Acked, Ledger};
use crate::event::{
    BySpace, Event, EventData, Frame, Metrics, Packet, PacketType, Role, TimerChange, TimerKind,
};

/// The datagram size assumed until the trace gives one (RFC 9000 §14).
const DEFAULT_MDS: u64 = 1200;

/// What an event changed, in the terms that detectors use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct EventEffects {
    /// A packet that counts in flight was sent.
    pub(super) sent: Option<u64>,
    /// The effect of ACK frames that arrived.
    pub(super) acked: Option<Acked>,
    /// A packet was lost, other than MTU probes and withdrawn packets.
    pub(super) lost: bool,
    /// Its number and size, if known.
    pub(super) loss: Option<(u64, u64)>,
    /// A probe timeout expired.
    pub(super) pto: bool,
    /// The peer reported new CE marks.
    pub(super) marked: bool,
    /// Metrics were reported.
    pub(super) metrics: bool,
    /// Packets are sent on another path from now on.
    pub(super) path: bool,
    /// The controller's state was reported.
    pub(super) state: bool,
}

/// The connection as the trace shows it so far.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) now: u64,
    pub(super) role: Option<Role>,
    pub(super) controller: Option<String>,
    /// The window policy, if the trace records it.
    recorded_policy: Option<WindowPolicy>,
    /// The window policy, recorded or inferred.
    policy: WindowPolicy,
    pub(super) mds: u64,
    pub(super) min_window: Option<u64>,
    pub(super) initial_window: u64,
    pub(super) metrics: Metrics,
    /// The limit on sending; `None` if it is not recorded.
    pub(super) limit: Option<Limit>,
    pub(super) limit_since: u64,
    /// Whether the trace records limits at all.
    pub(super) tells_limits: bool,
    pub(super) state: Option<String>,
    pub(super) state_since: u64,
    pub(super) last_sent: Option<u64>,
    pub(super) last_received: Option<u64>,
    pub(super) last_ack: Option<u64>,
    pub(super) last_loss: Option<u64>,
    /// The last loss, CE mark, PTO or change of path.
    pub(super) last_trouble: Option<u64>,
    pub(super) ledger: Ledger,
    /// Bytes in flight: as last reported, plus what was sent since.
    pub(super) flight: Option<u64>,
    ce: BySpace<u64>,
    pto_count: u64,
    /// Whether the trace records expired timers, so that they need not be inferred from counts.
    tells_timers: bool,
    /// Whether it records their number, so that they need not be inferred from packets.
    tells_counts: bool,
    /// When the last ack-eliciting packet was sent that nothing has been acknowledged since.
    unanswered: Option<u64>,
    /// Number of probe timeouts.
    pub(super) probe_timeouts: u64,
    pub(super) confirmed: bool,
    pub(super) closed: bool,
}

impl View {
    pub(super) fn new(profile: &Profile) -> Self {
        let mut this = Self {
            now: 0,
            role: profile.role,
            controller: profile.controller.clone(),
            recorded_policy: None,
            policy: WindowPolicy::Reactive,
            mds: DEFAULT_MDS,
            min_window: profile.min_window,
            initial_window: 10 * DEFAULT_MDS,
            metrics: Metrics::default(),
            limit: None,
            limit_since: 0,
            tells_limits: false,
            state: None,
            state_since: 0,
            last_sent: None,
            last_received: None,
            last_ack: None,
            last_loss: None,
            last_trouble: None,
            ledger: Ledger::default(),
            flight: None,
            ce: BySpace::default(),
            pto_count: 0,
            tells_timers: false,
            tells_counts: false,
            unanswered: None,
            probe_timeouts: 0,
            confirmed: false,
            closed: false,
        };
        this.policy = this.infer_policy();
        this
    }

    /// Smoothed RTT, once measured.
    pub(super) fn srtt(&self) -> Option<u64> {
        self.metrics.smoothed_rtt.filter(|rtt| *rtt > 0)
    }

    /// This many round trips; zero before the first measurement.
    pub(super) fn round_trips(&self, count: u64) -> u64 {
        self.srtt().unwrap_or(0).saturating_mul(count)
    }

    /// The longest time between two observations that counts towards the `needed` time of a
    /// finding.
    pub(super) fn longest_stretch(&self, needed: u64) -> u64 {
        self.round_trips(2).max(needed / 4)
    }

    pub(super) fn window(&self) -> Option<u64> {
        self.metrics.congestion_window
    }

    /// The minimum window: as recorded, or else two datagrams (RFC 9002 §7.2), four for controllers
    /// with a model (draft-ietf-ccwg-bbr, `BBR.MinPipeCwnd`).
    pub(super) fn floor(&self) -> u64 {
        let datagrams = match self.window_policy() {
            WindowPolicy::Reactive | WindowPolicy::Constant => 2,
            WindowPolicy::Model => 4,
        };
        self.min_window.unwrap_or(self.datagrams(datagrams))
    }

    /// The size of this many full datagrams, in bytes.
    pub(super) fn datagrams(&self, count: u64) -> u64 {
        self.mds.saturating_mul(count)
    }

    /// A probe timeout without backoff (RFC 9002 §6.2.1).
    pub(super) fn pto(&self) -> Option<u64> {
        let variance = self.metrics.rtt_variance?;
        let spread = variance.saturating_mul(4).max(1_000_000);
        Some(
            self.srtt()?
                .saturating_add(spread)
                .saturating_add(25_000_000),
        )
    }

    /// How the controller decides on its window: as recorded, or for traces of other stacks, which
    /// do not record it, as its name or its state suggest.
    pub(super) const fn window_policy(&self) -> WindowPolicy {
        self.policy
    }

    fn infer_policy(&self) -> WindowPolicy {
        if let Some(recorded) = self.recorded_policy {
            return recorded;
        }
        let name = self.controller.as_deref().unwrap_or("");
        let probes = self.state.as_deref().is_some_and(|state| {
            state.starts_with("probe") || state == "startup" || state == "drain"
        });
        if name.starts_with("fixed") {
            WindowPolicy::Constant
        } else if probes || name.to_ascii_lowercase().contains("bbr") {
            WindowPolicy::Model
        } else {
            WindowPolicy::Reactive
        }
    }

    /// Whether data is waiting for the network; `None` if the trace does not allow an answer.
    /// Without recorded limits, a full window counts as such.
    pub(super) fn waits_for_network(&self) -> Option<bool> {
        match self.limit {
            Some(limit) => Some(limit.group() == LimitGroup::Network),
            None if self.tells_limits => None,
            None => {
                let full = self.flight?.saturating_add(self.mds) > self.window()?;
                full.then_some(true)
            }
        }
    }

    /// Whether the smoothed RTT shows a queue: a quarter above the path's minimum, and 5 ms.
    pub(super) fn has_queue(&self) -> bool {
        let bound = |min: u64| min.saturating_add(min / 4).saturating_add(5_000_000);
        let min = self.metrics.min_rtt.map(bound);
        self.srtt().zip(min).is_some_and(|(srtt, min)| srtt > min)
    }

    /// Whether the application or flow control, not the network, is the limit.
    pub(super) fn is_quiet(&self) -> bool {
        self.waits_for_network() == Some(false)
    }

    /// Events are missing from the trace here.
    pub(super) fn on_missing_events(&mut self) {
        self.ledger.on_missing_events();
        self.limit = None;
        self.flight = None;
        self.unanswered = None;
    }

    /// Processes an event and returns what it changed.
    pub(super) fn on_event(&mut self, event: &Event) -> EventEffects {
        self.now = self.now.max(event.time);
        let mut effects = EventEffects::default();
        match &event.data {
            EventData::ConnectionStarted(started) => self.role = self.role.or(started.role),
            EventData::ConnectionClosed(_) => self.closed = true,
            EventData::ConnectionStateUpdated { new } => match new.as_ref() {
                "handshake_confirmed" => self.confirmed = true,
                "closed" | "closing" | "draining" => self.closed = true,
                _ => {}
            },
            EventData::PacketSent(packet) => {
                effects.pto = self.is_probe(packet);
                self.ledger.on_sent(self.now, packet);
                if packet.counts_in_flight() != Some(false) {
                    effects.sent = packet.size;
                    self.last_sent = Some(self.now);
                    let size = packet.size.unwrap_or(0);
                    self.flight = self.flight.map(|flight| flight.saturating_add(size));
                    if !packet.mtu_probe {
                        self.mds = self.mds.max(size.min(9_000));
                    }
                }
            }
            EventData::PacketReceived(packet) => {
                self.last_received = Some(self.now);
                for frame in packet.frames() {
                    self.on_frame(packet.kind, frame, &mut effects);
                }
            }
            EventData::PacketLost {
                kind,
                number,
                mtu_probe,
                trigger,
                ..
            } => {
                let withdrawn = trigger.as_deref() == Some("withdrawn");
                let sent = self.ledger.on_lost(*kind, *number, withdrawn);
                let probe = *mtu_probe || sent.is_some_and(|sent| sent.mtu_probe);
                effects.lost = !withdrawn && !probe;
                effects.loss = sent
                    .filter(|_| effects.lost)
                    .map(|sent| (sent.number, sent.size));
            }
            EventData::KeyDiscarded { kind } => {
                if let Some(space) = kind.space() {
                    self.ledger.on_discarded(space);
                }
            }
            EventData::TupleAssigned { .. } => {
                effects.path = true;
                self.ledger.on_path();
                self.metrics = Metrics::default();
                self.flight = None;
            }
            EventData::DataBlockedUpdated { reason } => {
                self.tells_limits = true;
                if self.limit != *reason {
                    self.limit_since = self.now;
                }
                self.limit = *reason;
            }
            EventData::TimerUpdated { kind, change } => {
                self.tells_timers = true;
                effects.pto = (*kind, *change) == (Some(TimerKind::Pto), TimerChange::Expired);
            }
            EventData::RecoveryParametersSet(it) => {
                let named = it.controller.as_deref().map(str::to_owned);
                self.controller = named.or(self.controller.take());
                self.recorded_policy = it.window_policy.or(self.recorded_policy);
                self.policy = self.infer_policy();
                self.mds = it.max_datagram_size.unwrap_or(self.mds);
                self.min_window = it.minimum_congestion_window.or(self.min_window);
                let window = it.initial_congestion_window;
                self.initial_window = window.unwrap_or(self.datagrams(10));
            }
            EventData::RecoveryMetricsUpdated(it) => self.on_metrics(it, &mut effects),
            EventData::CongestionStateUpdated { new, .. } => {
                effects.state = true;
                self.state = Some(new.as_ref().to_owned());
                self.policy = self.infer_policy();
                self.state_since = self.now;
            }
            EventData::MtuUpdated { new, .. } => self.mds = *new,
            EventData::ParametersSet(_)
            | EventData::VersionInformation { .. }
            | EventData::AlpnInformation { .. }
            | EventData::PacketDropped { .. }
            | EventData::StreamDataRead { .. }
            | EventData::StreamDataBlockedUpdated { .. }
            | EventData::MigrationStateUpdated { .. }
            | EventData::KeyUpdated { .. }
            | EventData::EcnStateUpdated { .. }
            | EventData::Scenario { .. }
            | EventData::Marker { .. }
            | EventData::EventsDropped { .. }
            | EventData::Other { .. } => {}
        }
        if effects.lost {
            self.last_loss = Some(self.now);
        }
        self.probe_timeouts = self.probe_timeouts.saturating_add(effects.pto.into());
        if effects.lost || effects.pto || effects.marked || effects.path {
            self.last_trouble = Some(self.now);
        }
        effects
    }

    /// Whether a packet shows a probe timeout that the trace does not record: it is the first one
    /// sent for at least a probe timeout, in which nothing in flight was acknowledged, although a
    /// sender may send more within its window.
    fn is_probe(&mut self, packet: &Packet) -> bool {
        if packet.kind != PacketType::OneRtt || packet.ack_eliciting() != Some(true) {
            return false;
        }
        let waited = self.unanswered.replace(self.now);
        let in_flight = self.ledger.in_flight().is_some_and(|bytes| bytes > 0);
        if self.tells_timers || self.tells_counts || !in_flight {
            return false;
        }
        let timeout = self.pto();
        let passed = waited.map(|at| self.now.saturating_sub(at));
        passed
            .zip(timeout)
            .is_some_and(|(passed, timeout)| passed >= timeout)
    }

    fn on_frame(&mut self, kind: PacketType, frame: &Frame, effects: &mut EventEffects) {
        match frame {
            Frame::Ack { ecn, .. } => {
                let acked = self.ledger.on_ack(kind, frame);
                let sum = effects.acked.get_or_insert_default();
                sum.packets = sum.packets.saturating_add(acked.packets);
                sum.bytes = sum.bytes.saturating_add(acked.bytes);
                sum.spurious = sum.spurious.saturating_add(acked.spurious);
                sum.largest = sum.largest.max(acked.largest);
                self.last_ack = Some(self.now);
                if acked.packets > 0 {
                    self.unanswered = None;
                }
                if let (Some([_, _, ce]), Some(space)) = (ecn, kind.space()) {
                    let known = self.ce.get_mut(space);
                    effects.marked |= *ce > *known;
                    *known = (*ce).max(*known);
                }
            }
            Frame::HandshakeDone => self.confirmed = true,
            _ => {}
        }
    }

    fn on_metrics(&mut self, new: &Metrics, effects: &mut EventEffects) {
        effects.metrics = true;
        if let Some(count) = new.pto_count {
            self.tells_counts = true;
            // If expired timers are recorded, the count only repeats them.
            effects.pto = !self.tells_timers && count > self.pto_count;
            self.pto_count = count;
        }
        let known = &mut self.metrics;
        let keep = |old: &mut Option<u64>, new: Option<u64>| *old = new.or(*old);
        keep(&mut known.min_rtt, new.min_rtt);
        keep(&mut known.smoothed_rtt, new.smoothed_rtt);
        keep(&mut known.latest_rtt, new.latest_rtt);
        keep(&mut known.rtt_variance, new.rtt_variance);
        keep(&mut known.pto_count, new.pto_count);
        keep(&mut known.congestion_window, new.congestion_window);
        keep(&mut known.bytes_in_flight, new.bytes_in_flight);
        keep(&mut known.ssthresh, new.ssthresh);
        keep(&mut known.packets_in_flight, new.packets_in_flight);
        keep(&mut known.pacing_rate, new.pacing_rate);
        keep(&mut known.delivery_rate, new.delivery_rate);
        known.app_limited = new.app_limited.or(known.app_limited);
        keep(&mut known.delivered, new.delivered);
        keep(&mut known.lost, new.lost);
        keep(&mut known.congestion_events, new.congestion_events);
        keep(&mut known.spurious_events, new.spurious_events);
        keep(&mut known.persistent_events, new.persistent_events);
        if !new.extra.is_empty() {
            known.extra.clone_from(&new.extra);
        }
        if new.bytes_in_flight.is_some() {
            self.flight = new.bytes_in_flight;
        }
    }
}
