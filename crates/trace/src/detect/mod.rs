//! Detectors of problems that a trace can show.
//!
//! Each detector is a small state machine over one `View` of the connection,
//! fed with live events or with any qlog. If a trace does not record what a
//! detector needs, the detector stays silent. A stretch of time without samples proves nothing and
//! is not counted (`condition`), and after missing events all detectors begin again. S is the smoothed RTT, F the minimum window,
//! M the maximum datagram size.
//!
//! | detector | condition | needs |
//! |---|---|---|
//! | `floor_pinned` | window ≤ F + M for ≥ 20 S, data waiting, no loss or PTO, no CE at a queue | window, RTT |
//! | `recovery_flap` | ≥ 8 recovery ↔ avoidance flips, the longer of two gaps 0.5–1.6 S in the median, no loss | congestion states, RTT |
//! | `boundary_in_future` | the end of recovery lies beyond the packets sent so far | extra `boundary` and `next_index`, or `recovery_start` |
//! | `false_idle` | curve moved by more than now − last ACK + 1 ms while data waited; or not moved over a pause; or restarted without a reduction | extra `epoch_shift` and `t`, ACK frames |
//! | `multi_cut` | > 1 reduction with nothing sent and acknowledged between | ssthresh or `congestion_events`, ACK frames |
//! | `growth_missing` | ≥ 10 S and ≥ 1 s congestion-limited, no loss, window unmoved | window, RTT, reasons |
//! | `pacing_stall` | room ≥ M, data waiting, no send for longer than rate × (burst + 2 M) and 5 ms | reasons, window, pacing rate |
//! | `phase_stuck` | DOWN > its wait + 2 S, Drain > 4 rounds, UP > 20 flat rounds | BBR's states, RTT |
//! | `bw_collapse` | `max_bw` < half or > twice the p90 delivery rate of 10 s; a note if below while a queue stands | extra `max_bw`, delivery rate |
//! | `startup_stuck` | > 30 rounds of slow start or Startup, data waiting | congestion states, RTT |
//! | `pto_storm` | 3 PTOs in a row, or 3 in 10 S while ACKs arrive | timers or `pto_count`, or else frames, sizes and RTT |
//! | `spurious_storm` | ≥ 20 % of losses later acknowledged, ≥ 5 in a second | losses, ACK frames |
//! | `applimited_inflation` | window > 2 × largest flight since the last reduction | window, in flight |
//! | `bif_desync` | reported bytes in flight ≠ the sum over packets | frames, sizes, in flight |
//! | `amplification_deadlock` | blocked by amplification, nothing received | reasons |
//! | `persistent_false` | persistent congestion without losses over 3 PTO | `persistent_events` or its trigger, losses, ACK frames |
//! | `rtt_step` | samples at an empty pipe of an idle link far above the minimum RTT | RTTs, in flight |
//! | `fc_deadlock` | blocked on credit > 5 S, everything acknowledged, no MAX_*; or the receiver read and sent none | reasons or *_BLOCKED frames |
//! | `undo_unproven` | an undo without a packet that was declared lost and acknowledged since the last one | `spurious_events`, losses, ACK frames |
//! | `startup_overrun` | Startup through ≥ 3 rounds in a row of > 2 % and ≥ 6 ranges lost | BBR's states, losses, ACK frames |
//! | `pacing_starved` | Startup for > 2 S at less than half the initial window per RTT | BBR's states, pacing rate, RTT |
//! | `excess_loss` | ≥ 10 % lost over 10 s, in 8 of them, at a long queue | losses, ACK frames, RTT |
//! | `probe_rtt_overdue` | a long queue for ≥ 20 s without a ProbeRTT | BBR's states, RTT, reasons |
//! | `underused_path` | < half of the rate delivered before for ≥ 30 s, network-limited at an empty queue without losses or marks | reasons, RTT, `delivered` |
//! | `loss_limited`, `mark_limited` | ≤ 60 % of the best delivery rate of 10 s for ≥ 7 s, losses or marks in 4 of 5 seconds, the queue empty in each | reasons, RTT, delivery rate, `delivered` |
//! | `flow_starved` | a bulk flow gets less than a tenth of an equal share for ≥ 20 s | several flows: found by the lab, not from a trace |
//! | `busy_timer` | something is due more than 10,000 times without time passing | virtual time: found by the lab's world, not from a trace |

mod amplification_deadlock;
mod applimited_inflation;
mod bif_desync;
mod boundary_in_future;
mod bw_collapse;
mod condition;
mod congestion_limited;
mod detector;
mod excess_loss;
mod false_idle;
mod fc_deadlock;
mod finding;
mod floor_pinned;
mod growth_missing;
mod ledger;
mod multi_cut;
mod pacing_stall;
mod pacing_starved;
mod persistent_false;
mod phase_stuck;
mod probe_rtt_overdue;
mod pto_storm;
mod recovery_flap;
mod rtt_step;
mod spurious_storm;
mod startup_overrun;
mod startup_stuck;
#[cfg(test)]
pub(crate) mod testing;
mod underused_path;
mod undo_unproven;
mod view;

/// A handmade trace of a healthy transfer, for tests elsewhere.
#[cfg(test)]
pub(crate) fn healthy_transfer() -> Vec<Event> {
    testing::healthy().events
}

pub use self::detector::{Detector, UnknownDetector};
pub(crate) use self::finding::span;
pub use self::finding::{Evidence, Finding, Severity};

