//! The streams of an application on our transport.

use bytes::Bytes;
use clearway_quic::Instant;
use clearway_quic::connection::Connection;
use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};

use super::http3::Http3;
use super::{Protocol, Read};

/// The protocol of one connection, with its state.
#[derive(Debug)]
pub(super) enum Streams {
    /// See [`Protocol::Raw`].
    Raw,
    /// See [`Protocol::Http3`].
    Http3(Box<Http3>),
}

impl Streams {
    pub(super) fn new(protocol: Protocol, quic: &Connection, seed: u64) -> Self {
        match protocol {
            Protocol::Raw => Self::Raw,
            Protocol::Http3 => Self::Http3(Box::new(Http3::new(quic.role(), seed))),
        }
    }

    /// Processes the events of the transport.
    pub(super) fn hear(&mut self, quic: &mut Connection) {
        match self {
            // Applications of the lab check their streams whenever something happened; unread
            // events would accumulate.
            Self::Raw => while quic.poll_event().is_some() {},
            Self::Http3(http) => http.hear(quic),
        }
    }

    /// Has to be called before the transport transmits.
    pub(super) fn flush(&mut self, now: Instant, quic: &mut Connection) {
        match self {
            Self::Raw => {}
            Self::Http3(http) => http.flush(now, quic),
        }
    }

    pub(super) fn open(&mut self, quic: &mut Connection) -> Option<StreamId> {
        match self {
            Self::Raw => quic.open(Directionality::Bidirectional),
            Self::Http3(http) => http.open(quic),
        }
    }

    pub(super) fn accept(&mut self, quic: &mut Connection) -> Option<StreamId> {
        match self {
            Self::Raw => quic.accept(Directionality::Bidirectional),
            Self::Http3(http) => http.accept(),
        }
    }

    pub(super) fn write(
        &mut self,
        quic: &mut Connection,
        id: StreamId,
        data: &mut Bytes,
    ) -> Result<(), String> {
        match self {
            Self::Raw => write(quic, id, data),
            Self::Http3(http) => http.write(quic, id, data),
        }
    }

    pub(super) fn finish(&mut self, quic: &mut Connection, id: StreamId) -> Result<(), String> {
        match self {
            Self::Raw => quic.finish(id).map_err(|error| error.to_string()),
            Self::Http3(http) => http.finish(quic, id),
        }
    }

    pub(super) fn read(&mut self, quic: &mut Connection, id: StreamId) -> Result<Read, String> {
        match self {
            Self::Raw => read(quic, id),
            Self::Http3(http) => http.read(quic, id),
        }
    }
}

fn write(quic: &mut Connection, id: StreamId, data: &mut Bytes) -> Result<(), String> {
    while !data.is_empty() {
        match quic.write_chunk(id, data) {
            Ok(_) => {}
            Err(WriteError::Blocked) => break,
            Err(error @ (WriteError::Stopped(_) | WriteError::Unknown | WriteError::Finished)) => {
                return Err(error.to_string());
            }
        }
    }
    Ok(())
}

fn read(quic: &mut Connection, id: StreamId) -> Result<Read, String> {
    match quic.read_chunk(id, usize::MAX) {
        Ok(Some(data)) => Ok(Read::Data(data)),
        Ok(None) => Ok(Read::End),
        Err(ReadError::Blocked) => Ok(Read::Blocked),
        Err(error @ (ReadError::Reset(_) | ReadError::Unknown)) => Err(error.to_string()),
    }
}
