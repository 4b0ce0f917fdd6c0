//! A CRYPTO stream: the ordered bytes that TLS exchanges in a packet number space (RFC 9000
//! §7.5, §19.6). It has no flow control, so its receive side is bounded here.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::ops::RangeInclusive;

use clearway_recovery::Space;

use crate::error::{Code, TransportError};
use crate::memory;
use crate::wire::RangeSet;

/// Returns the most bytes beyond the read position that are buffered in a packet number
/// space. RFC 9000 §7.5 requires at least 4,096.
const fn max_buffered(space: Space) -> u64 {
    match space {
        // Anybody can send these. A ClientHello with a post-quantum key share takes 2 KiB,
        // and longer ones only have to arrive in order.
        Space::Initial => 16 << 10,
        // Certificate chains, with post-quantum signatures of some KiB each.
        Space::Handshake => 64 << 10,
        // Session tickets, of some hundred bytes each.
        Space::Data => 16 << 10,
    }
}

/// Most out-of-order pieces that are kept. A flight is a few dozen packets, so more pieces
/// are an attack.
const MAX_PIECES: usize = 256;

/// Both directions of one CRYPTO stream.
#[derive(Debug, Default)]
pub(crate) struct CryptoStream {
    send: Send,
    receive: Receive,
}

/// Data that TLS wrote and the peer has not acknowledged.
#[derive(Debug)]
struct Send {
    /// Offset of the first byte in `data`.
    base: u64,
    data: VecDeque<u8>,
    /// Everything before this offset has been sent at least once.
    next: u64,
    lost: RangeSet,
    acked: RangeSet,
}

/// Data that arrived and TLS has not read.
#[derive(Debug, Default)]
struct Receive {
    read: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
}

impl Receive {
    /// Returns the bytes buffered. Walks the pieces.
    fn buffered(&self) -> usize {
        self.pieces
            .values()
            .map(Vec::len)
            .fold(0, usize::saturating_add)
    }
}

impl CryptoStream {
    /// Appends bytes from TLS.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.send.data.extend(bytes);
    }

    /// Returns whether bytes are to be sent.
    #[inline]
    pub(crate) fn has_data_to_send(&self) -> bool {
        self.send.next < self.send.end() || !self.send.lost.is_empty()
    }

    /// Returns offset and length of the next bytes to send, lost ones first; `None` if
    /// there are none.
    pub(crate) fn next_to_send(&self) -> Option<(u64, usize)> {
        let send = &self.send;
        if let Some(range) = send.lost.iter().next() {
            let end = range.end().saturating_add(1);
            return Some((*range.start(), distance(*range.start(), end)));
        }
        let len = distance(send.next, send.end());
        (len > 0).then_some((send.next, len))
    }

    /// Copies `out.len()` bytes at `offset`, which `next_to_send` returned, and records
    /// them as sent.
    pub(crate) fn take(&mut self, offset: u64, out: &mut [u8]) {
        let send = &mut self.send;
        let end = offset.saturating_add(out.len() as u64);
        debug_assert!(send.base <= offset && end <= send.end());
        let start = distance(send.base, offset).min(send.data.len());
        let (front, back) = send.data.as_slices();
        let back = back.get(start.saturating_sub(front.len())..);
        let rest = front.get(start..).unwrap_or_default();
        let copied = rest.chain(back.unwrap_or_default()).read_exact(out);
        debug_assert!(copied.is_ok(), "fewer bytes than the buffer has");
        if let Some(range) = range(offset, out.len()) {
            send.lost.subtract(range);
        }
        send.next = send.next.max(end);
    }

    /// Handles the acknowledgement of a CRYPTO frame.
    pub(crate) fn on_acked(&mut self, offset: u64, len: usize) {
        let send = &mut self.send;
        let Some(range) = range(offset, len) else {
            return;
        };
        send.lost.subtract(range.clone());
        send.acked.insert_range(range);
        let first = send.acked.iter().next();
        if let Some(first) = first
            && *first.start() <= send.base
        {
            let end = first.end().saturating_add(1);
            debug_assert!(
                end <= send.end(),
                "the peer acknowledged more than was written"
            );
            send.acked.subtract(0..=*first.end());
            let gone = distance(send.base, end).min(send.data.len());
            send.data.drain(..gone);
            send.base = send.base.max(end);
        }
    }

    /// Handles the loss of a CRYPTO frame.
    pub(crate) fn on_lost(&mut self, offset: u64, len: usize) {
        let send = &mut self.send;
        let start = offset.max(send.base);
        let len = distance(start, offset.saturating_add(len as u64));
        let Some(range) = range(start, len) else {
            return;
        };
        send.lost.insert_range(range);
        for acked in send.acked.iter() {
            send.lost.subtract(acked);
        }
    }

    /// Makes everything unacknowledged due again, for a probe or after a Retry.
    pub(crate) fn resend_all(&mut self) {
        let (base, next) = (self.send.base, self.send.next);
        self.on_lost(base, distance(base, next));
    }

    /// Returns whether there are bytes not acknowledged or not sent yet.
    pub(crate) fn has_unacked(&self) -> bool {
        !self.send.data.is_empty()
    }

    /// Handles a received CRYPTO frame of this stream's `space`.
    ///
    /// # Errors
    /// CRYPTO_BUFFER_EXCEEDED if more would have to be buffered than allowed (RFC 9000
    /// §7.5).
    pub(crate) fn on_frame(
        &mut self,
        space: Space,
        offset: u64,
        data: &[u8],
    ) -> Result<(), TransportError> {
        let receive = &mut self.receive;
        let end = offset.saturating_add(data.len() as u64);
        if end <= receive.read || data.is_empty() {
            return Ok(());
        }
        let exceeded = |why: String| Err(TransportError::new(Code::CRYPTO_BUFFER_EXCEEDED, why));
        let max = max_buffered(space);
        if end.saturating_sub(receive.read) > max {
            let max = max >> 10;
            return exceeded(format!(
                "CRYPTO data more than {max} KiB ahead of what TLS has read"
            ));
        }
        let skip = distance(offset, receive.read);
        let (offset, data) = (
            offset.max(receive.read),
            data.get(skip..).unwrap_or_default(),
        );
        let known = receive.pieces.get(&offset).map_or(0, Vec::len);
        if known > 0 && known >= data.len() {
            return Ok(());
        }
        if known == 0 && receive.pieces.len() >= MAX_PIECES {
            return exceeded(format!(
                "CRYPTO data in more than {MAX_PIECES} separate pieces"
            ));
        }
        let buffered = receive.buffered().saturating_sub(known);
        let max = max.saturating_mul(2);
        if buffered.saturating_add(data.len()) as u64 > max {
            let max = max >> 10;
            return exceeded(format!("overlapping CRYPTO data beyond {max} KiB"));
        }
        receive.pieces.insert(offset, data.to_vec());
        Ok(())
    }

    /// Takes the next bytes in order for TLS, if they have arrived.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let receive = &mut self.receive;
        loop {
            let first = receive.pieces.first_entry()?;
            let offset = *first.key();
            if offset > receive.read {
                return None;
            }
            let mut piece = first.remove();
            let skip = distance(offset, receive.read).min(piece.len());
            piece.drain(..skip);
            if !piece.is_empty() {
                receive.read = receive.read.saturating_add(piece.len() as u64);
                return Some(piece);
            }
        }
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.send.data.shrink_to_fit();
        self.send.lost.release_memory();
        self.send.acked.release_memory();
    }

    /// Returns the bytes allocated. The length of a piece is its capacity, since it was
    /// copied out of its packet.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the parts are in memory at the same time, so their sizes add up"
    )]
    pub(crate) fn memory(&self) -> usize {
        self.receive.buffered()
            + memory::btree_map(&self.receive.pieces)
            + memory::vec_deque(&self.send.data)
            + self.send.lost.memory()
            + self.send.acked.memory()
    }
}

