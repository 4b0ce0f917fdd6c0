//! Memory for what clients have yet to take.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;

/// How much of a file is read at once: large enough that changing threads for it
/// costs little.
pub(crate) const LARGEST_PIECE: u64 = 256 << 10;

/// What a download gets when memory is short, in bytes: a page.
pub(crate) const SMALLEST_PIECE: u64 = 4 << 10;

/// The part of what is free that one piece may be.
const PART: u64 = 64;

/// An account of bytes that are held. It does not make anybody wait: the fuller it
/// is, the smaller pieces become, so that everybody goes on.
#[derive(Debug)]
pub(crate) struct Buffers {
    total: u64,
    held: AtomicU64,
}

/// Bytes on the account, until they are dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    buffers: Arc<Buffers>,
    bytes: u64,
}

impl Buffers {
    /// An account for this many bytes.
    pub(crate) fn new(total: u64) -> Self {
        Self {
            total,
            held: AtomicU64::new(0),
        }
    }

    fn free(&self) -> u64 {
        self.total.saturating_sub(self.held.load(Relaxed))
    }

    /// How large the next piece may be, in bytes.
    pub(crate) fn piece(&self) -> u64 {
        (self.free() / PART).clamp(SMALLEST_PIECE, LARGEST_PIECE)
    }

    /// Whether there is room to read what nobody has asked for yet.
    pub(crate) fn is_ample(&self) -> bool {
        self.free() > self.total / 2
    }

    /// Enters bytes, however many there are already.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Charge {
        self.held.fetch_add(bytes, Relaxed);
        Charge {
            buffers: self.clone(),
            bytes,
        }
    }

    /// Enters bytes if there is room.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let charge = self.charge(bytes);
        (self.held.load(Relaxed) <= self.total).then_some(charge)
    }
}

/// Bytes on an account for as long as anybody holds them.
struct Charged {
    bytes: Bytes,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Charge {
    /// Keeps these bytes on the account until the last copy of them is gone: what
    /// is sent, until its receiver has acknowledged it.
    pub(crate) fn attach(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(Charged {
            bytes,
            _charge: self,
        })
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.buffers.held.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_get_smaller_and_never_stop() {
        let buffers = Arc::new(Buffers::new(64 << 20));
        assert_eq!(buffers.piece(), LARGEST_PIECE);
        let mut charges = Vec::new();
        for _ in 0..5_000 {
            charges.push(buffers.charge(buffers.piece()));
        }
        assert_eq!(buffers.piece(), SMALLEST_PIECE);
        let held = buffers.held.load(Relaxed);
        let worst = (64 << 20) + 5_000 * SMALLEST_PIECE;
        assert!(held <= worst, "{held}");
        assert!(buffers.try_charge(64 << 20).is_none());
        drop(charges);
        let bytes = buffers.charge(5).attach(Bytes::from_static(b"bytes"));
        let rest = bytes.slice(3..);
        drop(bytes);
        assert_eq!(buffers.held.load(Relaxed), 5);
        drop(rest);
        assert_eq!(
            buffers.held.load(Relaxed),
            0,
            "what was refused is not held"
        );
        assert!(buffers.try_charge(64 << 20).is_some());
    }
}
