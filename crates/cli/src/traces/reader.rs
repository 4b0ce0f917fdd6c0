//! Traces of any format, recognised by how they begin.

use std::error::Error;
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use clearway_trace::capture::{self, KeyLog};
use clearway_trace::event::Event;
use clearway_trace::qlog;

use super::open::decode;
use crate::failure::{Failure, Kind};

/// Maximum size of a file of TLS secrets, in bytes.
const MAX_SECRETS: u64 = 64 << 20;

/// Size in bytes from which on a file is decoded on several threads; smaller ones are read before
/// those would help.
const PARALLEL: u64 = 1 << 20;

/// The option that names TLS secrets.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SecretsOption {
    /// TLS secrets for packet captures, in the format of SSLKEYLOGFILE; those that a pcapng file
    /// contains need no option.
    #[arg(long, value_name = "FILE")]
    secrets: Option<PathBuf>,
}

impl SecretsOption {
    /// Reads the secrets; none without the option.
    ///
    /// # Errors
    /// If the file cannot be read or has no secrets.
    pub(crate) fn load(&self) -> Result<KeyLog, Failure> {
        let Some(path) = &self.secrets else {
            return Ok(KeyLog::default());
        };
        let wrong = |error: &dyn Error| {
            let what = format!("--secrets: cannot read {}", path.display());
            Failure::caused(Kind::Arguments, what, error)
        };
        let mut text = Vec::new();
        let file = File::open(path).map_err(|error| wrong(&error))?;
        let read = file.take(MAX_SECRETS).read_to_end(&mut text);
        read.map_err(|error| wrong(&error))?;
        KeyLog::parse(&text).map_err(|error| wrong(&error))
    }
}

/// Any input.
type Input = Box<dyn Read>;

/// Reads a trace of any format.
pub(crate) enum TraceReader {
    Qlog(Box<qlog::Reader<Input>>),
    Capture(Box<capture::Reader<Input>>),
}

impl TraceReader {
    /// Opens a file, decompressed.
    ///
    /// # Errors
    /// If it cannot be read, or is of no known format.
    pub(crate) fn open(path: &Path, secrets: &KeyLog) -> Result<Self, Box<dyn Error>> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let this = Self::decode(BufReader::new(file), secrets)?;
        Ok(match this {
            Self::Qlog(reader) if size >= PARALLEL => {
                let threads = thread::available_parallelism().unwrap_or(NonZero::<usize>::MIN);
                Self::Qlog(Box::new(reader.in_parallel(threads)))
            }
            other => other,
        })
    }

    /// Reads a trace from `input`, decompressed.
    ///
    /// # Errors
    /// As [`TraceReader::open`].
    pub(crate) fn decode(
        input: impl Read + 'static,
        secrets: &KeyLog,
    ) -> Result<Self, Box<dyn Error>> {
        let mut input = decode(input)?;
        let mut begin = Vec::with_capacity(capture::MAGIC_LEN);
        let magic = input.by_ref().take(capture::MAGIC_LEN as u64);
        // Reading may fail later, for the reader to say where.
        let failed = { magic }.read_to_end(&mut begin).err();
        let is_capture = capture::is_capture(&begin);
        let whole: Input = match failed {
            None => Box::new(Cursor::new(begin).chain(input)),
            Some(error) => return Err(error.into()),
        };
        Ok(if is_capture {
            let reader = capture::Reader::new(whole, secrets.clone())?;
            Self::Capture(Box::new(reader))
        } else {
            Self::Qlog(Box::new(qlog::Reader::new(whole)?))
        })
    }

    /// The format, as far as the file says it.
    pub(crate) fn format(&self) -> Option<String> {
        match self {
            Self::Qlog(reader) => reader.header().version.clone(),
            Self::Capture(reader) => Some(reader.format().to_owned()),
        }
    }

    /// Bytes read so far, after decompression.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            Self::Qlog(reader) => reader.offset(),
            Self::Capture(reader) => reader.offset(),
        }
    }

    /// Records that could not be read so far.
    pub(crate) fn unreadable(&self) -> u64 {
        match self {
            Self::Qlog(reader) => reader.problems().unreadable(),
            Self::Capture(reader) => reader.problems().bad_records,
        }
    }
}

impl Iterator for TraceReader {
    type Item = Result<Event, Box<dyn Error>>;

    /// The next event of any of the file's traces.
    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Qlog(reader) => Some(reader.next()?.map_err(Into::into)),
            Self::Capture(reader) => Some(
                reader
                    .next()?
                    .map(|captured| captured.event)
                    .map_err(Into::into),
            ),
        }
    }
}
