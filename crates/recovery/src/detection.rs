//! Loss detection: what an ACK frame or the loss timer decides about each packet.
//!
//! The order is that of RFC 9002 appendix A.7: remove the acknowledged packets, sample the
//! RTT, detect losses, tell the controllers of losses, of ACKs, and, later than there, of ECN-CE
//! marks.

use core::ops::RangeInclusive;
use core::time::Duration;

use crate::controller::{Ack, Congestion, CongestionCause, SendIndex};
use crate::loss::{LossDecision, decide};
use crate::outcome::{AckError, Acked, LargestAcked, LossCause, Lost, NewlyAcked, Outcome};
use crate::packet::Packet;
use crate::path::{PathId, PathRecovery};
use crate::recovery::Recovery;
use crate::space::Space;
use crate::spurious::LostRecord;
use crate::time::Instant;

/// What an ACK frame newly acknowledged on a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AckTally {
    /// Bytes in flight before the frame.
    in_flight_before: u64,
    /// The space's largest acknowledged on this path before the frame.
    pub(crate) largest_before: Option<u64>,
    /// Whether any packet of the path is newly acknowledged, in flight or not.
    pub(crate) touched: bool,
    /// Whether a packet came later than the time threshold allows.
    pub(crate) late: bool,
    pub(crate) bytes: u64,
    packets: u32,
    /// The ages of the packets together, in nanoseconds.
    ages: u64,
    used_bytes: u64,
    largest: Option<(SendIndex, Instant)>,
    pub(crate) largest_tx_in_flight: u64,
}

impl AckTally {
    pub(crate) fn add<F>(&mut self, packet: &Packet<F>, used: bool, now: Instant) {
        self.bytes += packet.bytes();
        self.packets = self.packets.saturating_add(1);
        let age = now.as_nanos().saturating_sub(packet.time.as_nanos());
        self.ages = self.ages.saturating_add(age);
        if used {
            self.used_bytes += packet.bytes();
        }
        if self.largest.is_none_or(|(index, _)| packet.index > index) {
            self.largest = Some((packet.index, packet.time));
            self.largest_tx_in_flight = packet.rate.tx_in_flight;
        }
    }

    /// How long ago the packets were sent, on average, in nanoseconds: this is counted for every ACK.
    fn mean_age(&self) -> Option<u64> {
        match self.packets {
            0 => None,
            // An ACK is for two packets as a rule, and this division is cheap.
            2 => Some(self.ages / 2),
            packets => Some(self.ages / u64::from(packets)),
        }
    }
}

/// The packets of a path that one ACK frame or timer declared lost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LossTally {
    /// Packets up to this number are lost by the packet threshold.
    bound: Option<u64>,
    /// The oldest packet in flight that is not lost has been found.
    scanned: bool,
    pub(crate) in_flight_before: u64,
    bytes: u64,
    packets: u64,
    ranges: u64,
    last: Option<u64>,
    largest: Option<(SendIndex, u64)>,
    pub(crate) persistent: bool,
    pub(crate) new_event: bool,
}

impl LossTally {
    pub(crate) fn add<F>(&mut self, number: u64, packet: &Packet<F>) {
        self.bytes += packet.bytes();
        self.packets += 1;
        if self.last.is_none_or(|last| last + 1 != number) {
            self.ranges += 1;
        }
        self.last = Some(number);
        if self.largest.is_none_or(|(index, _)| packet.index > index) {
            self.largest = Some((packet.index, packet.rate.tx_in_flight));
        }
    }
}

/// Returns the path of a packet. Packets of other paths are not in the ledger.
fn path_of(paths: &mut [PathRecovery], id: PathId) -> Option<&mut PathRecovery> {
    paths.iter_mut().find(|path| path.id == id)
}

/// Notes that the paths whose packets are being looked for have no 1-RTT packet in flight up
/// to `number`.
fn pass_over(paths: &mut [PathRecovery], number: u64) {
    for path in paths.iter_mut().filter(|path| !path.loss.scanned) {
        path.oldest = path.oldest.max(number + 1);
    }
}

impl<F> Recovery<F> {
    /// Processes an ACK frame of `space`. `ranges` are in the frame's order: descending
    /// and apart from each other. `ack_delay` is the frame's, decoded.
    ///
    /// # Errors
    /// [`AckError`] if it acknowledges a packet that was never sent: the
    /// connection closes with PROTOCOL_VIOLATION. Part of the frame may have
    /// been processed by then.
    pub fn on_ack(
        &mut self,
        space: Space,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        ack_delay: Duration,
        now: Instant,
        out: &mut Outcome<F>,
    ) -> Result<(), AckError> {
        self.on_ack_with_ecn(space, ranges, ack_delay, now, out, |_| 0)
    }

