//! Controllers with a known bug: the right controller in a wrapper that changes
//! what it is told, or its state afterwards.

use crate::controller::{
    Ack, Congestion, Controller, Ect, LostPacket, Metrics, Sent, Spurious, State, WindowPolicy,
};
use crate::limit::Limit;
use crate::specimens::Specimen;
use crate::time::Instant;

use super::bbr::{self, Bbr};
use super::classic::{self, Classic};
use super::cubic::Cubic;
use super::{Algorithm, CongestionControl, NewPath};

/// A bug around a controller `C`. Every hook does what is right until it is
/// overridden.
pub(super) trait Flaw<C: Controller>: core::fmt::Debug + Send + Sync {
    /// The controller has been made.
    fn on_start(&mut self, _right: &mut C) {}
    /// See [`Controller::on_sent`].
    fn on_sent(&mut self, right: &mut C, sent: &Sent) {
        right.on_sent(sent);
    }
    /// See [`Controller::on_ack`].
    fn on_ack(&mut self, right: &mut C, ack: &Ack<'_>) {
        right.on_ack(ack);
    }
    /// See [`Controller::on_lost`].
    fn on_lost(&mut self, right: &mut C, lost: &LostPacket) {
        right.on_lost(lost);
    }
    /// See [`Controller::on_congestion`].
    fn on_congestion(&mut self, right: &mut C, event: &Congestion) {
        right.on_congestion(event);
    }
    /// See [`Controller::on_limit`].
    fn on_limit(&mut self, right: &mut C, limit: Limit, now: Instant) {
        right.on_limit(limit, now);
    }
    /// See [`Controller::restart_from_idle`].
    fn restart_from_idle(&mut self, right: &mut C, now: Instant) {
        right.restart_from_idle(now);
    }
    /// See [`Controller::on_mds`].
    fn on_mds(&mut self, right: &mut C, mds: u64) {
        right.on_mds(mds);
    }
    /// See [`Controller::pacing_rate`].
    fn pacing_rate(&self, right: &C) -> Option<u64> {
        right.pacing_rate()
    }
    /// See [`Controller::internals`].
    fn internals(&self, right: &C, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        right.internals(now, show);
    }
}

/// A controller with a bug around it.
#[derive(Debug)]
pub(super) struct Flawed<C> {
    pub(super) right: C,
    flaw: Box<dyn Flaw<C>>,
}

impl<C: Controller> Flawed<C> {
    /// Puts `flaw` around `right`.
    pub(super) fn new(mut right: C, mut flaw: Box<dyn Flaw<C>>) -> Self {
        flaw.on_start(&mut right);
        Self { right, flaw }
    }
}

impl<C: Controller> Controller for Flawed<C> {
    fn on_sent(&mut self, sent: &Sent) {
        self.flaw.on_sent(&mut self.right, sent);
    }

    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.flaw.on_ack(&mut self.right, ack);
    }

    fn on_lost(&mut self, lost: &LostPacket) {
        self.flaw.on_lost(&mut self.right, lost);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.flaw.on_congestion(&mut self.right, event);
    }

    fn on_spurious(&mut self, event: &Spurious) {
        self.right.on_spurious(event);
    }

    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.flaw.on_limit(&mut self.right, limit, now);
    }

    fn restart_from_idle(&mut self, now: Instant) {
        self.flaw.restart_from_idle(&mut self.right, now);
    }

    fn on_mds(&mut self, mds: u64) {
        self.flaw.on_mds(&mut self.right, mds);
    }

    fn on_discarded(&mut self, bytes: u64) {
        self.right.on_discarded(bytes);
    }

    fn marks_app_limited(&self) -> bool {
        self.right.marks_app_limited()
    }

    fn window(&self) -> u64 {
        self.right.window()
    }

    fn min_window(&self) -> u64 {
        self.right.min_window()
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.flaw.pacing_rate(&self.right)
    }

    fn trains_per_second(&self) -> u64 {
        self.right.trains_per_second()
    }

    fn counts_every_ack(&self) -> bool {
        self.right.counts_every_ack()
    }

    fn ecn(&self) -> Ect {
        self.right.ecn()
    }

    fn window_policy(&self) -> WindowPolicy {
        self.right.window_policy()
    }

    fn state(&self) -> State {
        self.right.state()
    }

    fn metrics(&self) -> Metrics {
        self.right.metrics()
    }

    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        self.flaw.internals(&self.right, now, show);
    }

    fn name(&self) -> &'static str {
        self.right.name()
    }
}

impl Specimen {
    /// Builds the controller of a new path for a run with this bug: CUBIC or BBR
    /// with the bug if it is theirs, otherwise the right one that `control` names.
    #[must_use]
    pub fn build(self, control: &CongestionControl, path: &NewPath) -> Box<dyn Controller> {
        if let Some(flaw) = classic::specimens::flaw(self) {
            let right = Classic::new(Cubic::default(), path.slow_start, path.mds);
            return Box::new(Flawed::new(right, flaw));
        }
        let is_bbr = matches!(control, CongestionControl::Algorithm(Algorithm::Bbr));
        // The bucket is the pacer's, too, of any controller.
        let elsewhere = self == Self::TokenbucketStartup && !is_bbr;
        match bbr::specimens::flaw(self) {
            Some(flaw) if !elsewhere => Box::new(Flawed::new(Bbr::new(path.mds, path.seed), flaw)),
            Some(_) | None => control.build(path),
        }
    }
}
