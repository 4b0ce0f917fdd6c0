//! Reads frames from a stream as their bytes arrive.

use bytes::{Buf, Bytes, BytesMut};
use clearway_quic::stream::ReadError;

use crate::frame::{FrameHeader, FrameKind};
use crate::varint_buffer::VarintBuffer;

/// Maximum bytes read from the transport beyond the payload that is asked for: a small message
/// takes one read, and no more than this escapes flow control.
const READ_AHEAD: usize = 4 << 10;

/// What the reader reads next.
#[derive(Debug)]
enum ReaderState {
    /// A frame header.
    Header,
    /// A payload that is returned in pieces, as it arrives.
    Streaming { left: u64 },
    /// A payload that is returned when it is complete.
    Buffering {
        kind: FrameKind,
        left: usize,
        bytes: BytesMut,
    },
    /// A payload that is skipped.
    Skipping { left: u64 },
}

/// What was read from the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FrameItem {
    /// A frame header. The payload is skipped unless the caller asks for it.
    Header(FrameHeader),
    /// Content, which [`FrameReader::content`] returns.
    Content,
    /// A complete payload.
    Payload(FrameKind, Bytes),
}

/// Why nothing more can be read, now or at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameReadError {
    /// More has not arrived.
    Blocked,
    /// The stream ended after a complete frame.
    End,
    /// The stream ended within a frame.
    Truncated,
    /// The peer reset the stream, with this code.
    Reset(u64),
    /// The transport does not know the stream.
    UnknownStream,
}

/// Reads frames. Payloads of unknown types are not buffered.
#[derive(Debug)]
pub(crate) struct FrameReader {
    /// Bytes that were read from the transport and not processed.
    ahead: Bytes,
    header: VarintBuffer<{ FrameHeader::MAX_LEN }>,
    state: ReaderState,
    skipped: u64,
    /// Total bytes read from the transport.
    bytes_read: u64,
    /// A frame header was read.
    has_begun: bool,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self {
            ahead: Bytes::new(),
            header: VarintBuffer::default(),
            state: ReaderState::Header,
            skipped: 0,
            bytes_read: 0,
            has_begun: false,
        }
    }
}

impl FrameReader {
    /// Creates a reader with bytes that were already read from the stream.
    pub(crate) fn with_buffered(ahead: Bytes) -> Self {
        Self {
            ahead,
            ..Self::default()
        }
    }

    /// Returns the next item. `read` returns at most the given number of bytes of the stream.
    pub(crate) fn next(
        &mut self,
        mut read: impl FnMut(usize) -> Result<Option<Bytes>, ReadError>,
    ) -> Result<FrameItem, FrameReadError> {
        loop {
            if let Some(item) = self.take() {
                return Ok(item);
            }
            self.fill(&mut read)?;
        }
    }

    /// Returns the next piece of content, which is never empty.
    pub(crate) fn content(
        &mut self,
        mut read: impl FnMut(usize) -> Result<Option<Bytes>, ReadError>,
    ) -> Result<Bytes, FrameReadError> {
        loop {
            let ReaderState::Streaming { left: left @ 1.. } = &mut self.state else {
                return Err(FrameReadError::Blocked);
            };
            if !self.ahead.is_empty() {
                let piece = self.ahead.split_to(min_len(*left, self.ahead.len()));
                *left = left.saturating_sub(piece.len() as u64);
                return Ok(piece);
            }
            self.fill(&mut read)?;
        }
    }

    /// Returns whether a piece of content was already read from the transport.
    pub(crate) fn has_buffered_content(&self) -> bool {
        self.is_streaming() && !self.ahead.is_empty()
    }

    /// Returns whether a frame header was read.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Takes what was read from the transport and not processed.
    pub(crate) fn take_buffered(&mut self) -> Bytes {
        core::mem::take(&mut self.ahead)
    }

    /// Returns whether content comes next.
    pub(crate) fn is_streaming(&self) -> bool {
        matches!(self.state, ReaderState::Streaming { left: 1.. })
    }

    /// Returns the total number of bytes read from the transport.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Returns the memory in use for a payload that is not complete, in bytes.
    pub(crate) fn buffered_payload(&self) -> usize {
        match &self.state {
            ReaderState::Buffering { bytes, .. } => bytes.capacity(),
            ReaderState::Header | ReaderState::Streaming { .. } | ReaderState::Skipping { .. } => 0,
        }
    }

    /// Returns the payload of the frame that begins here in pieces, as content.
    pub(crate) fn stream_payload(&mut self) {
        if let ReaderState::Skipping { left } = self.state {
            self.state = ReaderState::Streaming { left };
        }
    }

    /// Buffers the payload of the frame that begins here. Returns false if it is longer than
    /// `limit`; then it is skipped.
    pub(crate) fn buffer_payload(&mut self, kind: FrameKind, limit: u64) -> bool {
        let ReaderState::Skipping { left: len } = self.state else {
            return false;
        };
        let Ok(left) = usize::try_from(len) else {
            return false;
        };
        if len > limit {
            return false;
        }
        self.state = ReaderState::Buffering {
            kind,
            left,
            bytes: BytesMut::new(),
        };
        true
    }

