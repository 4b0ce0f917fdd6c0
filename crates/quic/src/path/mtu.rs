//! The largest datagram that a path carries: DPLPMTUD (RFC 8899, RFC 9000
//! §14.3). All sizes are UDP payloads in bytes. [`MIN_MTU`] is what RFC 8899 calls
//! BASE_PLPMTU and MIN_PLPMTU.

use core::time::Duration;

use crate::time::Instant;
use crate::wire::MIN_MTU;

/// Largest UDP payload there is (RFC 9000 §18.2).
pub(crate) const MAX_SIZE: u16 = 65_527;

/// Largest datagram we try unless configured: Ethernet with IPv6.
pub(crate) const DEFAULT_MAX_MTU: u16 = 1452;

/// Probes of one size before it counts as too large (MAX_PROBES, RFC 8899
/// §5.1.2).
const MAX_PROBES: u8 = 3;

/// From a finished search to the next try of larger sizes (PMTU_RAISE_TIMER,
/// RFC 8899 §5.1.1).
const RAISE_AFTER: Duration = Duration::from_secs(600);

/// A search ends when the gap is smaller: what it could still win is less than
/// what its probes cost.
const GRANULARITY: u16 = 16;

/// Loss bursts without a large packet coming through that make a black hole
/// (RFC 8899 §4.3). One burst, however long, may be congestion.
const BLACK_HOLE_BURSTS: u8 = 3;

/// Consecutive PTOs that make a black hole: then nothing is acknowledged, and
/// nothing is declared lost either.
const BLACK_HOLE_PTOS: u32 = 3;

/// What links commonly carry: Ethernet with IPv6 and IPv4, jumbo frames with
/// each, loopback. Tried in this order while no size has failed.
const COMMON_SIZES: [u16; 5] = [1452, 1472, 8952, 8972, MAX_SIZE];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The handshake is not confirmed: no probes yet (RFC 9000 §14.3.1).
    Waiting,
    /// Looking between the size in use and `high`.
    Searching {
        /// Probes of the present size that were lost.
        lost: u8,
        /// The probe on its way; its size may be out of date.
        in_flight: Option<u16>,
    },
    /// The size in use is the best found.
    Complete {
        /// When to look for a larger one.
        raise_at: Option<Instant>,
    },
}

/// DPLPMTUD on one path.
///
/// When `next_probe` names a size, send a packet of PING and
/// PADDING that fills a datagram of that size, alone, and tell
/// `on_probe_sent`. A lost probe is no sign of congestion
/// (RFC 9000 §14.4). Methods answer `Some(size)` when the size in use changed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MtuDiscovery {
    current: u16,
    /// Largest size that may still prove possible in this search.
    high: u16,
    /// Bound of configuration and peer.
    limit: u16,
    /// A size failed in this search: halve instead of climbing.
    any_failed: bool,
    phase: Phase,
    /// Loss bursts since a packet above [`MIN_MTU`] was acknowledged.
    bursts: u8,
    /// Packets sent up to here belong to the last burst.
    burst_end: Instant,
}

impl MtuDiscovery {
    /// A new path, with datagrams of [`MIN_MTU`]; never to exceed `cap`.
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

    /// The peer's max_udp_payload_size (below 1,200 is for the parser to
    /// refuse, RFC 9000 §18.2).
    pub(crate) fn set_peer_limit(&mut self, max_udp_payload_size: u64) {
        let peer = u16::try_from(max_udp_payload_size).unwrap_or(MAX_SIZE);
        self.limit = self.limit.min(peer).max(MIN_MTU);
        self.high = self.high.min(self.limit);
        self.current = self.current.min(self.limit);
    }

    /// The handshake is confirmed, or a later path is validated: probing begins.
    pub(crate) fn start(&mut self, now: Instant) {
        if self.phase == Phase::Waiting {
            self.search(now, self.limit);
        }
    }

    /// Largest datagram to send, except probes.
    #[must_use]
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// The size of the probe to send now, if one is due. One at a time.
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
            // A bound that moved meanwhile ended the search.
            self.proceed(now);
        }
        size
    }

    /// A probe of the size that [`MtuDiscovery::next_probe`] named has left.
    pub(crate) fn on_probe_sent(&mut self) {
        let size = self.candidate();
        if let Phase::Searching { in_flight, .. } = &mut self.phase {
            *in_flight = size;
        }
    }

    /// A probe of `size` was acknowledged.
    pub(crate) fn on_probe_acked(&mut self, now: Instant, size: u16) -> Option<u16> {
        self.on_packet_acked(size);
        if !self.clear_in_flight(size) || size <= self.current || size > self.high {
            return None;
        }
        self.current = size;
        self.proceed(now);
        Some(size)
    }

    /// A probe of `size` was declared lost.
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

    /// A packet in a datagram of `size`, not a probe, was acknowledged.
    pub(crate) fn on_packet_acked(&mut self, size: u16) {
        if size > MIN_MTU {
            self.bursts = 0;
        }
    }

    /// A packet in a datagram of `size`, not a probe, that left at `sent` was
    /// declared lost. Answers the new size if this reveals a black hole.
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

    /// The PTO expired for the `consecutive`th time in a row.
    pub(crate) fn on_pto(&mut self, now: Instant, consecutive: u32) -> Option<u16> {
        if consecutive < BLACK_HOLE_PTOS {
            return None;
        }
        self.fall_back(now, self.limit)
    }

    /// The socket refused a datagram of `size` (EMSGSIZE): the local interface
    /// is smaller, no probe needs to be lost to learn that.
    pub(crate) fn on_send_refused(&mut self, now: Instant, size: u16) -> Option<u16> {
        if size <= self.current {
            return self.fall_back(now, size.saturating_sub(1));
        }
        self.lower_upper_bound(now, size.saturating_sub(1));
        None
    }

    /// Larger sizes are tried again if it is time to. The probe itself leaves when
    /// the window has room for it, which is no reason to wake up.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if let Phase::Complete {
            raise_at: Some(raise_at),
        } = self.phase
            && now >= raise_at
        {
            self.search(now, self.limit);
        }
    }

    /// When [`MtuDiscovery::handle_timeout`] has something to do.
    #[must_use]
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Waiting | Phase::Searching { .. } => None,
            Phase::Complete { raise_at } => raise_at,
        }
    }

    /// The size to probe: up the rungs while all is well, then halving.
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

    /// Takes note that the probe of `size` is no longer on its way; false if
    /// it was not the one waited for.
    fn clear_in_flight(&mut self, size: u16) -> bool {
        match &mut self.phase {
            Phase::Searching { in_flight, .. } if *in_flight == Some(size) => {
                *in_flight = None;
                true
            }
            Phase::Waiting | Phase::Searching { .. } | Phase::Complete { .. } => false,
        }
    }

    /// Looks for the best size from the present one up to `high`.
    fn search(&mut self, now: Instant, high: u16) {
        self.high = high.clamp(self.current, self.limit);
        self.any_failed = false;
        self.proceed(now);
    }

    /// The next size, or the end of the search.
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

    /// Learns a bound at or above the size in use without a loss.
    fn lower_upper_bound(&mut self, now: Instant, high: u16) {
        if high >= self.high {
            return;
        }
        self.high = high.max(self.current);
        match self.phase {
            // The bound may have moved the candidate from under a probe; its
            // fate no longer matters.
            Phase::Searching { .. } => self.proceed(now),
            Phase::Waiting | Phase::Complete { .. } => {}
        }
    }

    /// The size in use does not work (any more): back to what every path
    /// carries, and look again up to `high`.
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
#[path = "mtu_tests.rs"]
mod tests;
