//! A batch of received messages in memory that is used again and again.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{DatagramSocket, Ecn};

/// Most messages one receive call fills.
pub const MAX_SLOTS: usize = 32;

/// Slot size that holds any message, trains included, bytes.
const WHOLE_TRAIN: usize = 65_536;

/// Slot size where trains arrive cut up, bytes: any datagram a 9,000-byte jumbo frame carries.
const ONE_DATAGRAM: usize = 9_000;

/// What is known of one message: a datagram, or a train of them from one remote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Who sent it. An IPv4 address is never shown in its IPv6-mapped form.
    pub remote: SocketAddr,
    /// The address it came to, where the platform tells.
    pub local_ip: Option<IpAddr>,
    /// ECN codepoint; `None` is Not-ECT or not told.
    pub ecn: Option<Ecn>,
    /// Bytes of the whole message.
    pub len: usize,
    /// Bytes of each datagram in it; the last may be shorter.
    pub stride: usize,
    /// Messages the kernel had dropped from this socket's queue, all told, when this one was
    /// queued (wraps).
    pub drops: u32,
}

impl Meta {
    /// One datagram from `remote`, of which nothing else is known; its length comes from
    /// [`RecvBatch::push`].
    #[must_use]
    pub fn new(remote: SocketAddr) -> Self {
        Self {
            remote,
            ..Self::EMPTY
        }
    }

    /// Datagrams in the message; an empty datagram counts.
    #[must_use]
    pub fn datagrams(&self) -> usize {
        self.len.div_ceil(self.stride.max(1)).max(1)
    }

    pub(crate) const EMPTY: Self = Self {
        remote: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0),
        local_ip: None,
        ecn: None,
        len: 0,
        stride: 0,
        drops: 0,
    };
}

/// Memory for [`crate::Socket::recv`]: allocated once, filled by each call, its payloads open to
/// decryption in place until the next.
#[derive(Debug)]
pub struct RecvBatch {
    buffer: Box<[u8]>,
    slot: usize,
    metas: Box<[Meta]>,
    filled: usize,
    #[cfg(target_os = "linux")]
    scratch: crate::linux::Scratch,
}

impl RecvBatch {
    /// Room for `slots` messages (1 to [`MAX_SLOTS`]) of `slot` bytes. A message larger than a
    /// slot is cut and counted.
    #[must_use]
    pub fn new(slots: usize, slot: usize) -> Self {
        let slots = slots.clamp(1, MAX_SLOTS);
        let slot = slot.clamp(1, WHOLE_TRAIN);
        Self {
            buffer: vec![0; slots.saturating_mul(slot)].into_boxed_slice(),
            slot,
            metas: vec![Meta::EMPTY; slots].into_boxed_slice(),
            filled: 0,
            #[cfg(target_os = "linux")]
            scratch: crate::linux::Scratch::new(slots),
        }
    }

    /// Slots as large as `socket` can fill: 64 KiB with GRO, a jumbo frame without. Untouched
    /// slots cost address space, not memory.
    #[must_use]
    pub fn for_socket(socket: &(impl DatagramSocket + ?Sized), slots: usize) -> Self {
        Self::new(
            slots,
            if socket.report().gro {
                WHOLE_TRAIN
            } else {
                ONE_DATAGRAM
            },
        )
    }

    /// Messages from the last receive call.
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the last receive call brought nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Whether every slot was used, so that more is probably waiting.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.filled == self.metas.len()
    }

    /// Each message whole, as the kernel handed it over.
    pub fn messages(&mut self) -> impl Iterator<Item = (&Meta, &mut [u8])> {
        let slots = self.buffer.chunks_exact_mut(self.slot);
        self.metas
            .iter()
            .take(self.filled)
            .zip(slots)
            .map(|(meta, slot)| (meta, slot.get_mut(..meta.len).unwrap_or_default()))
    }

    /// Each datagram, trains cut up, in the order of arrival. `Meta` is that of the message it
    /// came in; the payload's own length is the datagram's. Empty datagrams are passed over.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (&Meta, &mut [u8])> {
        self.messages().flat_map(|(meta, payload)| {
            payload
                .chunks_mut(meta.stride.max(1))
                .map(move |datagram| (meta, datagram))
        })
    }

    /// Adds a message, for a [`DatagramSocket`] that has its datagrams from elsewhere; whether
    /// a slot was free. `meta.len` becomes the length of `contents`; what outgrows the slot is
    /// cut, whole datagrams of `meta.stride` bytes staying.
    pub fn push(&mut self, meta: Meta, contents: &[u8]) -> bool {
        let slots = self.buffer.chunks_exact_mut(self.slot);
        let Some((place, slot)) = self.metas.iter_mut().zip(slots).nth(self.filled) else {
            return false;
        };
        let stride = if meta.stride == 0 {
            contents.len().max(1)
        } else {
            meta.stride
        };
        let len = if contents.len() > slot.len() {
            let whole = slot.len().checked_div(stride).unwrap_or(0);
            whole.saturating_mul(stride)
        } else {
            contents.len()
        };
        if let (Some(to), Some(from)) = (slot.get_mut(..len), contents.get(..len)) {
            to.copy_from_slice(from);
        }
        *place = Meta {
            len,
            stride,
            ..meta
        };
        self.filled = self.filled.saturating_add(1);
        true
    }

    /// Forgets the messages; the memory stays.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    pub(crate) fn fill(&mut self, messages: usize) {
        self.filled = messages.min(self.metas.len());
    }

    /// Each slot with the place for what is known of it.
    #[cfg(any(test, not(target_os = "linux")))]
    pub(crate) fn slots(&mut self) -> impl Iterator<Item = (&mut Meta, &mut [u8])> {
        self.metas
            .iter_mut()
            .zip(self.buffer.chunks_exact_mut(self.slot))
    }

    /// Everything a receive call writes to.
    #[cfg(target_os = "linux")]
    pub(crate) fn parts(&mut self) -> Parts<'_> {
        Parts {
            buffer: &mut self.buffer,
            slot: self.slot,
            metas: &mut self.metas,
            scratch: &mut self.scratch,
        }
    }
}

/// A batch taken apart for one receive call.
#[cfg(target_os = "linux")]
pub(crate) struct Parts<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) slot: usize,
    pub(crate) metas: &'a mut [Meta],
    pub(crate) scratch: &'a mut crate::linux::Scratch,
}
