//! Contents that both sides can make and check at any offset.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use clearway::http::BoxError;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};

/// Bytes a body hands over at once.
const PIECE: usize = 16 * 1024;

/// Eight bytes at `index` times eight of content number `seed` (the finalizer of
/// splitmix64).
fn word(seed: u64, index: u64) -> [u8; 8] {
    let mut x = seed ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31).to_le_bytes()
}

/// `len` bytes of content `seed`, from `offset` on.
pub(crate) fn piece(seed: u64, offset: u64, len: usize) -> Bytes {
    let skipped = (offset % 8) as usize;
    let mut bytes = Vec::with_capacity(len + 16);
    let mut index = offset / 8;
    while bytes.len() < skipped + len {
        bytes.extend_from_slice(&word(seed, index));
        index += 1;
    }
    bytes.truncate(skipped + len);
    Bytes::from(bytes).slice(skipped..)
}

/// Compares what arrives with what was sent.
#[derive(Debug)]
pub(crate) struct Check {
    seed: u64,
    pub(crate) at: u64,
}

impl Check {
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed, at: 0 }
    }

    /// The next bytes.
    ///
    /// # Errors
    /// Where they begin, if they are not those of the content.
    pub(crate) fn take(&mut self, data: &[u8]) -> Result<(), String> {
        if piece(self.seed, self.at, data.len()) != data {
            return Err(format!("wrong bytes after {}", self.at));
        }
        self.at += data.len() as u64;
        Ok(())
    }
}

/// A body of known content.
#[derive(Debug)]
pub(crate) struct Content<G> {
    seed: u64,
    at: u64,
    len: u64,
    /// Fails here rather than ending at `len`.
    cut: Option<u64>,
    /// Says in a trailer how long it was.
    trailer: bool,
    /// Held as long as the body is.
    _guard: G,
}

impl<G> Content<G> {
    pub(crate) fn new(seed: u64, len: u64, guard: G) -> Self {
        Self {
            seed,
            at: 0,
            len,
            cut: None,
            trailer: false,
            _guard: guard,
        }
    }

    /// Fails after `bytes`.
    pub(crate) fn cut_at(mut self, bytes: u64) -> Self {
        self.cut = Some(bytes);
        self
    }

    pub(crate) fn with_trailer(mut self) -> Self {
        self.trailer = true;
        self
    }
}

impl<G: Unpin> Body for Content<G> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let end = self.cut.unwrap_or(self.len);
        if self.at < end {
            let len = (end - self.at).min(PIECE as u64) as usize;
            let data = piece(self.seed, self.at, len);
            self.at += len as u64;
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        if self.cut.is_some() {
            return Poll::Ready(Some(Err("cut off on purpose".into())));
        }
        if std::mem::take(&mut self.trailer) {
            let mut trailers = HeaderMap::new();
            trailers.insert("x-length", self.at.into());
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        self.at >= self.len && self.cut.is_none() && !self.trailer
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len - self.at)
    }
}
