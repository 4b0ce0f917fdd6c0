//! One CRYPTO stream: the ordered bytes TLS exchanges in a packet number space
//! (RFC 9000 §7.5, §19.6). It has no flow control, so its receive side is bounded
//! here.

use std::collections::{BTreeMap, VecDeque};

use crate::error::{Code, TransportError};
use crate::memory;
use crate::wire::RangeSet;

/// Bytes beyond the read position that we buffer. RFC 9000 §7.5 asks for at
/// least 4,096; a certificate chain with post-quantum shares wants more.
pub(crate) const MAX_BUFFERED: u64 = 64 * 1024;

/// Out-of-order pieces kept at most: smaller pieces than this count implies are
/// an attack, since a flight is a few dozen packets.
const MAX_PIECES: usize = 256;

/// Both directions of one CRYPTO stream.
#[derive(Debug, Default)]
pub(crate) struct CryptoStream {
    send: Send,
    receive: Receive,
}

/// What TLS wrote and the peer has not acknowledged.
#[derive(Debug)]
struct Send {
    /// Offset of the first byte in `data`.
    base: u64,
    data: VecDeque<u8>,
    /// Everything before has been sent at least once.
    next: u64,
    lost: RangeSet,
    acked: RangeSet,
}

/// What arrived and TLS has not read.
#[derive(Debug, Default)]
struct Receive {
    read: u64,
    pieces: BTreeMap<u64, Vec<u8>>,
    buffered: usize,
}

