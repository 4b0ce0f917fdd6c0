//! What all peer programs share: the command line, the requests, the verification of responses, and
//! the reports. A stack implements how it connects ([`Stack`]) and how it makes a request on a
//! connection ([`Session`]).
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
//! | [`runner`] | the contract of the public interop runner, which other programs keep |

pub mod answer;
pub mod client;
pub mod load;
pub mod options;
pub mod pattern;
pub mod program;
pub mod report;
pub mod runner;
pub mod transfer;

use std::{fmt, future::Future};

use anyhow::Result;

use crate::{answer::Answer, options::Get, report::Facts};

/// The ALPN protocol name of HTTP/3 (RFC 9114 §3.1).
pub const H3: &[u8] = b"h3";

/// Exit code of a program that does not support what is requested, as in the public interop runner.
pub const UNSUPPORTED: u8 = 127;

/// A feature that a stack does not support, whatever its peer.
#[derive(Debug, Clone, Copy)]
pub struct Unsupported(pub &'static str);

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unsupported: {}", self.0)
    }
}

impl std::error::Error for Unsupported {}

/// When requests are sent on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Once the handshake is complete.
    Complete,
    /// At once: as early data, if there is a ticket for it.
    Early,
}

/// A stack as a client.
pub trait Stack: Send + Sync + Sized + 'static {
    /// The name in reports.
    const PEER: &'static str;
    /// A connection.
    type Session: Session;

    /// Prepares connections with the options of the command line. Only a client that
    /// [remembers](Get::remembers) keeps tickets: others would not measure full handshakes.
    ///
    /// # Errors
    /// Files cannot be read, or sockets cannot be created.
    fn new(options: &Get) -> Result<Self>;

    /// Makes a connection.
    ///
    /// # Errors
    /// Why the connection failed; [`Unsupported`] if the stack does not support such a connection.
    fn connect(&self, start: Start) -> impl Future<Output = Result<Self::Session>> + Send;

    /// Waits for a session ticket.
    ///
    /// # Errors
    /// No ticket arrives in time.
    fn ticket(&self) -> impl Future<Output = Result<()>> + Send;

    /// Waits until the peers of all closed connections have been told.
    fn quiet(&self) -> impl Future<Output = ()> + Send;
}

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ask {
    /// The length of the response, in bytes.
    pub wanted: u64,
    /// The length of the upload, in bytes.
    pub upload: u64,
}

impl Ask {
    /// Returns the HTTP path. Uploads are echoed.
    #[must_use]
    pub fn path(&self) -> String {
        if self.upload > 0 {
            "/echo".to_owned()
        } else {
            format!("/{}", self.wanted)
        }
    }
}

/// A connection of a client; clones are handles to it.
pub trait Session: Clone + Send + Sync + 'static {
    /// Makes a request and passes everything received to `answer`.
    ///
    /// # Errors
    /// Why the response is incomplete, or what `answer` found wrong in it.
    fn exchange(&self, ask: Ask, answer: &mut Answer) -> impl Future<Output = Result<()>> + Send;

    /// Starts a key update (RFC 9001 §6.1).
    ///
    /// # Errors
    /// It is not possible; [`Unsupported`] if the stack has no such function.
    fn update_keys(&self) -> impl Future<Output = Result<()>> + Send;

    /// Returns what is known about the handshake and the connection.
    fn facts(&self) -> impl Future<Output = Facts> + Send;

    /// Closes the connection with a code that tells the server whether everything was right.
    fn close(&self, well: bool);
}
