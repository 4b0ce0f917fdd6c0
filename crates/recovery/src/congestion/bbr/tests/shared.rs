//! A controller that stays in the test's hands while a path drives it.

use std::sync::{Arc, RwLock, RwLockReadGuard};

use super::super::Bbr;
use super::super::phase::Phase;
use crate::controller::{Ack, Congestion, Controller, LostPacket, Metrics, Sent, Spurious, State};
use crate::limit::Limit;
use crate::time::Instant;

/// The controller, and the phases it went through.
#[derive(Clone, Debug)]
pub(super) struct Shared(
    pub(super) Arc<RwLock<Bbr>>,
    pub(super) Arc<RwLock<Vec<Phase>>>,
);

impl Shared {
    pub(super) fn get(&self) -> RwLockReadGuard<'_, Bbr> {
        self.0.read().unwrap()
    }
    fn tell(&self, event: impl FnOnce(&mut Bbr)) {
        let mut bbr = self.0.write().unwrap();
        event(&mut bbr);
        let mut trail = self.1.write().unwrap();
        if trail.last() != Some(&bbr.phase) {
            trail.push(bbr.phase);
        }
    }
}

impl Controller for Shared {
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
        self.get().marks_app_limited()
    }
    fn window(&self) -> u64 {
        self.get().window()
    }
    fn min_window(&self) -> u64 {
        self.get().min_window()
    }
    fn pacing_rate(&self) -> Option<u64> {
        self.get().pacing_rate()
    }
    fn state(&self) -> State {
        self.get().state()
    }
    fn metrics(&self) -> Metrics {
        self.get().metrics()
    }
    fn name(&self) -> &'static str {
        self.get().name()
    }
}
