//! A reusable batch of received messages.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::{DatagramSocket, Ecn};

/// Maximum number of messages that one receive call fills.
pub const MAX_SLOTS: usize = 32;

/// Size of a slot that holds any message, trains included, in bytes.
const WHOLE_TRAIN: usize = 65_536;

/// Size of a slot where trains arrive as single datagrams, in bytes: any datagram of a 9,000-byte
/// jumbo frame.
const ONE_DATAGRAM: usize = 9_000;

/// Metadata of one message: a datagram, or a train of datagrams from one remote address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// The sender's address. An IPv4 address is never shown in its IPv6-mapped form.
    pub remote: SocketAddr,
    /// The local address it was sent to, where the platform reports it.
    pub local_ip: Option<IpAddr>,
    /// ECN codepoint; `None` means Not-ECT or not reported.
    pub ecn: Option<Ecn>,
    /// Length of the whole message, in bytes.
    pub len: usize,
    /// Length of each datagram in the message, in bytes; the last may be shorter.
    pub stride: usize,
    /// Total number of messages that the kernel had dropped from this socket's queue when this one
    /// was queued (wraps).
    pub drops: u32,
}

impl Meta {
    /// Metadata of one datagram from `remote`, with everything else unknown; the length is set by
    /// [`RecvBatch::push`].
    #[must_use]
    pub fn new(remote: SocketAddr) -> Self {
        Self {
            remote,
            ..Self::EMPTY
        }
    }

    /// Number of datagrams in the message; an empty datagram counts.
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

/// Memory for [`crate::Socket::recv`]: allocated once and filled by each call. Payloads are
/// mutable, so that they can be decrypted in place, and valid until the next call.
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
    /// Creates a batch of `slots` messages (1 to [`MAX_SLOTS`]) of `slot` bytes each. A message
    /// larger than a slot is truncated and counted.
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

    /// Creates a batch with slots as large as `socket` can fill: 64 KiB with GRO, a jumbo frame
    /// without. Unused slots cost address space, not memory.
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

    /// Number of messages from the last receive call.
    #[must_use]
    pub fn len(&self) -> usize {
        self.filled
    }

    /// Whether the last receive call returned no message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }

    /// Whether every slot was used, so that more is probably waiting.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.filled == self.metas.len()
    }

    /// The messages as the kernel returned them, trains in one piece.
    pub fn messages(&mut self) -> impl Iterator<Item = (&Meta, &mut [u8])> {
        let slots = self.buffer.chunks_exact_mut(self.slot);
        self.metas
            .iter()
            .take(self.filled)
            .zip(slots)
            .map(|(meta, slot)| (meta, slot.get_mut(..meta.len).unwrap_or_default()))
    }

    /// The datagrams in order of arrival, trains split up. `Meta` is that of the message; the
    /// length of the payload is the datagram's. Empty datagrams are skipped.
    pub fn datagrams(&mut self) -> impl Iterator<Item = (&Meta, &mut [u8])> {
        self.messages().flat_map(|(meta, payload)| {
            payload
                .chunks_mut(meta.stride.max(1))
                .map(move |datagram| (meta, datagram))
        })
    }

    /// Adds a message, for a [`DatagramSocket`] that receives datagrams from elsewhere. Returns
    /// whether a slot was free. `meta.len` is set to the length of `contents`; contents larger than
    /// the slot are truncated to whole datagrams of `meta.stride` bytes.
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

    /// Removes all messages and keeps the memory.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    pub(crate) fn fill(&mut self, messages: usize) {
        self.filled = messages.min(self.metas.len());
    }

    /// Each slot with its metadata.
    #[cfg(any(test, not(target_os = "linux")))]
    pub(crate) fn slots(&mut self) -> impl Iterator<Item = (&mut Meta, &mut [u8])> {
        self.metas
            .iter_mut()
            .zip(self.buffer.chunks_exact_mut(self.slot))
    }

    /// Everything that a receive call writes to.
    #[cfg(target_os = "linux")]
    pub(crate) fn parts(&mut self) -> BatchParts<'_> {
        BatchParts {
            buffer: &mut self.buffer,
            slot: self.slot,
            metas: &mut self.metas,
            scratch: &mut self.scratch,
        }
    }
}

/// The parts of a batch, borrowed for one receive call.
#[cfg(target_os = "linux")]
pub(crate) struct BatchParts<'a> {
    pub(crate) buffer: &'a mut [u8],
    pub(crate) slot: usize,
    pub(crate) metas: &'a mut [Meta],
    pub(crate) scratch: &'a mut crate::linux::Scratch,
}
