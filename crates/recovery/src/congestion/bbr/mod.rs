//! BBR, version 3 (draft-ietf-ccwg-bbr): a model of the path instead of a
//! reaction to loss. Sections cited here are the draft's.
//!
//! | module       | holds                                          | source          |
//! |--------------|------------------------------------------------|-----------------|
//! | `phase`      | the state machine's phases                     | §5.1            |
//! | `gains`      | the constants                                  | §2, §5.6.1      |
//! | `facts`      | the contents of an ACK, in the draft's terms   | §2.3            |
//! | `rounds`     | packet-timed round trips                       | §5.5.1          |
//! | `filters`    | max_bw, min_rtt, extra_acked                   | §5.5.3 – §5.5.9 |
//! | `model`      | bandwidth, BDP, bounds of bytes in flight      | §5.5, §5.6.4.2  |
//! | `startup`    | detecting the full pipe, also by loss          | §5.3.1          |
//! | `drain`      | emptying the queue of Startup                  | §5.3.2          |
//! | `probe_bw`   | the cycle of DOWN, CRUISE, REFILL, UP          | §5.3.3          |
//! | `long_term`  | inflight_longterm, changed by probes           | §5.3.3.9        |
//! | `probe_rtt`  | the round trip without a queue                 | §5.3.4          |
//! | `restart`    | sending again after idling                     | §5.4            |
//! | `loss`       | losses: result of a probe, short-term model    | §5.5.10         |
//! | `marks`      | CE marks, which are congestion, too            | §3.6            |
//! | `undo`       | undoing the response to spurious losses        | §5.5.11         |
//! | `control`    | pacing rate, quantum, window                   | §5.6            |
//! | `rng`        | random numbers for the time between probes     | §5.3.3.8        |
//!
//! Where the draft is silent, contradicts itself or meets QUIC:
//!
//! - The time is not known before the first packet, so timestamps that the draft sets
//!   at initialisation are set then. `probe_rtt_min_delay`, which it does not
//!   initialise, is unknown at first.
//! - `InitPacingRate()` is repeated at the first RTT sample. Otherwise the rate from the
//!   assumed RTT of 1 ms would never be reduced in Startup.
//! - The clock for coexistence with Reno compares rounds with bytes in the
//!   draft; here with datagrams.
//! - Gains are a function of the phase (table of §5.6.1). The draft's `StartProbeBW_*`
//!   do not set them.
//! - ProbeRTT aims at half the BDP, as its code says, not at four packets, as
//!   the text of §5.6.4.5 says.
//! - An ACK without a reliable rate sample does not count towards a plateau.
//! - "C.inflight reaches inflight_longterm" (§5.3.3.6) is judged by what was in
//!   flight before the ACK, because after it the bound of the window is never reached.
//! - QUIC has no retransmission timeout; a PTO is no sign of congestion (RFC
//!   9002 §6.2). Persistent congestion takes its place: the window falls to its
//!   minimum (RFC 9002 §7.6.2), the model stays, and the window is restored as
//!   after any recovery (§5.6.4.4). `InitLowerBounds()` therefore begins from the
//!   window before the collapse, or the collapse would become the model.
//! - A cycle of the max_bw filter ends when the next probe begins at the latest, and after
//!   ten seconds; samples that only ProbeRTT marked as application-limited count (see
//!   `filters`, `model`).
//! - An RTT sample that met a queue of at most two datagrams postpones ProbeRTT like a
//!   lower one, and both for ten seconds at most (see `filters`). CRUISE has no pacing margin then (see `control`).
//! - While inflight_longterm limits the bandwidth, a round that brings 17 % more than the best one
//!   is no plateau (see `BOUNDED_GROWTH` in `gains`).
//! - A recovery that ended within a loss round counts for it where Startup may end by loss, because
//!   rounds of recovery and of losses need not begin together (§5.3.1.3).
//! - The pacing rate is at least one minimum window per second.
//! - A model from before a long pause gives way to the first round with more than 2 % of loss
//!   (see `restart`).
//! - CE marks count as congestion (§3.6): like losses in the short-term model, and they
//!   end a probe. Besides, a marked round reduces the bytes in flight by the share of marks,
//!   and restarts the clock for coexistence with Reno (see `marks`).

mod control;
mod drain;
mod facts;
mod filters;
mod gains;
mod long_term;
mod loss;
mod marks;
mod model;
mod phase;
mod probe_bw;
mod probe_rtt;
mod restart;
mod rng;
mod rounds;
#[cfg(feature = "specimens")]
pub(super) mod specimens;
mod startup;
mod undo;

#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::controller::{
    Ack, Congestion, Controller, LostPacket, Metrics, Model, SendIndex, Sent, Spurious, State,
    WindowPolicy,
};
use crate::limit::Limit;
use crate::time::{Instant, nanos};