    /// Returns how many bytes of skipped payloads were read since the last call.
    pub(crate) fn take_skipped(&mut self) -> u64 {
        core::mem::take(&mut self.skipped)
    }

    /// Drops an empty buffer. It refers to a block of the transport, and would keep all of it in
    /// memory.
    pub(crate) fn release(&mut self) {
        if self.ahead.is_empty() {
            self.ahead = Bytes::new();
        }
    }

    /// Returns whether the reader has no state: a new one would continue in the same way.
    pub(crate) fn is_idle(&self) -> bool {
        self.ahead.is_empty() && self.skipped == 0 && self.is_between_frames()
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.ahead.len().saturating_add(self.buffered_payload())
    }

    fn is_between_frames(&self) -> bool {
        let between = match self.state {
            ReaderState::Header
            | ReaderState::Skipping { left: 0 }
            | ReaderState::Streaming { left: 0 } => true,
            ReaderState::Skipping { .. }
            | ReaderState::Streaming { .. }
            | ReaderState::Buffering { .. } => false,
        };
        between && self.header.is_empty()
    }

    /// Returns the next item in what has already been read.
    fn take(&mut self) -> Option<FrameItem> {
        loop {
            match &mut self.state {
                ReaderState::Header => {
                    let header = self.take_header()?;
                    self.state = ReaderState::Skipping { left: header.len };
                    self.has_begun = true;
                    return Some(FrameItem::Header(header));
                }
                ReaderState::Streaming { left: 0 } | ReaderState::Skipping { left: 0 } => {
                    self.state = ReaderState::Header;
                }
                ReaderState::Streaming { .. } => return Some(FrameItem::Content),
                ReaderState::Skipping { left } => {
                    if self.ahead.is_empty() {
                        return None;
                    }
                    let now = min_len(*left, self.ahead.len());
                    self.ahead.advance(now);
                    *left = left.saturating_sub(now as u64);
                    self.skipped = self.skipped.saturating_add(now as u64);
                }
                ReaderState::Buffering { .. } => return self.take_payload(),
            }
        }
    }

    fn take_header(&mut self) -> Option<FrameHeader> {
        if self.header.is_empty()
            && let Some((header, size)) = FrameHeader::parse(&self.ahead)
        {
            self.ahead.advance(size);
            return Some(header);
        }
        while !self.ahead.is_empty() {
            self.header.push(self.ahead.get_u8());
            if let Some((header, _)) = FrameHeader::parse(self.header.bytes()) {
                self.header.clear();
                return Some(header);
            }
        }
        None
    }

    fn take_payload(&mut self) -> Option<FrameItem> {
        let ReaderState::Buffering { kind, left, bytes } = &mut self.state else {
            return None;
        };
        let piece = self.ahead.split_to((*left).min(self.ahead.len()));
        *left = left.saturating_sub(piece.len());
        if *left > 0 {
            bytes.extend_from_slice(&piece);
            return None;
        }
        let payload = if bytes.is_empty() {
            piece
        } else {
            bytes.extend_from_slice(&piece);
            bytes.split().freeze()
        };
        let kind = *kind;
        self.state = ReaderState::Header;
        Some(FrameItem::Payload(kind, payload))
    }

    /// Reads more from the transport. Everything read before has been processed.
    fn fill(
        &mut self,
        read: &mut impl FnMut(usize) -> Result<Option<Bytes>, ReadError>,
    ) -> Result<(), FrameReadError> {
        let wanted = match &self.state {
            ReaderState::Header => 0,
            ReaderState::Streaming { left } | ReaderState::Skipping { left } => {
                min_len(*left, usize::MAX)
            }
            ReaderState::Buffering { left, .. } => *left,
        };
        self.fill_with(wanted.max(READ_AHEAD), read)
    }

    fn fill_with(
        &mut self,
        max: usize,
        read: &mut impl FnMut(usize) -> Result<Option<Bytes>, ReadError>,
    ) -> Result<(), FrameReadError> {
        match read(max) {
            Ok(Some(bytes)) => {
                self.bytes_read = self.bytes_read.saturating_add(bytes.len() as u64);
                self.ahead = bytes;
                Ok(())
            }
            Ok(None) if self.is_between_frames() => Err(FrameReadError::End),
            Ok(None) => Err(FrameReadError::Truncated),
            Err(ReadError::Blocked) => Err(FrameReadError::Blocked),
            Err(ReadError::Reset(code)) => Err(FrameReadError::Reset(code)),
            Err(ReadError::Unknown) => Err(FrameReadError::UnknownStream),
        }
    }
}