impl CryptoStream {
    /// Appends bytes from TLS.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.send.data.extend(bytes);
    }

    /// The next bytes to send: lost ones first. `None` if nothing is due.
    pub(crate) fn next_to_send(&self) -> Option<(u64, usize)> {
        let send = &self.send;
        if let Some(range) = send.lost.iter().next() {
            return Some((*range.start(), (range.end() - range.start() + 1) as usize));
        }
        let end = send.end();
        (send.next < end).then(|| (send.next, (end - send.next) as usize))
    }

    /// Copies `out.len()` bytes at `offset`, which `next_to_send` named, and
    /// counts them as sent.
    pub(crate) fn take(&mut self, offset: u64, out: &mut [u8]) {
        let send = &mut self.send;
        let end = offset + out.len() as u64;
        let start = (offset - send.base) as usize;
        for (to, from) in out.iter_mut().zip(send.data.range(start..)) {
            *to = *from;
        }
        if !out.is_empty() {
            send.lost.subtract(offset..=end - 1);
        }
        send.next = send.next.max(end);
    }

    /// A CRYPTO frame of ours was acknowledged.
    pub(crate) fn on_acked(&mut self, offset: u64, len: usize) {
        let send = &mut self.send;
        if len == 0 {
            return;
        }
        let range = offset..=offset + len as u64 - 1;
        send.lost.subtract(range.clone());
        send.acked.insert_range(range);
        let first = send.acked.iter().next();
        if let Some(first) = first
            && *first.start() <= send.base
        {
            let end = first.end() + 1;
            send.acked.subtract(0..=end - 1);
            send.data.drain(..end.saturating_sub(send.base) as usize);
            send.base = send.base.max(end);
        }
    }

    /// A CRYPTO frame of ours was lost.
    pub(crate) fn on_lost(&mut self, offset: u64, len: usize) {
        let send = &mut self.send;
        let (start, end) = (offset.max(send.base), offset + len as u64);
        if start >= end {
            return;
        }
        send.lost.insert_range(start..=end - 1);
        for acked in send.acked.iter() {
            send.lost.subtract(acked);
        }
    }

    /// Makes everything unacknowledged due again: a probe or a Retry.
    pub(crate) fn resend_all(&mut self) {
        let (base, next) = (self.send.base, self.send.next);
        self.on_lost(base, (next - base) as usize);
    }

    /// Whether TLS bytes wait for acknowledgement or sending.
    pub(crate) fn has_unacked(&self) -> bool {
        !self.send.data.is_empty()
    }

    /// Takes in a CRYPTO frame.
    ///
    /// # Errors
    /// CRYPTO_BUFFER_EXCEEDED beyond the bound (RFC 9000 §7.5).
    pub(crate) fn on_frame(&mut self, offset: u64, data: &[u8]) -> Result<(), TransportError> {
        let receive = &mut self.receive;
        let end = offset + data.len() as u64;
        if end <= receive.read {
            return Ok(());
        }
        let exceeded = |why: &'static str| TransportError::new(Code::CRYPTO_BUFFER_EXCEEDED, why);
        if end - receive.read > MAX_BUFFERED {
            return Err(exceeded(
                "CRYPTO data more than 64 KiB ahead of what TLS has read",
            ));
        }
        let skip = receive.read.saturating_sub(offset) as usize;
        let (offset, data) = (offset + skip as u64, &data[skip..]);
        match receive.pieces.get(&offset) {
            Some(known) if known.len() >= data.len() => return Ok(()),
            Some(known) => receive.buffered -= known.len(),
            None if receive.pieces.len() >= MAX_PIECES => {
                return Err(exceeded("CRYPTO data in more than 256 separate pieces"));
            }
            None => {}
        }
        receive.buffered += data.len();
        if receive.buffered as u64 > 2 * MAX_BUFFERED {
            return Err(exceeded("overlapping CRYPTO data beyond 128 KiB"));
        }
        receive.pieces.insert(offset, data.to_vec());
        Ok(())
    }

    /// The next bytes in order for TLS, if they have arrived.
    pub(crate) fn read(&mut self) -> Option<Vec<u8>> {
        let receive = &mut self.receive;
        loop {
            let first = receive.pieces.first_entry()?;
            let offset = *first.key();
            if offset > receive.read {
                return None;
            }
            let mut piece = first.remove();
            receive.buffered -= piece.len();
            let skip = ((receive.read - offset) as usize).min(piece.len());
            piece.drain(..skip);
            if !piece.is_empty() {
                receive.read += piece.len() as u64;
                return Some(piece);
            }
        }
    }

    /// Gives back the memory that is held for reuse.
    pub(crate) fn release_memory(&mut self) {
        self.send.data.shrink_to_fit();
        self.send.lost.release_memory();
        self.send.acked.release_memory();
    }

    /// Bytes allocated. A piece is charged by its length, which is its capacity:
    /// it was copied out of its packet.
    pub(crate) fn memory(&self) -> usize {
        self.receive.buffered
            + memory::map(&self.receive.pieces)
            + memory::ring(&self.send.data)
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
        self.base + self.data.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(stream: &mut CryptoStream, max: usize) -> Option<(u64, Vec<u8>)> {
        let (offset, len) = stream.next_to_send()?;
        let mut out = vec![0; len.min(max)];
        stream.take(offset, &mut out);
        Some((offset, out))
    }

    #[test]
    fn lost_bytes_are_sent_again_before_new_ones() {
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

    #[test]
    fn pieces_in_any_order_are_read_once_in_order() {
        let mut stream = CryptoStream::default();
        for (offset, data) in [
            (4, &b"ef"[..]),
            (2, b"cde"),
            (0, b"ab"),
            (0, b"abc"),
            (6, b"g"),
        ] {
            stream.on_frame(offset, data).unwrap();
        }
        let mut read = Vec::new();
        while let Some(piece) = stream.read() {
            read.extend(piece);
        }
        assert_eq!(read, b"abcdefg");
        assert!(stream.receive.pieces.is_empty());
        stream.on_frame(0, b"abcdefg").unwrap();
        assert_eq!(stream.read(), None);
        assert_eq!(stream.receive.buffered, 0);
    }

    #[test]
    fn crypto_flood_is_bounded() {
        let mut stream = CryptoStream::default();
        let err = stream.on_frame(MAX_BUFFERED, b"x").unwrap_err();
        assert_eq!(err.code, Code::CRYPTO_BUFFER_EXCEEDED);
        let mut result = Ok(());
        for i in 0..1000 {
            result = stream.on_frame(2 * i + 1, b"x");
            if result.is_err() {
                break;
            }
        }
        assert_eq!(result.unwrap_err().code, Code::CRYPTO_BUFFER_EXCEEDED);
        assert!(stream.memory() <= 2 * MAX_BUFFERED as usize);
    }
}
