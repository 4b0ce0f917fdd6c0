//! Files that may be compressed, recognised by how they begin.

use std::io::{self, BufWriter, Cursor, Read, Write};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;

/// Bytes that tell formats apart.
const MAGIC: usize = 4;

/// How a file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not at all.
    Plain,
    /// gzip (RFC 1952).
    Gzip,
    /// Zstandard (RFC 8878).
    Zstd,
}

impl Compression {
    /// What the ending of a file's name says.
    pub(crate) fn of_name(path: &Path) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstd,
            Some(_) | None => Self::Plain,
        }
    }

    /// Compresses what is written to the result into `output`.
    ///
    /// # Errors
    /// If the compressor cannot be set up.
    pub(crate) fn encode<W: Write + Send + 'static>(
        self,
        output: W,
    ) -> io::Result<CompressedOutput> {
        Ok(match self {
            Self::Plain => CompressedOutput::Plain(BufWriter::new(Box::new(output))),
            Self::Gzip => {
                let level = flate2::Compression::default();
                CompressedOutput::Gzip(GzEncoder::new(Box::new(output), level))
            }
            Self::Zstd => {
                CompressedOutput::Zstd(zstd::Encoder::new(Box::new(output) as Output, 0)?)
            }
        })
    }
}

/// Any output.
type Output = Box<dyn Write + Send>;

/// An output that compresses. It has to be finished.
pub(crate) enum CompressedOutput {
    Plain(BufWriter<Output>),
    Gzip(GzEncoder<Output>),
    Zstd(zstd::Encoder<'static, Output>),
}

impl CompressedOutput {
    /// Writes the rest.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut output) => output.flush(),
            Self::Gzip(output) => output.finish()?.flush(),
            Self::Zstd(output) => output.finish()?.flush(),
        }
    }
}

impl Write for CompressedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(output) => output.write(bytes),
            Self::Gzip(output) => output.write(bytes),
            Self::Zstd(output) => output.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(output) => output.flush(),
            Self::Gzip(output) => output.flush(),
            Self::Zstd(output) => output.flush(),
        }
    }
}

/// Decompresses a trace.
///
/// # Errors
/// If reading fails.
pub(super) fn decode(mut input: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut begin = Vec::with_capacity(MAGIC);
    input.by_ref().take(MAGIC as u64).read_to_end(&mut begin)?;
    let format = begin.clone();
    let whole = Cursor::new(begin).chain(input);
    Ok(match format.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(whole)?),
        _ => Box::new(whole),
    })
}