    /// Like [`on_ack`](Self::on_ack), for a connection that validates ECN. `ce_increase` is
    /// called if the frame acknowledges anything new, and returns by how much the peer's CE
    /// count grew: 0 unless its counts are valid on the path of the
    /// [`largest`](NewlyAcked::largest) packet (RFC 9000 §13.4.2.1). The controller of that
    /// path hears of the marks last (RFC 9002 §7.1).
    ///
    /// # Errors
    /// As [`on_ack`](Self::on_ack).
    pub fn on_ack_with_ecn(
        &mut self,
        space: Space,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        ack_delay: Duration,
        now: Instant,
        out: &mut Outcome<F>,
        ce_increase: impl FnOnce(&NewlyAcked) -> u64,
    ) -> Result<(), AckError> {
        if self.spaces[space.index()].discarded {
            return Ok(());
        }
        self.forget_expired(now);
        self.begin_ack(space);
        let (largest, summary) = self.take_acked(space, ranges, now, out)?;
        out.newly_acked = summary;
        let ledger = &mut self.spaces[space.index()];
        ledger.largest_acked = ledger.largest_acked.max(largest);
        let sample = summary
            .largest
            .filter(|newest| largest == Some(newest.number) && summary.ack_eliciting);
        let sample = sample.filter(|newest| self.sample_rtt(space, newest, ack_delay, now, out));
        self.widen_time_thresholds();
        // Even if nothing is newly acknowledged: late packets may have changed the
        // thresholds, and with them the timer.
        self.detect_losses(space, now, out);
        self.finish_losses(now, out);
        if let Some(newest) = summary.largest {
            self.finish_ack(sample.map(|newest| newest.path), now);
            self.deadlock_since = Some(now);
            // After the ACK, other than in RFC 9002 appendix A.7: a controller that reduces its
            // window for the marks would count the same packets as delivered in recovery, and
            // one in recovery could not leave it for the event that begins now.
            let increase = ce_increase(&summary);
            if increase > 0 {
                self.on_ecn_ce(newest.path, newest.index, increase, now);
            }
        }
        Ok(())
    }

    fn begin_ack(&mut self, space: Space) {
        self.reset_loss_tally();
        for path in &mut self.paths {
            path.ack = AckTally {
                in_flight_before: path.in_flight,
                largest_before: path.spaces[space.index()].largest_acked,
                ..AckTally::default()
            };
        }
    }

    /// Resets the counts of losses.
    pub(crate) fn reset_loss_tally(&mut self) {
        for path in &mut self.paths {
            path.loss = LossTally {
                in_flight_before: path.in_flight,
                ..LossTally::default()
            };
        }
    }

    /// Removes the packets that the frame acknowledges. Returns the frame's largest number
    /// and a summary of what is newly acknowledged.
    fn take_acked(
        &mut self,
        space: Space,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        now: Instant,
        out: &mut Outcome<F>,
    ) -> Result<(Option<u64>, NewlyAcked), AckError> {
        let Self { spaces, paths, .. } = self;
        let ledger = &mut spaces[space.index()];
        let mut summary = NewlyAcked::default();
        let mut largest = None;
        // Most ranges of a frame repeat what earlier frames acknowledged, and nothing below the oldest
        // packet is looked up.
        let oldest = ledger
            .sent
            .first_from(0)
            .map_or(u64::MAX, |(number, _)| number);
        let mut place = ledger.lost.end();
        for range in ranges {
            ledger.check(&range)?;
            largest = largest.max(Some(*range.end()));
            for late in ledger.lost.remove_range(&range, &mut place) {
                if let Some(path) = path_of(paths, late.path) {
                    path.on_late(&late, &self.config, now, out);
                }
            }
            if *range.end() < oldest {
                continue;
            }
            #[cfg(test)]
            {
                self.looked_up += 1;
            }
            ledger.sent.remove_range(range, |number, packet| {
                if let Some(path) = path_of(paths, packet.path) {
                    path.on_acked(space, number, &packet, now);
                }
                add_to_summary(&mut summary, number, &packet);
                out.acked.push(Acked {
                    space,
                    number,
                    path: packet.path,
                    size: packet.size,
                    sent: packet.time,
                    content: packet.content,
                });
            });
        }
        Ok((largest, summary))
    }