use super::doubt::Doubt;
use super::initial_window;
use facts::Facts;
use filters::{ExtraAcked, MaxBwFilter, MinRtt};
use gains::MIN_PIPE_DATAGRAMS;
use loss::LossRound;
use marks::Marks;
use phase::{AckPhase, Phase};
use rng::Rng;
use rounds::Rounds;
use startup::FullPipe;
use undo::Undo;

/// No bound: the draft's Infinity.
const INFINITE: u64 = u64::MAX;

/// BBRv3.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    rng: Rng,
    mds: u64,
    /// No ACK and no loss yet: the window is the initial one.
    untouched: bool,
    metrics: Metrics,

    phase: Phase,
    ack_phase: AckPhase,
    rounds: Rounds,
    /// C.delivered.
    delivered: u64,

    /// `None` before the first packet: there is no clock to read.
    clocks: Option<Clocks>,
    max_bw: MaxBwFilter,
    /// BBR.bw in bytes per second.
    bw: u64,
    bw_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,

    full_pipe: FullPipe,
    loss_round: LossRound,
    marks: Marks,
    /// BBR.drain_start_round.
    drain_start_round: u64,
    probe: Probe,
    probe_rtt: ProbeRttState,
    /// BBR.idle_restart.
    idle_restart: bool,
    /// Whether the model is from before a long pause (see `restart`).
    doubt: Doubt,

    undo: Undo,
    /// Losses of packets before it belong to a congestion event that has begun
    /// already; an ACK of a later one ends recovery (RFC 9002 §7.3.2).
    boundary: SendIndex,
    /// InLossRecovery().
    recovering: bool,
    /// Whether persistent congestion collapsed the window in this recovery.
    collapsed: bool,
    /// BBR.prior_cwnd.
    prior_cwnd: u64,

    cwnd: u64,
    /// C.pacing_rate in bytes per second.
    pacing_rate: u64,
    /// Whether the pacing rate is computed from a measured RTT.
    measured: bool,
    /// Whether the latest RTT sample met a queue of more than the shortest train.
    queue_seen: bool,
}

/// State that begins at the time of the first packet.
#[derive(Clone, Copy, Debug)]
struct Clocks {
    min_rtt: MinRtt,
    extra_acked: ExtraAcked,
}

impl Clocks {
    fn new(now: Instant) -> Self {
        Self {
            min_rtt: MinRtt::new(now),
            extra_acked: ExtraAcked::new(now),
        }
    }
}

/// State of ProbeBW (§2.14).
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// BBR.is_bw_probe_sample: ACKs of a probe are arriving.
    is_sample: bool,
    /// BBR.prev_probe_too_high.
    too_high: bool,
    /// BBR.prev_probe_precautionary.
    precautionary: bool,
    /// BBR.bw_probe_up_acked, in bytes.
    up_acked: u64,
    /// BBR.probe_up_acked_per_inc, in bytes.
    acked_per_increase: u64,
    /// BBR.bw_probe_up_rounds.
    up_rounds: u32,
    /// BBR.cycle_stamp.
    cycle_stamp: Instant,
    /// BBR.bw_probe_wait.
    wait: Duration,
}

/// State of ProbeRTT (§2.16.2).
#[derive(Clone, Copy, Debug, Default)]
struct ProbeRttState {
    /// BBR.probe_rtt_done_stamp.
    done_stamp: Option<Instant>,
    /// BBR.probe_rtt_round_done.
    round_done: bool,
}

impl Bbr {
    /// OnInit() (§5.2.1). Flows with different seeds probe at different times.
    pub(super) fn new(mds: u64, seed: u64) -> Self {
        let cwnd = initial_window(mds);
        let mut bbr = Self {
            rng: Rng::new(seed),
            mds,
            untouched: true,
            metrics: Metrics::default(),
            phase: Phase::Startup,
            ack_phase: AckPhase::Init,
            rounds: Rounds::default(),
            delivered: 0,
            clocks: None,
            max_bw: MaxBwFilter::default(),
            bw: 0,
            bw_shortterm: INFINITE,
            inflight_shortterm: INFINITE,
            inflight_longterm: INFINITE,
            full_pipe: FullPipe::default(),
            loss_round: LossRound::default(),
            marks: Marks::default(),
            drain_start_round: 0,
            probe: Probe {
                is_sample: false,
                too_high: false,
                precautionary: false,
                up_acked: 0,
                acked_per_increase: INFINITE,
                up_rounds: 0,
                cycle_stamp: Instant::ZERO,
                wait: Duration::ZERO,
            },
            probe_rtt: ProbeRttState::default(),
            idle_restart: false,
            doubt: Doubt::default(),
            undo: Undo::default(),
            boundary: 0,
            recovering: false,
            collapsed: false,
            prior_cwnd: 0,
            cwnd,
            pacing_rate: 0,
            measured: false,
            queue_seen: true,
        };
        bbr.init_pacing_rate(None);
        bbr
    }

