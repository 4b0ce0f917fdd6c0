//! Which events the observer gets, and when. Events are built only if there is one.

use clearway_recovery::controller::State;
use clearway_recovery::limit::Limit;
use clearway_recovery::outcome::{LossCause, Lost};
use clearway_recovery::pto::TimerType;
use clearway_recovery::{PathRecovery, Recovery};
use smallvec::SmallVec;

use super::keyring::kind_of;
use crate::Instant;
use crate::count::Count;
use crate::event::{
    LossTrigger, Metrics, MigrationState, Observer, TimerChange, TimerKind, TraceEvent,
};
use crate::path::ecn::EcnState;
use crate::stream::StreamId;

/// The controller's internal values; this many fit without an allocation.
type Internals = SmallVec<[(&'static str, u64); 24]>;

/// Most reads that are kept until the next event.
const MAX_READS: usize = 64;

/// The observer, if there is one. Most connections have none.
#[derive(Debug, Default)]
pub(crate) struct Trace(Option<Box<ObserverState>>);

/// The observer, and the state that it was last told, so that it gets changes only.
#[derive(Debug)]
struct ObserverState {
    observer: Box<dyn Observer>,
    started: bool,
    controller: Option<State>,
    /// Counts of persistent congestion, spurious events, CE marks and congestion events so
    /// far.
    causes: [u64; 4],
    ecn: Option<EcnState>,
    timer: Option<TimerKind>,
    /// Bytes that the application read from streams: reads have no time of their own.
    reads: SmallVec<[(u64, u64); 2]>,
}

impl ObserverState {
    /// Passes an event to the observer, after the reads since the last one.
    fn emit(&mut self, now: Instant, event: &TraceEvent<'_>) {
        for (id, len) in core::mem::take(&mut self.reads) {
            let read = TraceEvent::StreamRead { id, len };
            self.observer.on_event(now, &read);
        }
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
}

impl Trace {
    /// Installs an observer, which receives every event from now on.
    pub(super) fn set(&mut self, observer: Box<dyn Observer>) {
        self.0 = Some(Box::new(ObserverState {
            observer,
            started: false,
            controller: None,
            causes: [0; 4],
            ecn: None,
            timer: None,
            reads: SmallVec::new(),
        }));
    }

    /// Removes the observer.
    pub(super) fn take(&mut self) -> Option<Box<dyn Observer>> {
        Some(self.0.take()?.observer)
    }

    /// Returns whether there is an observer.
    #[inline]
    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    /// Returns whether there is an observer that has not received the first events yet.
    #[inline]
    pub(super) fn needs_start(&self) -> bool {
        self.0.as_ref().is_some_and(|sink| !sink.started)
    }

    /// Passes one of the first events to the observer.
    pub(super) fn emit_first(&mut self, now: Instant, event: &TraceEvent<'_>) {
        if let Some(sink) = &mut self.0 {
            sink.started = true;
            sink.observer.on_event(now, event);
        }
    }

    /// Passes an event to the observer. The event is built only if there is one.
    #[inline]
    pub(super) fn emit<'e>(&mut self, now: Instant, event: impl FnOnce() -> TraceEvent<'e>) {
        if let Some(sink) = &mut self.0 {
            debug_assert!(sink.started, "every public method starts the trace");
            sink.emit(now, &event());
        }
    }

    /// Records that the application read `len` bytes from stream `id`.
    pub(super) fn stream_read(&mut self, id: StreamId, len: usize) {
        if let Some(sink) = &mut self.0 {
            sink.on_read(id.as_u64(), len);
        }
    }

    pub(super) fn packet_lost<F>(&mut self, now: Instant, lost: &Lost<F>) {
        self.emit(now, || TraceEvent::PacketLost {
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

    /// Emits a change in the state of a migration.
    pub(super) fn migration(
        &mut self,
        now: Instant,
        state: MigrationState,
        remote: std::net::SocketAddr,
    ) {
        self.emit(now, || TraceEvent::Migration { state, remote });
    }

    /// Emits the reason for not sending, `limit`, if it differs from `before`.
    pub(super) fn limit_changed(&mut self, now: Instant, before: Limit, limit: Limit) {
        if limit != before {
            self.emit(now, || TraceEvent::Limit(limit));
        }
    }

    /// Forgets what was traced of the active path, which changed.
    pub(super) fn reset_path_state(&mut self) {
        if let Some(sink) = &mut self.0 {
            sink.controller = None;
            sink.causes = [0; 4];
            sink.ecn = None;
        }
    }

    /// Emits the metrics of recovery. `path` is the active path.
    pub(super) fn recovery_updated<F>(
        &mut self,
        now: Instant,
        recovery: &Recovery<F>,
        path: &PathRecovery,
        ecn: EcnState,
        ce_marks: u64,
    ) {
        let Some(sink) = &mut self.0 else { return };
        let mut internals = Internals::new();
        let controller = path.controller();
        controller.internals(now, &mut |name, value| internals.push((name, value)));
        internals.push(("next_index", path.next_index()));
        let all_paths = recovery.paths().map(PathRecovery::in_flight).sum();
        internals.push(("in_flight_on_all_paths", all_paths));
        let metrics = metrics(path, &internals);
        sink.emit(now, &TraceEvent::Metrics(metrics));
        self.controller_updated(now, path, ce_marks);
        self.ecn(now, ecn);
        self.timer(now, recovery.armed_timer());
    }

    /// Emits the controller's state if it changed.
    pub(super) fn controller_updated(&mut self, now: Instant, path: &PathRecovery, ce_marks: u64) {
        let Some(sink) = &mut self.0 else { return };
        let (new, shown) = (path.controller().state(), path.controller().metrics());
        let causes = [
            shown.persistent_events,
            shown.spurious_events,
            ce_marks,
            shown.congestion_events,
        ];
        let old = sink.controller.replace(new);
        let before = core::mem::replace(&mut sink.causes, causes);
        let collapsed = causes[0] > before[0];
        if old == Some(new) && !collapsed {
            return;
        }
        let names = ["persistent_congestion", "spurious", "ecn", "loss"];
        let rose = causes.iter().zip(before).position(|(new, old)| *new > old);
        // Leaving recovery has no cause other than the ACK.
        let trigger = old.and(rose).and_then(|cause| names.get(cause).copied());
        let event = TraceEvent::CongestionState { old, new, trigger };
        sink.observer.on_event(now, &event);
    }

    /// Emits the state of ECN validation of the active path if it changed.
    pub(super) fn ecn(&mut self, now: Instant, new: EcnState) {
        let Some(sink) = &mut self.0 else { return };
        let old = sink.ecn.replace(new);
        if old != Some(new) {
            sink.emit(now, &TraceEvent::EcnState { old, new });
        }
    }

    fn timer(&mut self, now: Instant, pending: Option<(Instant, TimerType)>) {
        let Some(sink) = &mut self.0 else { return };
        let (kind, change) = match pending {
            Some((at, pending)) => {
                let kind = kind_of_timer(pending);
                sink.timer = Some(kind);
                (kind, TimerChange::Set(at - now))
            }
            None => match sink.timer.take() {
                Some(kind) => (kind, TimerChange::Cancelled),
                None => return,
            },
        };
        sink.emit(now, &TraceEvent::Timer { kind, change });
    }

    /// Emits the expiry of the recovery timer.
    pub(super) fn timer_expired(&mut self, now: Instant, pending: Option<(Instant, TimerType)>) {
        let Some((_, pending)) = pending else { return };
        let (kind, change) = (kind_of_timer(pending), TimerChange::Expired);
        self.emit(now, || TraceEvent::Timer { kind, change });
    }
}

fn metrics<'a>(path: &PathRecovery, internals: &'a [(&'static str, u64)]) -> Metrics<'a> {
    let shown = path.controller().metrics();
    let sample = path.delivery_rate();
    let rtt = path.rtt();
    let nanos = crate::time::nanos;
    Metrics {
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
        internals,
    }
}

fn kind_of_timer(pending: TimerType) -> TimerKind {
    match pending {
        TimerType::Loss => TimerKind::Loss,
        TimerType::Pto => TimerKind::Pto,
    }
}