impl Default for Send {
    fn default() -> Self {
        Self {
            base: 0,
            data: VecDeque::new(),
            next: 0,
            lost: RangeSet::unbounded(),
            acked: RangeSet::unbounded(),
        }
    }
}

impl Send {
    fn end(&self) -> u64 {
        self.base.saturating_add(self.data.len() as u64)
    }
}

/// Returns the bytes from one offset up to another; 0 if that is before it.
fn distance(from: u64, to: u64) -> usize {
    usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX)
}

/// Returns the range of `len` bytes from `offset` on; `None` if `len` is 0.
fn range(offset: u64, len: usize) -> Option<RangeInclusive<u64>> {
    let last = (len as u64).checked_sub(1)?;
    Some(offset..=offset.saturating_add(last))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(stream: &mut CryptoStream, max: usize) -> Option<(u64, Vec<u8>)> {
        let (offset, len) = stream.next_to_send()?;
        let mut out = vec![0; len.min(max)];
        stream.take(offset, &mut out);
        Some((offset, out))
    }

    #[test]
    fn lost_crypto_bytes_are_retransmitted_before_new_ones() {
        let mut stream = CryptoStream::default();
        stream.write(b"abcdefgh");
        assert_eq!(sent(&mut stream, 3), Some((0, b"abc".to_vec())));
        assert_eq!(sent(&mut stream, 3), Some((3, b"def".to_vec())));
        stream.on_lost(0, 3);
        assert_eq!(sent(&mut stream, 2), Some((0, b"ab".to_vec())));
        assert_eq!(sent(&mut stream, 9), Some((2, b"c".to_vec())));
        assert_eq!(sent(&mut stream, 9), Some((6, b"gh".to_vec())));
        assert_eq!(sent(&mut stream, 9), None);
        stream.on_acked(3, 3);
        stream.resend_all();
        assert_eq!(sent(&mut stream, 9), Some((0, b"abc".to_vec())));
        assert_eq!(sent(&mut stream, 9), Some((6, b"gh".to_vec())));
        stream.on_acked(0, 3);
        stream.on_acked(6, 2);
        assert!(!stream.has_unacked());
        stream.on_lost(0, 8);
        assert_eq!(sent(&mut stream, 9), None);
    }

    /// The buffer is a ring, which the bytes go round several times.
    #[test]
    fn crypto_bytes_are_sent_as_written_wherever_they_are_buffered() {
        let mut stream = CryptoStream::default();
        let mut written = 0..=u8::MAX;
        stream.write(&written.by_ref().take(13).collect::<Vec<_>>());
        let mut read = Vec::new();
        while let Some((offset, bytes)) = sent(&mut stream, 7) {
            stream.on_acked(offset, bytes.len());
            read.extend(bytes);
            stream.write(&written.by_ref().take(5).collect::<Vec<_>>());
        }
        assert_eq!(read, Vec::from_iter(0..=u8::MAX));
    }

    #[test]
    fn crypto_data_in_any_order_is_read_once_in_order() {
        let mut stream = CryptoStream::default();
        for (offset, data) in [
            (4, &b"ef"[..]),
            (2, b"cde"),
            (0, b"ab"),
            (0, b"abc"),
            (6, b"g"),
        ] {
            stream.on_frame(Space::Initial, offset, data).unwrap();
        }
        let mut read = Vec::new();
        while let Some(piece) = stream.read() {
            read.extend(piece);
        }
        assert_eq!(read, b"abcdefg");
        assert!(stream.receive.pieces.is_empty());
        stream.on_frame(Space::Initial, 0, b"abcdefg").unwrap();
        assert_eq!(stream.read(), None);
        assert_eq!(stream.receive.buffered(), 0);
    }

    #[test]
    fn crypto_data_beyond_the_bound_is_crypto_buffer_exceeded() {
        for (space, max) in [
            (Space::Initial, 16 << 10),
            (Space::Handshake, 64 << 10),
            (Space::Data, 16 << 10),
        ] {
            let mut stream = CryptoStream::default();
            let err = stream.on_frame(space, max, b"x").unwrap_err();
            assert_eq!(err.code, Code::CRYPTO_BUFFER_EXCEEDED);
            stream.on_frame(space, max - 1, b"x").unwrap();
            // Separate pieces, then pieces that overlap.
            for (step, len) in [(2, 1), (1, 1_000)] {
                let mut stream = CryptoStream::default();
                let data = vec![0; len];
                let refused = (0..1_000)
                    .find_map(|i| stream.on_frame(space, step * i + 1, &data).err())
                    .expect("a bound");
                assert_eq!(refused.code, Code::CRYPTO_BUFFER_EXCEEDED);
                assert!(stream.receive.buffered() as u64 <= 2 * max);
            }
        }
    }

    /// Data of any length is accepted as long as it arrives in order.
    #[test]
    fn crypto_data_in_order_is_unlimited() {
        let mut stream = CryptoStream::default();
        for i in 0..100 {
            let offset = i * 1_000;
            stream
                .on_frame(Space::Initial, offset, &[7; 1_000])
                .unwrap();
            assert_eq!(stream.read().map(|piece| piece.len()), Some(1_000));
        }
        let before = stream.on_frame(Space::Initial, 100_000 + (16 << 10), b"x");
        assert!(before.is_err(), "ahead of what was read");
    }

    proptest! {
        /// Whatever is lost, acknowledged or retransmitted, in whatever order: every byte
        /// is sent until it is acknowledged, and no other.
        #[test]
        fn every_crypto_byte_is_retransmitted_until_acknowledged(
            steps in proptest::collection::vec((0..5_u8, any::<prop::sample::Index>(), 1..40_usize), 1..120),
        ) {
            let mut stream = CryptoStream::default();
            let mut written = Vec::new();
            let mut flying: Vec<(u64, usize)> = Vec::new();
            for (step, which, len) in steps {
                match step {
                    0 => {
                        let more: Vec<_> = (written.len()..written.len() + len).map(|i| i as u8).collect();
                        stream.write(&more);
                        written.extend(more);
                    }
                    1 => if let Some((offset, bytes)) = sent(&mut stream, len) {
                        prop_assert_eq!(&bytes[..], &written[offset as usize..][..bytes.len()]);
                        flying.push((offset, bytes.len()));
                    },
                    2 | 3 if !flying.is_empty() => {
                        let (offset, len) = flying.swap_remove(which.index(flying.len()));
                        if step == 2 {
                            stream.on_acked(offset, len);
                        } else {
                            stream.on_lost(offset, len);
                        }
                    }
                    4 => stream.resend_all(),
                    _ => {}
                }
            }
            // Nothing is lost any more.
            while let Some((offset, bytes)) = sent(&mut stream, 1000) {
                prop_assert_eq!(&bytes[..], &written[offset as usize..][..bytes.len()]);
                flying.push((offset, bytes.len()));
            }
            for (offset, len) in flying {
                stream.on_acked(offset, len);
            }
            prop_assert!(!stream.has_unacked());
        }
    }
}
