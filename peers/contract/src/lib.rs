//! What every peer program shares: its command line, the requests it makes, how it verifies the
//! answers, and what it reports. A stack adds how it connects ([`Stack`]) and how one request is
//! made on a connection ([`Session`]).
//!
//! | file | what it owns |
//! |---|---|
//! | [`options`] | the command line |
//! | [`pattern`] | the bytes of every answer |
//! | [`answer`] | verifying one answer |
//! | [`transfer`] | a connection's requests |
//! | [`load`] | handshakes by the second, idle connections by the thousand |
//! | [`client`] | what a client does |
//! | [`program`] | the program around both roles |
//! | [`report`] | the JSON that programs print |

pub mod answer;
pub mod client;
pub mod load;
pub mod options;
pub mod pattern;
pub mod program;
pub mod report;
pub mod transfer;

use std::{fmt, future::Future};

use anyhow::Result;

use crate::{answer::Answer, options::Get, report::Facts};

/// The ALPN protocol name of HTTP/3 (RFC 9114 §3.1).
pub const H3: &[u8] = b"h3";

/// Exit code of a program that cannot do what it is asked, as in the public interop runner.
pub const UNSUPPORTED: u8 = 127;

/// What a stack cannot do, whoever its peer is.
#[derive(Debug, Clone, Copy)]
pub struct Unsupported(pub &'static str);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unsupported: {}", self.0)
    }
}

impl std::error::Error for Unsupported {}

/// When a connection may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Once its handshake is complete.
    Complete,
    /// At once: what is sent is early data, if there is a ticket for it.
    Early,
}

/// A stack as a client.
pub trait Stack: Send + Sync + Sized + 'static {
    /// Its name in every report.
    const PEER: &'static str;
    /// One connection.
    type Session: Session;

    /// Prepares to connect as the command line wants it. Only a client that
    /// [remembers](Get::remembers) keeps tickets: others would not measure full handshakes.
    ///
    /// # Errors
    /// Files that cannot be read, sockets that cannot be had.
    fn new(options: &Get) -> Result<Self>;

    /// Makes a connection.
    ///
    /// # Errors
    /// Why there is none; [`Unsupported`] if the stack can have no such one.
    fn connect(&self, start: Start) -> impl Future<Output = Result<Self::Session>> + Send;

    /// Waits until a ticket for another connection has come.
    ///
    /// # Errors
    /// If none comes in time.
    fn ticket(&self) -> impl Future<Output = Result<()>> + Send;

    /// Waits until every closed connection's peer has been told.
    fn quiet(&self) -> impl Future<Output = ()> + Send;
}

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// Bytes of the answer.
    pub wanted: u64,
    /// Bytes of the upload.
    pub upload: u64,
}

impl Ask {
    /// The HTTP path: uploads are echoed.
    #[must_use]
    pub fn path(&self) -> String {
        if self.upload > 0 {
            "/echo".to_owned()
        } else {
            format!("/{}", self.wanted)
        }
    }
}

/// One connection of a client; clones are handles to it.
pub trait Session: Clone + Send + Sync + 'static {
    /// Makes one request and hands all that comes to `answer`.
    ///
    /// # Errors
    /// Why the answer did not come whole, or what `answer` found wrong with it.
    fn exchange(&self, ask: Ask, answer: &mut Answer) -> impl Future<Output = Result<()>> + Send;

    /// Begins a key update (RFC 9001 §6.1).
    ///
    /// # Errors
    /// If that is not possible; [`Unsupported`] if the stack never lets a caller.
    fn update_keys(&self) -> impl Future<Output = Result<()>> + Send;

    /// What the handshake and the connection showed.
    fn facts(&self) -> impl Future<Output = Facts> + Send;

    /// Closes the connection in a way that tells the server whether all was well.
    fn close(&self, well: bool);
}