    /// Samples the RTT of the path that the packet was sent on (RFC 9002 §5.1, §5.3).
    /// Returns false if the sample is not used.
    fn sample_rtt(
        &mut self,
        space: Space,
        newest: &LargestAcked,
        ack_delay: Duration,
        now: Instant,
        out: &mut Outcome<F>,
    ) -> bool {
        let Some(path) = path_of(&mut self.paths, newest.path) else {
            return false;
        };
        let latest = now - newest.sent;
        let ack_delay = match space {
            // The peer does not delay these ACKs, so a reported delay is ignored.
            Space::Initial => Duration::ZERO,
            Space::Handshake | Space::Data if self.context.handshake_confirmed => {
                let limit = self.config.max_ack_delay;
                if path.rtt.skip_repeated_ack(latest, ack_delay, limit) {
                    return false;
                }
                ack_delay.min(limit)
            }
            Space::Handshake | Space::Data => ack_delay,
        };
        path.rtt.sample(latest, ack_delay, now);
        if let Some(age) = path.ack.mean_age() {
            path.rtt.on_mean_age(age);
        }
        out.rtt_updated = Some(newest.path);
        true
    }

    /// Declares packets lost by the thresholds, and determines when the next packet will be
    /// lost (RFC 9002 §6.1, appendix A.10).
    pub(crate) fn detect_losses(&mut self, space: Space, now: Instant, out: &mut Outcome<F>) {
        let Self { spaces, paths, .. } = self;
        let ledger = &mut spaces[space.index()];
        ledger.loss_time = None;
        let Some(largest) = ledger.largest_acked else {
            return;
        };
        let alone = paths.len() == 1;
        for path in paths.iter_mut() {
            let acked = path.spaces[space.index()].largest_acked;
            path.loss.bound =
                acked.and_then(|n| ledger.number_before(n, path.thresholds.packets()));
            // Only a path that is alone looks at packets that are not in flight.
            path.loss.scanned = !alone && path.packets_in_flight == 0;
        }
        // A few packets of one path are all that other spaces have.
        let by_path = !alone && space == Space::Data;
        let mut from = 0;
        while let Some(start) = self.next_to_scan() {
            if by_path {
                from = from.max(start);
            }
            let ledger = &mut self.spaces[space.index()];
            let Some((number, packet)) = ledger.sent.first_from(from) else {
                break;
            };
            if number >= largest {
                break;
            }
            #[cfg(test)]
            {
                self.scanned += 1;
            }
            from = number + 1;
            if by_path {
                pass_over(&mut self.paths, number);
            }
            let path = path_of(&mut self.paths, packet.path);
            let Some(path) = path.filter(|path| !path.loss.scanned) else {
                continue;
            };
            // Packet order can be compared only within a path: a packet of the old path is
            // not lost because the new one is faster (RFC 9000 §9.4). So each path has its
            // own bound.
            let delay = path.loss_delay(&self.config);
            match decide(number, packet.time, path.loss.bound, delay, now) {
                LossDecision::Lost(cause) => self.declare_lost(space, number, cause, now, out),
                LossDecision::NotYet(_) if !packet.in_flight => {}
                LossDecision::NotYet(deadline) => {
                    let earliest = ledger.loss_time.map_or(deadline, |t| t.min(deadline));
                    ledger.loss_time = Some(earliest);
                    // The path's later packets were sent later, so they wait longer.
                    path.loss.scanned = true;
                    if by_path {
                        path.oldest = number;
                    }
                }
            }
        }
    }

    /// Returns the number from which on the ledger has packets in flight that have not been
    /// looked at. Each path remembers where its own begin, or one packet of an old path would
    /// make every ACK walk over all that the new path has in flight.
    fn next_to_scan(&self) -> Option<u64> {
        let waiting = self.paths.iter().filter(|path| !path.loss.scanned);
        waiting.map(|path| path.oldest).min()
    }

    fn declare_lost(
        &mut self,
        space: Space,
        number: u64,
        cause: LossCause,
        now: Instant,
        out: &mut Outcome<F>,
    ) {
        let ledger = &mut self.spaces[space.index()];
        let Some(packet) = ledger.sent.remove(number) else {
            return;
        };
        // A packet that was not in flight is forgotten without being reported.
        if !packet.in_flight {
            return;
        }
        if let Some(path) = path_of(&mut self.paths, packet.path)
            && let Some(event) = path.on_lost(space, number, &packet, &self.config, now)
        {
            ledger.lost.push(LostRecord {
                number,
                path: packet.path,
                index: packet.index,
                sent: packet.time,
                size: packet.size,
                event,
                expires: now + path.lost_record_lifetime(&self.config),
            });
        }
        out.lost.push(lost(space, number, packet, cause));
    }

