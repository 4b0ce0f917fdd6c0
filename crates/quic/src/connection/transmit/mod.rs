//! The send path, step by step.

use clearway_recovery::limit::Limit;

use super::Connection;
use super::packet::PacketWriter;
use super::state::LifecycleState;
use super::train::Transmit;
use crate::Instant;

impl Connection {
    /// Writes the next train of datagrams into `buffer`: at most `max_datagrams` of one
    /// size, ready for segmentation offload. Returns `None` if nothing may be sent now;
    /// call again after the next datagram, timer or write.
    ///
    /// `buffer` must hold at least the largest datagram (`Config::max_mtu`). More than 64
    /// KiB is of no use.
    pub fn transmit(
        &mut self,
        now: Instant,
        buffer: &mut [u8],
        max_datagrams: usize,
    ) -> Option<Transmit> {
        self.begin_trace(now);
        match self.lifecycle.state {
            LifecycleState::Open => {}
            LifecycleState::Closing(_) => return self.transmit_close(now, buffer),
            LifecycleState::Draining { .. } | LifecycleState::Drained => return None,
        }
        // RFC 9001 §6.6: while enough packets are left to send CONNECTION_CLOSE.
        if let Err(error) = self.keys.check_limits() {
            self.fail(now, error);
            return self.transmit_close(now, buffer);
        }
        let mut writer = self.writer(now);
        let mut sent = writer.write_path_frames(buffer);
        if sent.is_none() {
            sent = writer.write_mtu_probe(buffer);
        }
        if sent.is_none() {
            sent = writer.write_train(buffer, max_datagrams);
        }
        if let Some(error) = writer.failed.take() {
            self.fail(now, error);
            // The peer is told, after what was written before.
            return sent.or_else(|| self.transmit_close(now, buffer));
        }
        if sent.is_none() {
            let limit = writer.limit();
            self.network.set_limit(now, limit, &mut self.reports);
        }
        sent
    }

    /// Records that the socket or the host did not accept what `transmit` wrote. Until more
    /// is sent, the reason for not sending is [`Limit::Scheduling`].
    pub fn on_scheduling_limited(&mut self, now: Instant) {
        self.begin_trace(now);
        if self.lifecycle.is_open() {
            let reports = &mut self.reports;
            self.network.set_limit(now, Limit::Scheduling, reports);
        }
    }

    /// Writes one datagram with CONNECTION_CLOSE, if one is due.
    fn transmit_close(&mut self, now: Instant, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.lifecycle.take_close_due() {
            return None;
        }
        self.writer(now).write_close(buffer)
    }

    /// Borrows the parts of the connection that write packets.
    #[inline]
    pub(super) fn writer(&mut self, now: Instant) -> PacketWriter<'_> {
        PacketWriter {
            now,
            role: self.role,
            config: &self.config,
            rng: &mut self.rng,
            lifecycle: &self.lifecycle,
            tls: &self.tls,
            keys: &mut self.keys,
            network: &mut self.network,
            frames: &mut self.frames,
            skipped_numbers: &mut self.skipped_numbers,
            timers: &mut self.timers,
            reports: &mut self.reports,
            failed: None,
        }
    }
}

#[cfg(test)]
mod tests;
