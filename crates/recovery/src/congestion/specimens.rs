//! Controllers with a known bug: the correct controller in a wrapper that changes what it
//! is told, or its state afterwards.

use crate::controller::{
    Ack, AcksNeeded, Congestion, Controller, Ect, LostPacket, Metrics, Sent, Spurious, State,
    WindowPolicy,
};
use crate::limit::Limit;
use crate::specimens::Specimen;
use crate::time::Instant;

use super::bbr::{self, Bbr};
use super::classic::{self, Classic};
use super::cubic::Cubic;
use super::{Algorithm, CongestionControl, NewPath};

/// A bug of a controller `C`. Every method passes the call on to the correct controller unless
/// it is overridden.
pub(super) trait Bug<C: Controller>: core::fmt::Debug + Send + Sync {
    /// Called when the controller has been created.
    fn on_start(&mut self, _inner: &mut C) {}
    /// See [`Controller::on_sent`].
    fn on_sent(&mut self, inner: &mut C, sent: &Sent) {
        inner.on_sent(sent);
    }
    /// See [`Controller::on_ack`].
    fn on_ack(&mut self, inner: &mut C, ack: &Ack<'_>) {
        inner.on_ack(ack);
    }
    /// See [`Controller::on_lost`].
    fn on_lost(&mut self, inner: &mut C, lost: &LostPacket) {
        inner.on_lost(lost);
    }
    /// See [`Controller::on_congestion`].
    fn on_congestion(&mut self, inner: &mut C, event: &Congestion) {
        inner.on_congestion(event);
    }
    /// See [`Controller::on_limit`].
    fn on_limit(&mut self, inner: &mut C, limit: Limit, now: Instant) {
        inner.on_limit(limit, now);
    }
    /// See [`Controller::restart_from_idle`].
    fn restart_from_idle(&mut self, inner: &mut C, now: Instant) {
        inner.restart_from_idle(now);
    }
    /// See [`Controller::on_mds`].
    fn on_mds(&mut self, inner: &mut C, mds: u64) {
        inner.on_mds(mds);
    }
    /// See [`Controller::pacing_rate`].
    fn pacing_rate(&self, inner: &C) -> Option<u64> {
        inner.pacing_rate()
    }
    /// See [`Controller::internals`].
    fn internals(&self, inner: &C, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        inner.internals(now, show);
    }
}

/// A controller with a bug.
#[derive(Debug)]
pub(super) struct WithBug<C> {
    pub(super) inner: C,
    bug: Box<dyn Bug<C>>,
}

impl<C: Controller> WithBug<C> {
    /// Wraps a controller in a bug.
    pub(super) fn new(mut inner: C, mut bug: Box<dyn Bug<C>>) -> Self {
        bug.on_start(&mut inner);
        Self { inner, bug }
    }
}

impl<C: Controller> Controller for WithBug<C> {
    fn on_sent(&mut self, sent: &Sent) {
        self.bug.on_sent(&mut self.inner, sent);
    }

    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.bug.on_ack(&mut self.inner, ack);
    }

    fn on_lost(&mut self, lost: &LostPacket) {
        self.bug.on_lost(&mut self.inner, lost);
    }

    fn on_congestion(&mut self, event: &Congestion) {
        self.bug.on_congestion(&mut self.inner, event);
    }

    fn on_spurious(&mut self, event: &Spurious) {
        self.inner.on_spurious(event);
    }

    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.bug.on_limit(&mut self.inner, limit, now);
    }

    fn restart_from_idle(&mut self, now: Instant) {
        self.bug.restart_from_idle(&mut self.inner, now);
    }

    fn on_mds(&mut self, mds: u64) {
        self.bug.on_mds(&mut self.inner, mds);
    }

    fn on_discarded(&mut self, bytes: u64) {
        self.inner.on_discarded(bytes);
    }

    fn marks_app_limited(&self) -> bool {
        self.inner.marks_app_limited()
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn min_window(&self) -> u64 {
        self.inner.min_window()
    }

    fn pacing_rate(&self) -> Option<u64> {
        self.bug.pacing_rate(&self.inner)
    }

    fn trains_per_second(&self) -> u64 {
        self.inner.trains_per_second()
    }

    fn acks_needed(&self) -> AcksNeeded {
        self.inner.acks_needed()
    }

    fn ecn(&self) -> Ect {
        self.inner.ecn()
    }

    fn window_policy(&self) -> WindowPolicy {
        self.inner.window_policy()
    }

    fn state(&self) -> State {
        self.inner.state()
    }

    fn metrics(&self) -> Metrics {
        self.inner.metrics()
    }

    fn internals(&self, now: Instant, show: &mut dyn FnMut(&'static str, u64)) {
        self.bug.internals(&self.inner, now, show);
    }

    fn name(&self) -> &'static str {
        self.inner.name()
    }
}

impl Specimen {
    /// Builds the controller of a new path for a run with this bug: CUBIC or BBR with the
    /// bug if it is one of theirs, otherwise the correct controller that `control` names.
    #[must_use]
    pub fn build(self, control: &CongestionControl, path: &NewPath) -> Box<dyn Controller> {
        if let Some(bug) = classic::specimens::bug(self) {
            let inner = Classic::new(Cubic::default(), path.slow_start, path.mds);
            return Box::new(WithBug::new(inner, bug));
        }
        let is_bbr = matches!(control, CongestionControl::Algorithm(Algorithm::Bbr));
        // For other controllers this bug is in the pacer (`specimens::Recovery`).
        let elsewhere = self == Self::TokenbucketStartup && !is_bbr;
        match bbr::specimens::bug(self) {
            Some(bug) if !elsewhere => Box::new(WithBug::new(Bbr::new(path.mds, path.seed), bug)),
            Some(_) | None => control.build(path),
        }
    }
}
