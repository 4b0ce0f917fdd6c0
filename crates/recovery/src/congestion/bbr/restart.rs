//! Sending again after idling (§5.4).

use crate::time::Instant;

use super::Bbr;
use super::gains::UNIT_GAIN;
use super::phase::Phase;

impl Bbr {
    /// HandleRestartFromIdle(): keeps the window and paces at exactly the estimated
    /// bandwidth.
    pub(super) fn handle_restart_from_idle(&mut self, now: Instant) {
        self.idle_restart = true;
        self.clocks(now).extra_acked.restart(now);
        if self.phase.is_probe_bw() {
            self.set_pacing_rate_with_gain(UNIT_GAIN);
        } else if self.phase == Phase::ProbeRtt {
            self.check_probe_rtt_done(now);
        }
    }
}