use self::view::{EventEffects, View};
use crate::event::{Event, EventData, Role};
use crate::sink::Sink;

/// Maximum number of findings per detector; more of the same add nothing.
const MAX_FINDINGS: usize = 64;

/// What is known of a connection besides its trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The end that recorded the trace, if the trace does not say.
    pub role: Option<Role>,
    /// The name of the controller, if the trace does not say.
    pub controller: Option<String>,
    /// The minimum window in bytes, if the trace does not say.
    pub min_window: Option<u64>,
}

/// Collects findings.
#[derive(Clone, Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn push(&mut self, finding: Finding) {
        let same = |each: &&Finding| each.detector == finding.detector;
        if self.0.iter().filter(same).count() < MAX_FINDINGS {
            self.0.push(finding);
        }
    }
}

/// The state machine of one detector.
trait Detect: CloneDetect + Send + core::fmt::Debug {
    /// Processes `event`. `view` already includes it, and `effects` summarises what it changed.
    fn on_event(&mut self, view: &View, effects: &EventEffects, event: &Event, out: &mut Findings);

    /// Processes the end of the trace.
    fn finish(&mut self, view: &View, out: &mut Findings);
}

/// Clones a detector of any type: a live connection is judged by a copy of what watches it.
trait CloneDetect {
    fn clone_detect(&self) -> Box<dyn Detect>;
}

impl<D: Detect + Clone + 'static> CloneDetect for D {
    fn clone_detect(&self) -> Box<dyn Detect> {
        Box::new(self.clone())
    }
}

impl Clone for Box<dyn Detect> {
    fn clone(&self) -> Self {
        (**self).clone_detect()
    }
}

/// One of each.
fn all() -> Vec<Box<dyn Detect>> {
    vec![
        Box::<floor_pinned::FloorPinned>::default(),
        Box::<recovery_flap::RecoveryFlap>::default(),
        Box::<boundary_in_future::BoundaryInFuture>::default(),
        Box::<false_idle::FalseIdle>::default(),
        Box::<multi_cut::MultiCut>::default(),
        Box::<growth_missing::GrowthMissing>::default(),
        Box::<pacing_stall::PacingStall>::default(),
        Box::<phase_stuck::PhaseStuck>::default(),
        Box::<bw_collapse::BwCollapse>::default(),
        Box::<startup_stuck::StartupStuck>::default(),
        Box::<pto_storm::PtoStorm>::default(),
        Box::<spurious_storm::SpuriousStorm>::default(),
        Box::<applimited_inflation::ApplimitedInflation>::default(),
        Box::<bif_desync::BifDesync>::default(),
        Box::<amplification_deadlock::AmplificationDeadlock>::default(),
        Box::<persistent_false::PersistentFalse>::default(),
        Box::<rtt_step::RttStep>::default(),
        Box::<fc_deadlock::FcDeadlock>::default(),
        Box::<undo_unproven::UndoUnproven>::default(),
        Box::<startup_overrun::StartupOverrun>::default(),
        Box::<pacing_starved::PacingStarved>::default(),
        Box::<excess_loss::ExcessLoss>::default(),
        Box::<probe_rtt_overdue::ProbeRttOverdue>::default(),
        Box::<underused_path::UnderusedPath>::default(),
        Box::<congestion_limited::CongestionLimited>::default(),
    ]
}

/// All detectors over one connection's events.
#[derive(Clone, Debug)]
pub struct Detectors {
    view: View,
    all: Vec<Box<dyn Detect>>,
    findings: Findings,
}

impl Detectors {
    /// Creates the detectors for one connection.
    #[must_use]
    pub fn new(profile: &Profile) -> Self {
        Self {
            view: View::new(profile),
            all: all(),
            findings: Findings::default(),
        }
    }

    /// Processes an event.
    pub fn on_event(&mut self, event: &Event) {
        if matches!(event.data, EventData::EventsDropped { .. }) {
            self.begin_again();
        }
        let effects = self.view.on_event(event);
        for each in &mut self.all {
            each.on_event(&self.view, &effects, event, &mut self.findings);
        }
    }

    /// Events are missing here: what held before may have changed since, and nothing is concluded
    /// from before and after.
    fn begin_again(&mut self) {
        for mut each in core::mem::replace(&mut self.all, all()) {
            each.finish(&self.view, &mut self.findings);
        }
        self.view.on_missing_events();
    }

    /// The findings so far, without conditions that still hold.
    #[must_use]
    pub fn so_far(&self) -> &[Finding] {
        &self.findings.0
    }

    /// Probe timeouts so far: as recorded, or as the packets sent show them.
    pub(crate) const fn probe_timeouts(&self) -> u64 {
        self.view.probe_timeouts
    }

    /// Ends the trace at `now` (nanoseconds of the trace); returns all findings in order of time.
    #[must_use]
    pub fn finish(mut self, now: u64) -> Vec<Finding> {
        self.view.now = self.view.now.max(now);
        for each in &mut self.all {
            each.finish(&self.view, &mut self.findings);
        }
        let mut findings = self.findings.0;
        findings.sort_by_key(|finding| (finding.t0, finding.detector));
        findings
    }
}

impl Sink for Detectors {
    fn event(&mut self, event: &Event) {
        self.on_event(event);
    }
}

/// The findings of a whole trace.
#[must_use]
pub fn examine(profile: &Profile, events: &[Event]) -> Vec<Finding> {
    let mut detectors = Detectors::new(profile);
    for event in events {
        detectors.on_event(event);
    }
    detectors.finish(0)
}
