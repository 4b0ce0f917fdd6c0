//! A controller that a test can inspect while a path uses it.

use core::ops::Deref;
use std::sync::{Arc, RwLock, RwLockReadGuard};

use super::super::Bbr;
use super::super::phase::Phase;
use crate::controller::{Ack, Congestion, Controller, LostPacket, Metrics, Sent, Spurious, State};
use crate::limit::Limit;
use crate::time::Instant;

/// A controller that is BBR, or contains it.
pub(super) trait AsBbr: Controller + Sync {
    /// Returns BBR.
    fn bbr(&self) -> &Bbr;
}

impl AsBbr for Bbr {
    fn bbr(&self) -> &Bbr {
        self
    }
}

/// The controller, and the phases it went through.
#[derive(Clone, Debug)]
pub(super) struct SharedController(
    pub(super) Arc<RwLock<Box<dyn AsBbr>>>,
    pub(super) Arc<RwLock<Vec<Phase>>>,
);

/// A reference to the controller.
#[derive(Debug)]
pub(super) struct BbrRef<'a>(RwLockReadGuard<'a, Box<dyn AsBbr>>);

impl Deref for BbrRef<'_> {
    type Target = Bbr;

    fn deref(&self) -> &Bbr {
        self.0.bbr()
    }
}

impl SharedController {
    pub(super) fn new(controller: Box<dyn AsBbr>) -> Self {
        Self(Arc::new(RwLock::new(controller)), Arc::default())
    }
    pub(super) fn get(&self) -> BbrRef<'_> {
        BbrRef(self.0.read().unwrap())
    }
    fn controller(&self) -> RwLockReadGuard<'_, Box<dyn AsBbr>> {
        self.0.read().unwrap()
    }
    fn tell(&self, event: impl FnOnce(&mut dyn AsBbr)) {
        let mut controller = self.0.write().unwrap();
        event(controller.as_mut());
        let phase = controller.bbr().phase;
        let mut trail = self.1.write().unwrap();
        if trail.last() != Some(&phase) {
            trail.push(phase);
        }
    }
}

impl Controller for SharedController {
    fn on_sent(&mut self, sent: &Sent) {
        self.tell(|bbr| bbr.on_sent(sent));
    }
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.tell(|bbr| bbr.on_ack(ack));
    }
    fn on_lost(&mut self, lost: &LostPacket) {
        self.tell(|bbr| bbr.on_lost(lost));
    }
    fn on_congestion(&mut self, event: &Congestion) {
        self.tell(|bbr| bbr.on_congestion(event));
    }
    fn on_spurious(&mut self, event: &Spurious) {
        self.tell(|bbr| bbr.on_spurious(event));
    }
    fn on_limit(&mut self, limit: Limit, now: Instant) {
        self.tell(|bbr| bbr.on_limit(limit, now));
    }
    fn restart_from_idle(&mut self, now: Instant) {
        self.tell(|bbr| bbr.restart_from_idle(now));
    }
    fn on_mds(&mut self, mds: u64) {
        self.tell(|bbr| bbr.on_mds(mds));
    }
    fn marks_app_limited(&self) -> bool {
        self.controller().marks_app_limited()
    }
    fn window(&self) -> u64 {
        self.controller().window()
    }
    fn min_window(&self) -> u64 {
        self.controller().min_window()
    }
    fn pacing_rate(&self) -> Option<u64> {
        self.controller().pacing_rate()
    }
    fn state(&self) -> State {
        self.controller().state()
    }
    fn metrics(&self) -> Metrics {
        self.controller().metrics()
    }
    fn name(&self) -> &'static str {
        self.controller().name()
    }
}