    /// Tells the controllers what was lost.
    pub(crate) fn finish_losses(&mut self, now: Instant, out: &mut Outcome<F>) {
        for path in &mut self.paths {
            let LossTally {
                bound: _,
                scanned: _,
                in_flight_before,
                bytes,
                packets,
                ranges,
                last: _,
                largest,
                persistent,
                new_event,
            } = path.loss;
            let Some((largest_index, largest_tx_in_flight)) = largest else {
                continue;
            };
            path.controller.on_congestion(&Congestion {
                now,
                cause: CongestionCause::Loss,
                largest_index,
                next_index: path.next_index,
                lost_bytes: bytes,
                packets,
                lost_ranges: ranges,
                in_flight_before,
                in_flight_after: path.in_flight,
                acked_bytes: path.ack.bytes,
                persistent,
                largest_tx_in_flight,
            });
            if new_event {
                path.thresholds.on_loss_event();
            }
            if persistent {
                path.rtt.on_persistent_congestion();
                path.events.clear();
                out.persistent_congestion.push(path.id);
            }
        }
    }

    /// Tells the controllers what was acknowledged.
    fn finish_ack(&mut self, sampled: Option<PathId>, now: Instant) {
        for path in &mut self.paths {
            if !path.ack.touched {
                continue;
            }
            if self.context.peer_completed_address_validation {
                path.pto_count = 0;
            }
            let Some((largest_index, largest_sent_time)) = path.ack.largest else {
                continue;
            };
            let rtt = path.rtt;
            let min = rtt.min();
            let delivery = path.rate.delivery();
            let rate = path.rate.sample(min.unwrap_or_default(), path.ack.bytes);
            path.capacity
                .on_ack(rate.as_ref(), largest_index, path.next_index);
            path.controller.on_ack(&Ack {
                now,
                bytes: path.ack.bytes,
                packets: path.ack.packets.into(),
                largest_index,
                largest_sent_time,
                next_index: path.next_index,
                in_flight_before: path.ack.in_flight_before,
                in_flight_after: path.in_flight,
                lost_bytes: path.loss.bytes,
                window_used_bytes: path.ack.used_bytes,
                mean_age: Duration::from_nanos(path.ack.mean_age().unwrap_or_default()),
                rtt_sample: (sampled == Some(path.id)).then(|| rtt.latest()),
                smoothed_rtt: rtt.smoothed(),
                min_rtt: min.unwrap_or_else(|| rtt.smoothed()),
                rate: rate.as_ref(),
                delivery,
            });
            path.mark_app_limited_by_controller();
        }
    }

    fn widen_time_thresholds(&mut self) {
        for path in &mut self.paths {
            if path.ack.late {
                path.thresholds
                    .on_late(&path.rtt, self.config.max_ack_delay);
            }
        }
    }

    /// Forgets lost packets that were not acknowledged for three PTOs: they were really
    /// lost, so their congestion event is never undone.
    pub(crate) fn forget_expired(&mut self, now: Instant) {
        for space in self.spaces.iter_mut() {
            space.lost.expire(now);
        }
    }
}

fn add_to_summary<F>(summary: &mut NewlyAcked, number: u64, packet: &Packet<F>) {
    summary.ack_eliciting |= packet.ack_eliciting;
    summary.mtu_probe |= packet.mtu_probe;
    summary.ect += u64::from(packet.ect);
    if summary.largest.is_none_or(|newest| number > newest.number) {
        summary.largest = Some(LargestAcked {
            number,
            path: packet.path,
            index: packet.index,
            sent: packet.time,
            ect: packet.ect,
        });
    }
}

/// Converts a packet to what the connection gets back.
pub(crate) fn lost<F>(space: Space, number: u64, packet: Packet<F>, cause: LossCause) -> Lost<F> {
    Lost {
        space,
        number,
        path: packet.path,
        size: packet.size,
        sent: packet.time,
        mtu_probe: packet.mtu_probe,
        ect: packet.ect,
        cause,
        content: packet.content,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mean_age_is_that_of_all_packets_of_an_ack() {
        for (packets, ages, mean) in [
            (0, 0, None),
            (1, 30, Some(30)),
            (2, 30, Some(15)),
            (3, 30, Some(10)),
        ] {
            let tally = AckTally {
                packets,
                ages,
                ..AckTally::default()
            };
            assert_eq!(tally.mean_age(), mean, "{packets}");
        }
    }
}
