//! Reads captures of all formats: the events of each end that they show.

use core::fmt;
use std::io::{Cursor, Read};
use std::net::SocketAddr;

use super::file::FileError;
use super::key_log::KeyLog;
use super::netlog::NetlogReader;
use super::packets::PacketReader;
use super::{MAGIC_LEN, is_netlog};
use crate::event::{Event, Role};

/// Maximum number of connections of one file that are examined; further ones are counted.
pub const MAX_CONNECTIONS: usize = 1_000;

/// An event of one end of a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct CapturedEvent {
    /// The number of the trace: an index into [`Reader::traces`].
    pub trace: usize,
    /// The event; times count from the connection's first packet.
    pub event: Event,
}

/// One end of a connection in a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapturedTrace {
    /// The number of the connection, from 0, in the order in which they begin.
    pub connection: usize,
    /// The end whose view this is.
    pub role: Role,
    /// The client's address, if recorded.
    pub client: Option<SocketAddr>,
    /// The server's address, if recorded.
    pub server: Option<SocketAddr>,
    /// The Destination Connection ID of the client's first Initial, in hex; empty if not recorded.
    pub original_dcid: String,
}

/// What of a capture could not be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Problems {
    /// QUIC packets that were read.
    pub opened: u64,
    /// QUIC packets that could not be opened.
    pub unopened: u64,
    /// Packets captured twice.
    pub duplicates: u64,
    /// Connections without TLS secrets.
    pub without_secrets: u64,
    /// Connections beyond [`MAX_CONNECTIONS`].
    pub ignored_connections: u64,
    /// UDP datagrams of connections that began before the capture, or that are not QUIC.
    pub other_datagrams: u64,
    /// Frames of other protocols.
    pub other_frames: u64,
    /// Frames of which the capture has only the beginning.
    pub cut_frames: u64,
    /// Records of a netlog that are not valid.
    pub bad_records: u64,
    /// Where the first of those begins.
    pub first_bad_record: Option<u64>,
}

/// Reads a packet capture (pcapng or pcap) or a netlog. Iterate over it for the events of each
/// end of each connection: both ends of those in a packet capture, the client of those in a
/// netlog. Events of one end are in order of time, except for packets that were captured before
/// their keys.
///
/// Memory is bounded by [`MAX_CONNECTIONS`], whatever the file.
pub struct Reader<R: Read> {
    inner: Inner<R>,
}

/// The file, and the bytes of it that were read to recognise it.
type Whole<R> = std::io::Chain<Cursor<Vec<u8>>, R>;

enum Inner<R: Read> {
    Packets(Box<PacketReader<Whole<R>>>),
    Netlog(Box<NetlogReader<Whole<R>>>),
}

impl<R: Read> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("format", &self.format())
            .field("offset", &self.offset())
            .finish_non_exhaustive()
    }
}

impl<R: Read> Reader<R> {
    /// Opens a capture. Secrets within it are used too, from where they stand.
    ///
    /// # Errors
    /// If reading fails, or the file is not a capture.
    pub fn new(mut input: R, secrets: KeyLog) -> Result<Self, FileError> {
        let mut begin = Vec::with_capacity(MAGIC_LEN);
        let limit = u64::try_from(MAGIC_LEN).unwrap_or(u64::MAX);
        input.by_ref().take(limit).read_to_end(&mut begin)?;
        let netlog = is_netlog(&begin);
        let whole = Cursor::new(begin).chain(input);
        let inner = if netlog {
            Inner::Netlog(Box::new(NetlogReader::new(whole)?))
        } else {
            Inner::Packets(Box::new(PacketReader::new(whole, secrets)?))
        };
        Ok(Self { inner })
    }

    /// The format, in a few words.
    #[must_use]
    pub const fn format(&self) -> &'static str {
        match self.inner {
            Inner::Packets(_) => "packet capture",
            Inner::Netlog(_) => "netlog",
        }
    }

    /// The traces that have begun so far: two for each connection of a packet capture, the
    /// client's first, and one of a netlog.
    #[must_use]
    pub fn traces(&self) -> &[CapturedTrace] {
        match &self.inner {
            Inner::Packets(packets) => packets.traces(),
            Inner::Netlog(netlog) => netlog.traces(),
        }
    }

    /// What could not be used so far.
    #[must_use]
    pub fn problems(&self) -> Problems {
        match &self.inner {
            Inner::Packets(packets) => packets.problems(),
            Inner::Netlog(netlog) => netlog.problems(),
        }
    }

    /// Bytes read so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        match &self.inner {
            Inner::Packets(packets) => packets.offset(),
            Inner::Netlog(netlog) => netlog.offset(),
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<CapturedEvent, FileError>;

    /// The next event. After an error follow the events that were still held back.
    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.inner {
            Inner::Packets(packets) => packets.next(),
            Inner::Netlog(netlog) => netlog.next(),
        }
    }
}
