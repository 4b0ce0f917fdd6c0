//! Flow queueing with CoDel in each flow (FQ-CoDel, RFC 8290).

use core::net::{IpAddr, SocketAddr};
use core::num::NonZeroU32;
use std::collections::VecDeque;

use super::CodelConfig;
use super::codel::Control;
use crate::ledger::{Depth, Ledger, QueuedPacket};
use crate::queue::Fifo;
use crate::{DropCause, QueueLimit, Time};

/// Configuration of FQ-CoDel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FqCodelConfig {
    /// The CoDel configuration of each flow's queue.
    pub codel: CodelConfig,
    /// Queues that flows are hashed to (RFC 8290 §5.2.4).
    pub flows: NonZeroU32,
    /// Bytes a flow may send per round (RFC 8290 §5.2.3).
    pub quantum: NonZeroU32,
}

impl Default for FqCodelConfig {
    /// 1,024 queues and 1,514 bytes (RFC 8290 §5.2).
    fn default() -> Self {
        Self {
            codel: CodelConfig::default(),
            flows: const { NonZeroU32::new(1024).expect("not zero") },
            quantum: const { NonZeroU32::new(1514).expect("not zero") },
        }
    }
}

/// Packets dropped at once from the longest queue when the limit is reached, which spreads the cost
/// of searching for it (RFC 8290 §4.1).
const OVERFLOW_BATCH: usize = 64;

/// One of the queues that flows are hashed to.
#[derive(Clone, Debug, Default)]
struct Flow {
    fifo: Fifo,
    control: Control,
    /// Bytes left in this round; negative if the last packet exceeded it.
    credit: i64,
    /// Whether it is in one of the two lists.
    listed: bool,
}

/// The queues, and the two lists of those that are not empty.
#[derive(Clone, Debug)]
pub(crate) struct FqCodel {
    config: FqCodelConfig,
    flows: Vec<Flow>,
    fresh: VecDeque<usize>,
    old: VecDeque<usize>,
    depth: Depth,
    /// Keeps senders from choosing flows that collide.
    salt: u64,
}

impl FqCodel {
    pub(crate) fn new(config: FqCodelConfig, salt: u64) -> Self {
        Self {
            flows: vec![Flow::default(); config.flows.get() as usize],
            config,
            fresh: VecDeque::new(),
            old: VecDeque::new(),
            depth: Depth::default(),
            salt,
        }
    }

    /// Enqueues a packet; if the limit is exceeded, the longest queue drops.
    pub(crate) fn push(
        &mut self,
        now: Time,
        carried: QueuedPacket,
        limit: QueueLimit,
        ledger: &mut Ledger,
    ) {
        let hash = hash(self.salt, carried.packet.src, carried.packet.dst);
        let index = (hash % self.flows.len() as u64) as usize;
        self.depth.packets += 1;
        self.depth.bytes += u64::from(carried.size);
        ledger.queued(now, &carried, self.depth);
        let flow = &mut self.flows[index];
        flow.fifo.push(carried);
        if !flow.listed {
            flow.listed = true;
            flow.credit = i64::from(self.config.quantum.get());
            self.fresh.push_back(index);
        }
        while self.depth.exceeds(limit) {
            self.shed(now, ledger);
        }
    }

    /// Drops up to half of the longest queue from its head (RFC 8290 §4.1).
    fn shed(&mut self, now: Time, ledger: &mut Ledger) {
        let fattest = self
            .flows
            .iter_mut()
            .max_by_key(|flow| flow.fifo.depth().bytes);
        let Some(flow) = fattest else { return };
        let enough = flow.fifo.depth().bytes / 2;
        for _ in 0..OVERFLOW_BATCH {
            let Some(carried) = flow.fifo.pop() else {
                return;
            };
            self.depth.packets -= 1;
            self.depth.bytes -= u64::from(carried.size);
            ledger.dropped(now, &carried, DropCause::QueueFull);
            if flow.fifo.depth().bytes <= enough {
                return;
            }
        }
    }

    /// The next packet, by deficit round robin; flows that just began go
    /// before the others (RFC 8290 §4.2).
    pub(crate) fn pop(&mut self, now: Time, ledger: &mut Ledger) -> Option<QueuedPacket> {
        loop {
            let from_fresh = !self.fresh.is_empty();
            let list = if from_fresh {
                &mut self.fresh
            } else {
                &mut self.old
            };
            let index = *list.front()?;
            let flow = &mut self.flows[index];
            if flow.credit <= 0 {
                flow.credit += i64::from(self.config.quantum.get());
                list.pop_front();
                self.old.push_back(index);
                continue;
            }
            let before = flow.fifo.depth();
            let carried = flow
                .control
                .dequeue(&mut flow.fifo, self.config.codel, now, ledger);
            let after = flow.fifo.depth();
            self.depth.packets -= before.packets - after.packets;
            self.depth.bytes -= before.bytes - after.bytes;
            if let Some(carried) = carried {
                flow.credit -= i64::from(carried.size);
                return Some(carried);
            }
            list.pop_front();
            // An empty new flow passes through the old list once, so that it
            // can't win priority by pausing (RFC 8290 §4.2).
            if from_fresh && !self.old.is_empty() {
                self.old.push_back(index);
            } else {
                flow.listed = false;
            }
        }
    }

    pub(crate) fn depth(&self) -> Depth {
        self.depth
    }

    /// Empties the queues without dropping or marking.
    pub(crate) fn drain(&mut self) -> Vec<QueuedPacket> {
        let mut all: Vec<_> = self
            .flows
            .iter_mut()
            .flat_map(|flow| core::iter::from_fn(|| flow.fifo.pop()))
            .collect();
        all.sort_by_key(|carried| carried.index);
        all
    }
}

/// Mixes the addresses of a packet, which name its flow: all is UDP.
fn hash(salt: u64, src: SocketAddr, dst: SocketAddr) -> u64 {
    let words = |address: SocketAddr| {
        let bits = match address.ip() {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        // Both halves, then the port.
        [bits as u64, (bits >> 64) as u64, u64::from(address.port())]
    };
    [words(src), words(dst)]
        .into_iter()
        .flatten()
        .fold(salt, |hash, word| mix(hash ^ word))
}

/// A bijection under which each input bit changes half of the output bits:
/// the finaliser of SplitMix64.
const fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
