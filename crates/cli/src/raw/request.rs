//! The request of the raw protocol.

/// The application protocol's name (ALPN).
pub(crate) const ALPN: &str = "clearway-raw";

/// Length of a request, before the upload.
pub(crate) const LEN: usize = 8;

/// A request: the number of bytes that the client wants, big-endian. Everything that follows to the
/// end of the stream is an upload, which the server reads and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Bytes of content requested.
    pub(crate) bytes: u64,
}

impl Request {
    /// Encodes the request.
    pub(crate) const fn encode(self) -> [u8; LEN] {
        self.bytes.to_be_bytes()
    }

    /// Decodes a request.
    pub(crate) const fn decode(bytes: [u8; LEN]) -> Self {
        Self {
            bytes: u64::from_be_bytes(bytes),
        }
    }
}

/// Collects a request's bytes from pieces of any size and counts the upload that follows.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    header: [u8; LEN],
    filled: usize,
    uploaded: u64,
}

impl Reader {
    /// Adds the next piece of the stream.
    pub(crate) fn push(&mut self, data: &[u8]) {
        let head = data.len().min(LEN - self.filled);
        self.header[self.filled..self.filled + head].copy_from_slice(&data[..head]);
        self.filled += head;
        self.uploaded += (data.len() - head) as u64;
    }

    /// The request and the length of the upload; `None` if the stream was too short.
    pub(crate) fn finish(&self) -> Option<(Request, u64)> {
        (self.filled == LEN).then(|| (Request::decode(self.header), self.uploaded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_split_anywhere_is_parsed() {
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
    fn truncated_request_is_none() {
        let mut reader = Reader::default();
        reader.push(&[1; LEN - 1]);
        assert_eq!(reader.finish(), None);
    }
}
