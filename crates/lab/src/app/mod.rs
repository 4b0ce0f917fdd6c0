//! Applications of the lab, which run above the transport.

mod client;
mod job;
mod pattern;
mod script;
mod server;

use bytes::Bytes;
use clearway_links::Time;

use crate::stack::{ConnId, ConnectionState, Read, SenderStats, Stack, Stream};

pub use client::{Client, JobRecord, Log, Record};
pub use job::{Job, Pace, Start, UNBOUNDED, Workload};
pub use script::{Script, ScriptConn};
pub use server::Server;

/// When an application is to be called again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// When something arrives or is sent.
    Wait,
    /// Also then, and at this time at the latest.
    At(Time),
    /// Never: it is done.
    Done,
}

/// One end of one connection, above the transport.
///
/// It is called whenever something happened on its host. An async function becomes one through
/// [`Script`]; a closure over `(&mut Conn<'_>, Time)` is one as it is.
pub trait Application {
    /// Does what can be done now.
    fn poll(&mut self, conn: &mut Conn<'_>, now: Time) -> Next;
}

impl<F: FnMut(&mut Conn<'_>, Time) -> Next> Application for F {
    fn poll(&mut self, conn: &mut Conn<'_>, now: Time) -> Next {
        self(conn, now)
    }
}

/// A connection as an application sees it.
pub struct Conn<'a> {
    stack: &'a mut dyn Stack,
    id: ConnId,
    now: Time,
}

impl<'a> Conn<'a> {
    pub(crate) fn new(stack: &'a mut dyn Stack, id: ConnId, now: Time) -> Self {
        Self { stack, id, now }
    }

    /// The state of the connection.
    #[must_use]
    pub fn life(&self) -> ConnectionState {
        self.stack.life(self.id)
    }

    /// Whether streams can be used.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.life() == ConnectionState::Connected
    }

    /// Opens a bidirectional stream; `None` while the peer allows no more or the handshake is in
    /// progress.
    pub fn open(&mut self) -> Option<Stream> {
        self.stack.open(self.id)
    }

    /// The next stream the peer opened.
    pub fn accept(&mut self) -> Option<Stream> {
        self.stack.accept_stream(self.id)
    }

    /// Writes as much of `data` as there is room for and advances it.
    ///
    /// # Errors
    /// If the stream cannot be written to.
    pub fn write(&mut self, stream: Stream, data: &mut Bytes) -> Result<(), String> {
        self.stack.write(self.id, stream, data)
    }

    /// Ends the stream after the data written so far.
    ///
    /// # Errors
    /// If the stream cannot be written to.
    pub fn finish(&mut self, stream: Stream) -> Result<(), String> {
        self.stack.finish(self.id, stream)
    }

    /// Reads what has arrived.
    ///
    /// # Errors
    /// If the stream was reset or does not exist.
    pub fn read(&mut self, stream: Stream) -> Result<Read, String> {
        self.stack.read(self.id, stream)
    }

    /// Appends everything that has arrived to `out`; true at the end of the stream.
    ///
    /// # Errors
    /// Like [`Conn::read`].
    pub fn read_all(&mut self, stream: Stream, out: &mut Vec<u8>) -> Result<bool, String> {
        loop {
            match self.read(stream)? {
                Read::Data(data) => out.extend_from_slice(&data),
                Read::Blocked => return Ok(false),
                Read::End => return Ok(true),
            }
        }
    }

    /// Writes all of `text`, which must fit into the send buffer, and ends the stream.
    ///
    /// # Errors
    /// If it does not fit, or like [`Conn::write`].
    pub fn say(&mut self, stream: Stream, text: &[u8]) -> Result<(), String> {
        let mut data = Bytes::copy_from_slice(text);
        self.write(stream, &mut data)?;
        if !data.is_empty() {
            return Err(format!(
                "the stream's buffer is full: {} bytes were not accepted",
                data.len()
            ));
        }
        self.finish(stream)
    }

    /// Closes the connection.
    pub fn close(&mut self) {
        self.stack.close(self.now, self.id);
    }

    /// Statistics of the transport.
    #[must_use]
    pub fn figures(&self) -> SenderStats {
        self.stack.figures(self.now, self.id)
    }
}
