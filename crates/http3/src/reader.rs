//! Frames out of the bytes of a stream, as they come.

use bytes::{Buf, Bytes, BytesMut};
use clearway_quic::stream::ReadError;

use crate::frame::{FrameHeader, FrameKind};
use crate::partial::Partial;

/// Most bytes read from the transport beyond the payload asked for: a small message
/// comes with one read, and no more than this escapes flow control.
const READ_AHEAD: usize = 4 << 10;

/// Where the reader stands.
#[derive(Debug)]
enum At {
    /// Before a frame, or in its header.
    Header,
    /// In a payload handed out as it comes.
    Pass { left: u64 },
    /// In a payload handed out when it is whole.
    Gather {
        kind: FrameKind,
        left: usize,
        bytes: BytesMut,
    },
    /// In a payload nobody wants.
    Skip { left: u64 },
}

/// What was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A frame begins. Unless the caller says otherwise, its payload is skipped.
    Header(FrameHeader),
    /// In a payload that is passed on: [`FrameReader::content`] has it.
    Content,
    /// A payload that was gathered.
    Payload(FrameKind, Bytes),
}

/// Why nothing was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The rest has not arrived.
    Blocked,
    /// The stream ended after a whole frame.
    End,
    /// The stream ended within a frame.
    Truncated,
    /// The peer reset the stream, with its code.
    Reset(u64),
    /// The transport knows no such stream.
    Gone,
}

/// Reads frames. Of what it does not understand it keeps nothing.
#[derive(Debug)]
pub(crate) struct FrameReader {
    /// Read, not looked at.
    ahead: Bytes,
    header: Partial<{ FrameHeader::MAX_LEN }>,
    at: At,
    skipped: u64,
    /// Bytes taken from the transport.
    taken: u64,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self {
            ahead: Bytes::new(),
            header: Partial::default(),
            at: At::Header,
            skipped: 0,
            taken: 0,
        }
    }
}

impl FrameReader {
    /// Starts with bytes that came with what stood before the frames.
    pub(crate) fn starting_with(ahead: Bytes) -> Self {
        Self {
            ahead,
            ..Self::default()
        }
    }

    /// What comes next. `read` hands out at most so many bytes of the stream.
    pub(crate) fn next(
        &mut self,
        mut read: impl FnMut(usize) -> Result<Option<Bytes>, ReadError>,
    ) -> Result<Item, Pause> {
        loop {
            if let Some(item) = self.take() {
                return Ok(item);
            }
            self.fill(&mut read)?;
        }
    }

    /// The next piece of a payload that is passed on, never empty.
    pub(crate) fn content(
        &mut self,
        mut read: impl FnMut(usize) -> Result<Option<Bytes>, ReadError>,
    ) -> Result<Bytes, Pause> {
        loop {
            let At::Pass { left: left @ 1.. } = &mut self.at else {
                return Err(Pause::Blocked);
            };
            if !self.ahead.is_empty() {
                let piece = self.ahead.split_to(at_most(*left, self.ahead.len()));
                *left = left.saturating_sub(piece.len() as u64);
                return Ok(piece);
            }
            self.fill(&mut read)?;
        }
    }

    /// Whether a piece of content is here, read from the transport.
    pub(crate) fn holds_content(&self) -> bool {
        self.is_passing() && !self.ahead.is_empty()
    }