fn min_len(left: u64, len: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads everything in pieces of `piece` bytes, ending with `last`.
    fn read_all(bytes: &[u8], piece: usize, last: ReadError) -> (Vec<FrameItem>, FrameReadError) {
        let mut rest = bytes;
        let mut reader = FrameReader::default();
        let mut items = Vec::new();
        loop {
            let mut read = |max: usize| {
                if rest.is_empty() {
                    return if last == ReadError::Unknown {
                        Ok(None)
                    } else {
                        Err(last)
                    };
                }
                let (now, later) = rest.split_at(piece.min(max).min(rest.len()));
                rest = later;
                Ok(Some(Bytes::copy_from_slice(now)))
            };
            match reader.next(&mut read) {
                Ok(FrameItem::Header(header)) => {
                    match header.kind {
                        FrameKind::Data => reader.stream_payload(),
                        FrameKind::Unknown(_) => {}
                        kind => drop(reader.buffer_payload(kind, 1 << 20)),
                    }
                    items.push(FrameItem::Header(header));
                }
                Ok(FrameItem::Content) => match reader.content(&mut read) {
                    Ok(data) => match items.last_mut() {
                        Some(FrameItem::Payload(FrameKind::Data, before)) => {
                            *before = [&before[..], &data[..]].concat().into();
                        }
                        _ => items.push(FrameItem::Payload(FrameKind::Data, data)),
                    },
                    Err(pause) => return (items, pause),
                },
                Ok(payload) => items.push(payload),
                Err(pause) => return (items, pause),
            }
        }
    }

    fn frames() -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, len) in [(1, 70), (0x21, 9000), (0, 5000), (0, 0), (1, 0)] {
            let kind = FrameKind::from_wire(kind);
            FrameHeader { kind, len }.encode(&mut out);
            out.extend((0..len).map(|i| i as u8));
        }
        out
    }

    #[test]
    fn frames_are_the_same_however_the_stream_is_split() {
        let (whole, end) = read_all(&frames(), usize::MAX, ReadError::Unknown);
        assert_eq!(end, FrameReadError::End);
        assert_eq!(whole.len(), 8);
        for piece in [1, 2, 3, 10, 100, 4096] {
            let (items, end) = read_all(&frames(), piece, ReadError::Unknown);
            assert_eq!(end, FrameReadError::End);
            assert_eq!(items, whole, "in pieces of {piece}");
        }
    }

    #[test]
    fn stream_end_within_a_frame_is_truncated() {
        let bytes = frames();
        let ends: Vec<usize> = {
            let mut ends = vec![0];
            let mut at = 0;
            while let Some((header, size)) = FrameHeader::parse(&bytes[at..]) {
                at += size + header.len as usize;
                ends.push(at);
            }
            ends
        };
        for cut in (0..bytes.len()).filter(|cut| cut % 97 == 0 || *cut < 80) {
            let (_, end) = read_all(&bytes[..cut], 1000, ReadError::Unknown);
            let expected = if ends.contains(&cut) {
                FrameReadError::End
            } else {
                FrameReadError::Truncated
            };
            assert_eq!(end, expected, "cut at {cut}");
        }
        let (_, end) = read_all(&bytes, 9, ReadError::Reset(7));
        assert_eq!(end, FrameReadError::Reset(7));
    }

    #[test]
    fn endless_unknown_frame_is_not_buffered() {
        let mut out = Vec::new();
        let kind = FrameKind::Unknown(0x21);
        FrameHeader { kind, len: 1 << 61 }.encode(&mut out);
        let mut first = Some(Bytes::from(out));
        let mut left = 1000;
        let mut reader = FrameReader::default();
        let mut read = |max: usize| {
            left -= 1;
            let zeros = || Bytes::from(vec![0; max.min(65_536)]);
            if left == 0 {
                Err(ReadError::Blocked)
            } else {
                Ok(Some(first.take().unwrap_or_else(zeros)))
            }
        };
        assert!(matches!(reader.next(&mut read), Ok(FrameItem::Header(_))));
        assert_eq!(reader.next(&mut read), Err(FrameReadError::Blocked));
        assert_eq!(reader.memory(), 0);
        assert_eq!(reader.take_skipped(), 998 * 65_536);
    }

    #[test]
    fn payload_above_the_limit_is_skipped() {
        let mut reader = FrameReader::with_buffered(Bytes::from(frames()));
        assert!(matches!(reader.next(|_| Ok(None)), Ok(FrameItem::Header(h)) if h.len == 70));
        assert!(!reader.buffer_payload(FrameKind::Headers, 69));
        assert!(matches!(reader.next(|_| Ok(None)), Ok(FrameItem::Header(h)) if h.len == 9000));
    }

    proptest! {
        #[test]
        fn any_bytes_end_as_complete_or_truncated(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1..50_usize) {
            let (items, end) = read_all(&bytes, piece, ReadError::Unknown);
            prop_assert!(matches!(end, FrameReadError::End | FrameReadError::Truncated));
            prop_assert!(items.len() <= bytes.len() + 1);
        }
    }
}
