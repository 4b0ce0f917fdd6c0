//! MTU discovery with DPLPMTUD (RFC 8899, RFC 9000 §14.3). All sizes are UDP payloads in
//! bytes. [`MIN_MTU`] is RFC 8899's BASE_PLPMTU and MIN_PLPMTU.

use core::time::Duration;

use crate::time::Instant;
use crate::wire::MIN_MTU;

/// Largest UDP payload (RFC 9000 §18.2).
pub(crate) const MAX_SIZE: u16 = 65_527;

/// Default for the largest datagram to try: what Ethernet carries with IPv6.
pub(crate) const DEFAULT_MAX_MTU: u16 = 1452;

/// Lost probes of a size after which it counts as too large (MAX_PROBES, RFC 8899 §5.1.2).
const MAX_PROBES: u8 = 3;

/// Time from a finished search to the next search for larger sizes (PMTU_RAISE_TIMER, RFC
/// 8899 §5.1.1).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// A search ends when the gap is smaller than this: it could gain less than its probes
/// cost.
const GRANULARITY: u16 = 16;

/// Loss bursts without a large packet acknowledged that indicate a black hole (RFC 8899
/// §4.3). One burst, however long, may be congestion.
const BLACK_HOLE_BURSTS: u8 = 3;

/// Consecutive PTOs that indicate a black hole: nothing is acknowledged then, so nothing is
/// declared lost either.
const BLACK_HOLE_PTOS: u32 = 3;

/// Sizes that links commonly carry: Ethernet with IPv6 and IPv4, jumbo frames with each,
/// loopback. Tried in this order while no size has failed.
const COMMON_SIZES: [u16; 5] = [1452, 1472, 8952, 8972, MAX_SIZE];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The handshake is not confirmed, so there are no probes yet (RFC 9000 §14.3.1).
    Waiting,
    /// Searching between the current size and `high`.
    Searching {
        /// Lost probes of the size being probed.
        lost: u8,
        /// Size of the probe in flight, which may be out of date.
        in_flight: Option<u16>,
    },
    /// The current size is the best found.
    Complete {
        /// When to search for a larger one.
        raise_at: Option<Instant>,
    },
}

/// DPLPMTUD on a path.
///
/// When `next_probe` returns a size, send a packet of PING and PADDING that fills a
/// datagram of that size, alone, and call `on_probe_sent`. A lost probe is not a sign of
/// congestion (RFC 9000 §14.4). Methods return `Some(size)` if the current size changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MtuDiscovery {
    current: u16,
    /// Largest size that may still be possible in this search.
    high: u16,
    /// Limit of configuration and peer.
    limit: u16,
    /// A size failed in this search, so it continues by bisection.
    any_failed: bool,
    phase: Phase,
    /// Loss bursts since a packet above [`MIN_MTU`] was acknowledged.
    bursts: u8,
    /// Packets sent up to here belong to the last burst.
    burst_end: Instant,
}

impl MtuDiscovery {
    /// Creates the state of a new path, with datagrams of [`MIN_MTU`] that never exceed
    /// `cap`.
    #[must_use]
    pub(crate) fn new(cap: u16) -> Self {
        let limit = cap.clamp(MIN_MTU, MAX_SIZE);
        Self {
            current: MIN_MTU,
            high: limit,
            limit,
            any_failed: false,
            phase: Phase::Waiting,
            bursts: 0,
            burst_end: Instant::ZERO,
        }
    }

    /// Applies the peer's max_udp_payload_size. The decoder rejects values below 1,200 (RFC
    /// 9000 §18.2).
    pub(crate) fn set_peer_limit(&mut self, max_udp_payload_size: u64) {
        let peer = u16::try_from(max_udp_payload_size).unwrap_or(MAX_SIZE);
        self.limit = self.limit.min(peer).max(MIN_MTU);
        self.high = self.high.min(self.limit);
        self.current = self.current.min(self.limit);
    }

    /// Starts probing, once the handshake is confirmed or a later path is validated.
    pub(crate) fn start(&mut self, now: Instant) {
        if self.phase == Phase::Waiting {
            self.search(now, self.limit);
        }
    }

    /// Returns the size of the largest datagram to send, probes excepted.
    #[must_use]
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// Returns the size of the probe to send now, if one is due. There is at most one in
    /// flight.
    pub(crate) fn next_probe(&mut self, now: Instant) -> Option<u16> {
        self.handle_timeout(now);
        let Phase::Searching {
            in_flight: None, ..
        } = self.phase
        else {
            return None;
        };
        let size = self.candidate();
        if size.is_none() {
            // A limit that changed meanwhile ended the search.
            self.proceed(now);
        }
        size
    }

    /// Records that a probe of the size from [`MtuDiscovery::next_probe`] was sent.
    pub(crate) fn on_probe_sent(&mut self) {
        let size = self.candidate();
        if let Phase::Searching { in_flight, .. } = &mut self.phase {
            *in_flight = size;
        }
    }

    /// Handles the acknowledgement of a probe of `size`.
    pub(crate) fn on_probe_acked(&mut self, now: Instant, size: u16) -> Option<u16> {
        self.on_packet_acked(size);
        if !self.clear_in_flight(size) || size <= self.current || size > self.high {
            return None;
        }
        self.current = size;
        self.proceed(now);
        Some(size)
    }