    /// Whether the next thing is content.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self.at, At::Pass { left: 1.. })
    }

    /// Bytes taken from the transport so far.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes held of a payload that is being gathered.
    pub(crate) fn gathered(&self) -> usize {
        match &self.at {
            At::Gather { bytes, .. } => bytes.capacity(),
            At::Header | At::Pass { .. } | At::Skip { .. } => 0,
        }
    }

    /// Hands out the payload of the frame that begins here as it comes.
    pub(crate) fn pass(&mut self) {
        if let At::Skip { left } = self.at {
            self.at = At::Pass { left };
        }
    }

    /// Gathers the payload of the frame that begins here; false if it is larger
    /// than `limit` and will be skipped.
    pub(crate) fn gather(&mut self, kind: FrameKind, limit: u64) -> bool {
        let At::Skip { left: len } = self.at else {
            return false;
        };
        let Ok(left) = usize::try_from(len) else {
            return false;
        };
        if len > limit {
            return false;
        }
        self.at = At::Gather {
            kind,
            left,
            bytes: BytesMut::new(),
        };
        true
    }

    /// Bytes of unknown frames passed over since the last call.
    pub(crate) fn take_skipped(&mut self) -> u64 {
        core::mem::take(&mut self.skipped)
    }

    /// Gives back what it read from: the last bytes of a block of the transport
    /// keep all of it, even when they were taken.
    pub(crate) fn release(&mut self) {
        if self.ahead.is_empty() {
            self.ahead = Bytes::new();
        }
    }

    /// Whether it holds nothing: a new one would go on as well.
    pub(crate) fn is_idle(&self) -> bool {
        self.ahead.is_empty() && self.skipped == 0 && self.is_between()
    }

    /// Bytes held.
    pub(crate) fn memory(&self) -> usize {
        self.ahead.len().saturating_add(self.gathered())
    }

    fn is_between(&self) -> bool {
        let between = match self.at {
            At::Header | At::Skip { left: 0 } | At::Pass { left: 0 } => true,
            At::Skip { .. } | At::Pass { .. } | At::Gather { .. } => false,
        };
        between && self.header.is_empty()
    }

    /// The next item in what was read ahead.
    fn take(&mut self) -> Option<Item> {
        loop {
            match &mut self.at {
                At::Header => {
                    let header = self.take_header()?;
                    self.at = At::Skip { left: header.len };
                    return Some(Item::Header(header));
                }
                At::Pass { left: 0 } | At::Skip { left: 0 } => self.at = At::Header,
                At::Pass { .. } => return Some(Item::Content),
                At::Skip { left } => {
                    if self.ahead.is_empty() {
                        return None;
                    }
                    let now = at_most(*left, self.ahead.len());
                    self.ahead.advance(now);
                    *left = left.saturating_sub(now as u64);
                    self.skipped = self.skipped.saturating_add(now as u64);
                }
                At::Gather { .. } => return self.take_payload(),
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

    fn take_payload(&mut self) -> Option<Item> {
        let At::Gather { kind, left, bytes } = &mut self.at else {
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
        self.at = At::Header;
        Some(Item::Payload(kind, payload))
    }

    /// Reads on; nothing is left of what was read before.
    fn fill(
        &mut self,
        read: &mut impl FnMut(usize) -> Result<Option<Bytes>, ReadError>,
    ) -> Result<(), Pause> {
        let wanted = match &self.at {
            At::Header => 0,
            At::Pass { left } | At::Skip { left } => at_most(*left, usize::MAX),
            At::Gather { left, .. } => *left,
        };
        self.fill_with(wanted.max(READ_AHEAD), read)
    }

    fn fill_with(
        &mut self,
        max: usize,
        read: &mut impl FnMut(usize) -> Result<Option<Bytes>, ReadError>,
    ) -> Result<(), Pause> {
        match read(max) {
            Ok(Some(bytes)) => {
                self.taken = self.taken.saturating_add(bytes.len() as u64);
                self.ahead = bytes;
                Ok(())
            }
            Ok(None) if self.is_between() => Err(Pause::End),
            Ok(None) => Err(Pause::Truncated),
            Err(ReadError::Blocked) => Err(Pause::Blocked),
            Err(ReadError::Reset(code)) => Err(Pause::Reset(code)),
            Err(ReadError::Unknown) => Err(Pause::Gone),
        }
    }
}

fn at_most(left: u64, len: usize) -> usize {
    usize::try_from(left).unwrap_or(usize::MAX).min(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads everything in pieces of `piece` bytes, ending with `last`.
    fn read_all(bytes: &[u8], piece: usize, last: ReadError) -> (Vec<Item>, Pause) {
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
                Ok(Item::Header(header)) => {
                    match header.kind {
                        FrameKind::Data => reader.pass(),
                        FrameKind::Unknown(_) => {}
                        kind => drop(reader.gather(kind, 1 << 20)),
                    }
                    items.push(Item::Header(header));
                }
                Ok(Item::Content) => match reader.content(&mut read) {
                    Ok(data) => match items.last_mut() {
                        Some(Item::Payload(FrameKind::Data, before)) => {
                            *before = [&before[..], &data[..]].concat().into();
                        }
                        _ => items.push(Item::Payload(FrameKind::Data, data)),
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
    fn however_the_stream_is_cut_the_frames_are_the_same() {
        let (whole, end) = read_all(&frames(), usize::MAX, ReadError::Unknown);
        assert_eq!(end, Pause::End);
        assert_eq!(whole.len(), 8);
        for piece in [1, 2, 3, 10, 100, 4096] {
            let (items, end) = read_all(&frames(), piece, ReadError::Unknown);
            assert_eq!(end, Pause::End);
            assert_eq!(items, whole, "in pieces of {piece}");
        }
    }

    #[test]
    fn an_end_within_a_frame_is_told_from_one_after_it() {
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
                Pause::End
            } else {
                Pause::Truncated
            };
            assert_eq!(end, expected, "cut at {cut}");
        }
        let (_, end) = read_all(&bytes, 9, ReadError::Reset(7));
        assert_eq!(end, Pause::Reset(7));
    }

    #[test]
    fn an_endless_unknown_frame_is_not_kept() {
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
        assert!(matches!(reader.next(&mut read), Ok(Item::Header(_))));
        assert_eq!(reader.next(&mut read), Err(Pause::Blocked));
        assert_eq!(reader.memory(), 0);
        assert_eq!(reader.take_skipped(), 998 * 65_536);
    }

    #[test]
    fn what_is_too_large_to_gather_is_skipped() {
        let mut reader = FrameReader::starting_with(Bytes::from(frames()));
        assert!(matches!(reader.next(|_| Ok(None)), Ok(Item::Header(h)) if h.len == 70));
        assert!(!reader.gather(FrameKind::Headers, 69));
        assert!(matches!(reader.next(|_| Ok(None)), Ok(Item::Header(h)) if h.len == 9000));
    }

    proptest! {
        #[test]
        fn any_bytes_end_in_a_pause(bytes in proptest::collection::vec(any::<u8>(), 0..200), piece in 1..50_usize) {
            let (items, end) = read_all(&bytes, piece, ReadError::Unknown);
            prop_assert!(matches!(end, Pause::End | Pause::Truncated));
            prop_assert!(items.len() <= bytes.len() + 1);
        }
    }
}
