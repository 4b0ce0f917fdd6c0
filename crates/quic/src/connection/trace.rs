//! What observers are told, and when: nothing is built unless one is set.

use clearway_recovery::PathRecovery;
use clearway_recovery::controller::State;
use clearway_recovery::outcome::{LossCause, Lost};
use clearway_recovery::pto::Pending;
use smallvec::SmallVec;

use super::Connection;
use super::outcome::kind_of;
use super::setup::local_parameters;
use crate::count::Count;
use crate::event::{
    ConnectionState, LossTrigger, Metrics, MigrationState, Observer, RecoveryParameters,
    TimerChange, TimerKind, TraceEvent,
};
use crate::path::ecn::EcnState;
use crate::stream::StreamId;
use crate::{Instant, Role};

/// Controller figures that fit without an allocation.
type Internals = SmallVec<[(&'static str, u64); 24]>;

/// Reads remembered until there is an event to tell them with.
const MAX_READS: usize = 64;

/// The observer, and what it was last shown, so that it hears of changes only.
/// Most connections have none.
#[derive(Debug)]
pub(super) struct Trace {
    observer: Box<dyn Observer>,
    started: bool,
    controller: Option<State>,
    /// Congestion events, undone ones, collapses and CE marks so far.
    causes: [u64; 4],
    ecn: Option<EcnState>,
    timer: Option<TimerKind>,
    /// Bytes the application took off streams: reading knows no time.
    reads: SmallVec<[(u64, u64); 2]>,
}

impl Trace {
    fn tell(&mut self, now: Instant, event: &TraceEvent<'_>) {
        self.observer.on_event(now, event);
    }

    fn on_read(&mut self, id: u64, len: usize) {
        if len == 0 {
            return;
        }
        let full = self.reads.len() >= MAX_READS;
        match self.reads.last_mut() {
            Some((last, sum)) if *last == id || full => sum.count(len as u64),
            Some(_) | None => self.reads.push((id, len as u64)),
        }
    }

    /// Another path, another controller: nothing of it was shown.
    fn forget_path(&mut self) {
        self.controller = None;
        self.causes = [0; 4];
        self.ecn = None;
    }
}

impl Connection {
    /// Installs a trace sink. It sees everything from now on.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.trace = Some(Box::new(Trace {
            observer,
            started: false,
            controller: None,
            causes: [0; 4],
            ecn: None,
            timer: None,
            reads: SmallVec::new(),
        }));
    }

    /// Takes the trace sink away: nothing is traced any more.
    pub fn take_observer(&mut self) -> Option<Box<dyn Observer>> {
        Some(self.trace.take()?.observer)
    }

    pub(super) fn trace<'e>(&mut self, now: Instant, event: impl FnOnce() -> TraceEvent<'e>) {
        if self.trace.is_some() {
            self.trace_start(now);
            self.tell(now, &event());
        }
    }

    fn tell(&mut self, now: Instant, event: &TraceEvent<'_>) {
        if let Some(trace) = &mut self.trace {
            trace.tell(now, event);
        }
    }

    /// What comes before any event: who this is, once; what was read since the
    /// last one.
    fn trace_start(&mut self, now: Instant) {
        let Some(trace) = &mut self.trace else { return };
        let reads = core::mem::take(&mut trace.reads);
        if !core::mem::replace(&mut trace.started, true) {
            self.trace_beginning(now);
        }
        for (id, len) in reads {
            self.tell(now, &TraceEvent::StreamRead { id, len });
        }
    }

    fn trace_beginning(&mut self, now: Instant) {
        let path = self.paths.active();
        let recovery = self.active_recovery();
        let config = self.recovery.config();
        let event = TraceEvent::Started {
            role: self.role,
            local: path.local_ip,
            remote: path.remote,
            original_dcid: self.tls.original_dcid,
            local_cid: self.tls.local_cid,
            recovery: RecoveryParameters {
                controller: recovery.controller().name(),
                window_policy: recovery.controller().window_policy(),
                initial_rtt: config.initial_rtt,
                packet_threshold: config.packet_threshold,
                time_threshold_eighths: config.time_threshold_eighths,
                persistent_congestion_threshold: config.persistent_congestion_threshold,
                max_datagram_size: recovery.mds(),
                initial_window: recovery.window(),
                min_window: recovery.controller().min_window(),
            },
        };
        self.tell(now, &event);
        // Not kept for it: made anew from what made them.
        let mut parameters = local_parameters(&self.config, self.role, self.tls.local_cid);
        if self.role == Role::Server {
            parameters.original_destination_connection_id = Some(self.tls.original_dcid);
        }
        let parameters = &parameters;
        let remote = false;
        let event = TraceEvent::ParametersSet { remote, parameters };
        self.tell(now, &event);
        // An observer installed later has missed the peer's.
        self.trace_peer_parameters(now);
        let attempted = ConnectionState::Attempted;
        self.tell(now, &TraceEvent::StateChanged(attempted));
        let limit = self.limit;
        self.tell(now, &TraceEvent::Limit(limit));
        self.trace_controller(now);
    }

    /// The application took `len` bytes off stream `id`.
    pub(super) fn trace_read(&mut self, id: StreamId, len: usize) {
        if let Some(trace) = &mut self.trace {
            trace.on_read(id.as_u64(), len);
        }
    }

    /// The peer's transport parameters are in force.
    pub(super) fn trace_peer_parameters(&mut self, now: Instant) {
        if self.trace.as_ref().is_none_or(|trace| !trace.started) {
            return;
        }
        if let Some(parameters) = &self.peer_transport_parameters() {
            let remote = true;
            self.tell(now, &TraceEvent::ParametersSet { remote, parameters });
        }
    }

    /// The application protocol is chosen, and the handshake is complete.
    pub(super) fn trace_complete(&mut self, now: Instant) {
        self.trace(now, || {
            TraceEvent::StateChanged(ConnectionState::HandshakeComplete)
        });
        let Self { trace, tls, .. } = self;
        if let (Some(trace), Some(alpn)) = (trace, &tls.summary.alpn)
            && trace.started
        {
            trace.tell(now, &TraceEvent::AlpnChosen(alpn));
        }
    }

    /// The connection has ended, for the reason kept.
    pub(super) fn trace_end(&mut self, now: Instant) {
        self.trace_start(now);
        let Self { trace, error, .. } = self;
        if let (Some(trace), Some(error)) = (trace, error) {
            trace.tell(now, &TraceEvent::Closed(error));
        }
    }

    pub(super) fn trace_lost<F>(&mut self, now: Instant, lost: &Lost<F>) {
        self.trace(now, || TraceEvent::PacketLost {
            kind: kind_of(lost.space),
            number: lost.number,
            size: lost.size,
            mtu_probe: lost.mtu_probe,
            trigger: match lost.cause {
                LossCause::PacketThreshold => LossTrigger::Reordering,
                LossCause::TimeThreshold => LossTrigger::Time,
                LossCause::PathRemoved | LossCause::NotAccepted => LossTrigger::Withdrawn,
            },
        });
    }

    /// A change of path got further.
    pub(super) fn trace_migration(
        &mut self,
        now: Instant,
        state: MigrationState,
        remote: std::net::SocketAddr,
    ) {
        self.trace(now, || TraceEvent::Migration { state, remote });
    }

    /// Packets go elsewhere, under another controller.
    pub(super) fn trace_path_changed(&mut self, now: Instant) {
        let remote = self.paths.active().remote;
        if let Some(trace) = &mut self.trace {
            trace.forget_path();
        }
        self.trace(now, || TraceEvent::PathChanged { remote });
        self.trace_recovery(now);
    }

    /// The figures of recovery may have changed.
    pub(super) fn trace_recovery(&mut self, now: Instant) {
        if self.trace.is_none() {
            return;
        }
        self.trace_start(now);
        self.trace_metrics(now);
        self.trace_controller(now);
        self.trace_ecn(now);
        self.trace_timer(now);
    }

    fn trace_metrics(&mut self, now: Instant) {
        let mut internals = Internals::new();
        let path = self.active_recovery();
        let controller = path.controller();
        controller.internals(now, &mut |name, value| internals.push((name, value)));
        internals.push(("next_index", path.next_index()));
        let all_paths = self.recovery.paths().map(PathRecovery::in_flight).sum();
        internals.push(("in_flight_on_all_paths", all_paths));
        let shown = controller.metrics();
        let sample = path.delivery_rate();
        let rtt = path.rtt();
        let nanos = crate::time::nanos;
        let metrics = Metrics {
            window: path.window(),
            in_flight: path.in_flight(),
            packets_in_flight: path.packets_in_flight(),
            ssthresh: shown.ssthresh,
            smoothed_rtt: nanos(rtt.smoothed()),
            min_rtt: rtt.min().map(nanos),
            latest_rtt: rtt.has_sample().then(|| nanos(rtt.latest())),
            rtt_variance: nanos(rtt.variance()),
            pto_count: path.pto_count(),
            pacing_rate: path.pacing_rate(),
            delivery_rate: sample.map(|sample| sample.delivery_rate),
            app_limited: sample.is_some_and(|sample| sample.app_limited),
            delivered: path.delivered(),
            lost: path.lost(),
            congestion_events: shown.congestion_events,
            spurious_events: shown.spurious_events,
            persistent_events: shown.persistent_events,
            internals: &internals,
        };
        if let Some(trace) = &mut self.trace {
            trace.tell(now, &TraceEvent::Metrics(metrics));
        }
    }

    fn trace_controller(&mut self, now: Instant) {
        let controller = self.active_recovery().controller();
        let (new, shown) = (controller.state(), controller.metrics());
        let causes = [
            shown.persistent_events,
            shown.spurious_events,
            self.counters.ce_marks,
            shown.congestion_events,
        ];
        let Some(trace) = &mut self.trace else { return };
        let old = trace.controller.replace(new);
        let before = core::mem::replace(&mut trace.causes, causes);
        let collapsed = causes[0] > before[0];
        if old == Some(new) && !collapsed {
            return;
        }
        let names = ["persistent_congestion", "spurious", "ecn", "loss"];
        let rose = causes.iter().zip(before).position(|(new, old)| *new > old);
        // Leaving recovery has no cause but the ACK.
        let trigger = old.and(rose).and_then(|cause| names.get(cause).copied());
        trace.tell(now, &TraceEvent::CongestionState { old, new, trigger });
    }

    fn trace_ecn(&mut self, now: Instant) {
        let new = self.paths.active().ecn.state();
        let Some(trace) = &mut self.trace else { return };
        let old = trace.ecn.replace(new);
        if old != Some(new) {
            trace.tell(now, &TraceEvent::EcnState { old, new });
        }
    }

    fn trace_timer(&mut self, now: Instant) {
        let Some(trace) = &mut self.trace else { return };
        let (kind, change) = match self.recovery.pending() {
            Some((at, pending)) => {
                let kind = match pending {
                    Pending::Loss => TimerKind::Loss,
                    Pending::Pto => TimerKind::Pto,
                };
                trace.timer = Some(kind);
                (kind, TimerChange::Set(at - now))
            }
            None => match trace.timer.take() {
                Some(kind) => (kind, TimerChange::Cancelled),
                None => return,
            },
        };
        trace.tell(now, &TraceEvent::Timer { kind, change });
    }

    /// The recovery timer is about to be served.
    pub(super) fn trace_timer_expired(&mut self, now: Instant) {
        let kind = match self.recovery.pending() {
            Some((_, Pending::Loss)) => TimerKind::Loss,
            Some((_, Pending::Pto)) => TimerKind::Pto,
            None => return,
        };
        let change = TimerChange::Expired;
        self.trace(now, || TraceEvent::Timer { kind, change });
    }
}
