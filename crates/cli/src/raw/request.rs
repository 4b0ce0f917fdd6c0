//! What a client of the raw protocol says first.

/// The application protocol's name (ALPN).
pub(crate) const ALPN: &str = "clearway-raw";

/// Bytes of a request before whatever the client uploads.
pub(crate) const LEN: usize = 8;

/// A request: how many bytes the client wants, big-endian. Whatever follows up
/// to the end of the stream is an upload, which the server reads and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes of content wanted.
    pub(crate) bytes: u64,
}

impl Request {
    /// As it goes over the wire.
    pub(crate) const fn encode(self) -> [u8; LEN] {
        self.bytes.to_be_bytes()
    }

    /// From the wire.
    pub(crate) const fn decode(bytes: [u8; LEN]) -> Self {
        Self {
            bytes: u64::from_be_bytes(bytes),
        }
    }
}

/// Collects a request's bytes from pieces of any size and counts the upload
/// behind them.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    header: [u8; LEN],
    filled: usize,
    uploaded: u64,
}

impl Reader {
    /// Takes the next piece of the stream.
    pub(crate) fn push(&mut self, data: &[u8]) {
        let head = data.len().min(LEN - self.filled);
        self.header[self.filled..self.filled + head].copy_from_slice(&data[..head]);
        self.filled += head;
        self.uploaded += (data.len() - head) as u64;
    }

    /// The request and the upload's bytes; `None` if the stream was too short.
    pub(crate) fn finish(&self) -> Option<(Request, u64)> {
        (self.filled == LEN).then(|| (Request::decode(self.header), self.uploaded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_survives_any_split() {
        let mut stream = Request { bytes: 0x0102_0304 }.encode().to_vec();
        stream.extend([9; 5]);
        for first in 0..stream.len() {
            let mut reader = Reader::default();
            reader.push(&stream[..first]);
            reader.push(&stream[first..]);
            assert_eq!(reader.finish(), Some((Request { bytes: 0x0102_0304 }, 5)));
        }
    }

    #[test]
    fn a_short_request_is_none() {
        let mut reader = Reader::default();
        reader.push(&[1; LEN - 1]);
        assert_eq!(reader.finish(), None);
    }
}