    /// Returns BBR.MinPipeCwnd in bytes.
    fn min_pipe_cwnd(&self) -> u64 {
        self.mds.saturating_mul(MIN_PIPE_DATAGRAMS)
    }

    fn clocks(&mut self, now: Instant) -> &mut Clocks {
        self.clocks.get_or_insert_with(|| Clocks::new(now))
    }

    /// UpdateModelAndState() (§5.2.3).
    fn update_model_and_state(&mut self, facts: &Facts) {
        self.update_latest_delivery_signals(facts);
        self.update_congestion_signals(facts);
        self.update_ack_aggregation(facts);
        self.check_full_bw_reached(facts);
        self.check_startup_done(facts);
        self.check_drain_done(facts);
        self.update_probe_bw_cycle_phase(facts);
        self.update_min_rtt(facts);
        self.check_probe_rtt(facts);
        self.advance_latest_delivery_signals(facts);
        self.bound_bw_for_model();
    }
}

impl Controller for Bbr {
    fn on_sent(&mut self, sent: &Sent) {
        self.clocks(sent.now);
        let in_flight = sent.in_flight_before.saturating_add(sent.bytes);
        if in_flight.saturating_add(self.mds) > self.cwnd {
            self.rounds.note_window_full();
        }
    }

    /// UpdateOnACK() (§5.2.3).
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.untouched = false;
        let facts = Facts::of(ack);
        self.delivered = facts.total_delivered;
        if ack.in_flight_before.saturating_add(self.mds) > self.cwnd {
            self.rounds.note_window_full();
        }
        self.update_model_and_state(&facts);
        let recovered = self.recovering && ack.largest_index >= self.boundary;
        self.recovering &= !recovered;
        if recovered {
            self.loss_round.note_recovered();
        }
        self.update_control_parameters(&facts, recovered);
        if !self.is_limited_by_application(&facts) {
            self.doubt.on_measured(facts.now);
        }
    }

    fn on_lost(&mut self, lost: &LostPacket) {
        self.untouched = false;
        self.handle_lost_packet(lost);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.untouched = false;
        self.handle_congestion(event);
    }

    fn on_spurious(&mut self, event: &Spurious) {
        self.handle_spurious_loss_detection(event);
    }

    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.rounds.set_application_limited(limit.is_application());
        self.doubt.on_limit(limit, now);
    }

    fn restart_from_idle(&mut self, now: Instant) {
        self.handle_restart_from_idle(now);
    }

    fn on_mds(&mut self, mds: u64) {
        self.mds = mds;
        if self.untouched {
            self.cwnd = initial_window(mds);
            self.init_pacing_rate(None);
        }
        self.cwnd = self.cwnd.max(self.min_pipe_cwnd());
    }

    fn marks_app_limited(&self) -> bool {
        self.phase == Phase::ProbeRtt
    }

    fn duplicate(&self) -> Option<Box<dyn Controller>> {
        Some(Box::new(self.clone()))
    }

    fn window(&self) -> u64 {
        self.cwnd
    }

    fn min_window(&self) -> u64 {
        self.min_pipe_cwnd()
    }

    fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate)
    }

    fn window_policy(&self) -> WindowPolicy {
        WindowPolicy::Model
    }

    fn state(&self) -> State {
        self.phase.state()
    }

    fn metrics(&self) -> Metrics {
        let finite = |bound: u64| (bound != INFINITE).then_some(bound);
        Metrics {
            model: Some(Model {
                max_bw: self.max_bw.get(),
                bw: self.bw,
                bw_shortterm: finite(self.bw_shortterm),
                min_rtt: self.min_rtt(),
                inflight_longterm: finite(self.inflight_longterm),
                inflight_shortterm: finite(self.inflight_shortterm),
                extra_acked: self.extra_acked(),
                send_quantum: self.send_quantum(),
                round_count: self.rounds.count,
            }),
            ..self.metrics
        }
    }

    fn internals(&self, _now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        show("boundary", self.boundary);
        show("max_bw", self.max_bw.get());
        show("bw", self.bw);
        let bounds = [
            ("bw_shortterm", self.bw_shortterm),
            ("inflight_shortterm", self.inflight_shortterm),
            ("inflight_longterm", self.inflight_longterm),
        ];
        for (name, bound) in bounds {
            if bound != INFINITE {
                show(name, bound);
            }
        }
        if let Some(min_rtt) = self.min_rtt() {
            show("min_rtt", nanos(min_rtt));
        }
        show("extra_acked", self.extra_acked());
        show("round_count", self.rounds.count);
        show("pacing_gain", self.pacing_gain().0 * 10);
        if self.full_pipe.reached {
            show("probe_wait", nanos(self.probe.wait));
        }
    }

    fn name(&self) -> &'static str {
        "bbr"
    }
}