    /// Handles the loss of a probe of `size`.
    pub(crate) fn on_probe_lost(&mut self, now: Instant, size: u16) {
        if !self.clear_in_flight(size) || self.candidate() != Some(size) {
            return;
        }
        if let Phase::Searching { lost, .. } = &mut self.phase {
            *lost = lost.saturating_add(1);
            if *lost >= MAX_PROBES {
                self.too_large(now, size);
            }
        }
    }

    /// Handles the acknowledgement of a packet in a datagram of `size` that is not a probe.
    pub(crate) fn on_packet_acked(&mut self, size: u16) {
        if size > MIN_MTU {
            self.bursts = 0;
        }
    }

    /// Handles the loss of a packet that is not a probe, sent at `sent` in a datagram of
    /// `size`. Returns the new size if this reveals a black hole.
    pub(crate) fn on_packet_lost(&mut self, now: Instant, size: u16, sent: Instant) -> Option<u16> {
        let part_of_burst = self.bursts > 0 && sent <= self.burst_end;
        if size <= MIN_MTU || size > self.current || part_of_burst {
            return None;
        }
        self.bursts = self.bursts.saturating_add(1);
        self.burst_end = now;
        if self.bursts < BLACK_HOLE_BURSTS {
            return None;
        }
        self.fall_back(now, self.limit)
    }

    /// Handles the `consecutive`th probe timeout in a row. Returns the new size if this
    /// reveals a black hole.
    pub(crate) fn on_pto(&mut self, now: Instant, consecutive: u32) -> Option<u16> {
        if consecutive < BLACK_HOLE_PTOS {
            return None;
        }
        self.fall_back(now, self.limit)
    }

    /// Handles a datagram of `size` that the socket rejected (EMSGSIZE): the MTU of the
    /// local interface is smaller, and no probe needs to be lost to learn that.
    pub(crate) fn on_send_refused(&mut self, now: Instant, size: u16) -> Option<u16> {
        if size <= self.current {
            return self.fall_back(now, size.saturating_sub(1));
        }
        self.lower_upper_bound(now, size.saturating_sub(1));
        None
    }

    /// Starts a search for larger sizes if it is time. The probe itself is sent when the
    /// window has room for it, which is no reason to wake up.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Phase::Complete {
            raise_at: Some(raise_at),
        } = self.phase
            && now >= raise_at
        {
            self.search(now, self.limit);
        }
    }

    /// Returns when [`MtuDiscovery::handle_timeout`] has something to do.
    #[must_use]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting | Phase::Searching { .. } => None,
            Phase::Complete { raise_at } => raise_at,
        }
    }

    /// Returns the size to probe: the common sizes while none has failed, then by
    /// bisection.
    fn candidate(&self) -> Option<u16> {
        if self.high <= self.current {
            return None;
        }
        if !self.any_failed {
            let rung = COMMON_SIZES.into_iter().find(|rung| *rung > self.current);
            return Some(rung.unwrap_or(self.high).min(self.high));
        }
        let gap = self.high.saturating_sub(self.current);
        let half = self.current.saturating_add(gap.div_ceil(2));
        (gap >= GRANULARITY).then_some(half)
    }

    /// Records that the probe of `size` is no longer in flight. Returns false if it was not
    /// the one in flight.
    fn clear_in_flight(&mut self, size: u16) -> bool {
        match &mut self.phase {
            Phase::Searching { in_flight, .. } if *in_flight == Some(size) => {
                *in_flight = None;
                true
            }
            Phase::Waiting | Phase::Searching { .. } | Phase::Complete { .. } => false,
        }
    }

    /// Searches for the best size from the current one up to `high`.
    fn search(&mut self, now: Instant, high: u16) {
        self.high = high.clamp(self.current, self.limit);
        self.any_failed = false;
        self.proceed(now);
    }

    /// Continues with the next size, or ends the search.
    fn proceed(&mut self, now: Instant) {
        self.phase = match self.candidate() {
            Some(_) => Phase::Searching {
                lost: 0,
                in_flight: None,
            },
            None => Phase::Complete {
                raise_at: (self.current < self.limit).then(|| now + RAISE_AFTER),
            },
        };
    }

    fn too_large(&mut self, now: Instant, size: u16) {
        self.high = size.saturating_sub(1);
        self.any_failed = true;
        self.proceed(now);
    }

    /// Lowers the upper bound of the search, which stays at or above the current size.
    fn lower_upper_bound(&mut self, now: Instant, high: u16) {
        if high >= self.high {
            return;
        }
        self.high = high.max(self.current);
        match self.phase {
            // The bound may have changed the size to probe while a probe was in flight,
            // whose fate no longer matters.
            Phase::Searching { .. } => self.proceed(now),
            Phase::Waiting | Phase::Complete { .. } => {}
        }
    }

    /// Falls back to the size that every path carries, because the current one does not
    /// work, and searches again up to `high`.
    fn fall_back(&mut self, now: Instant, high: u16) -> Option<u16> {
        self.bursts = 0;
        if self.current == MIN_MTU {
            return None;
        }
        self.current = MIN_MTU;
        self.search(now, high);
        Some(MIN_MTU)
    }
}

#[cfg(test)]
mod tests;
