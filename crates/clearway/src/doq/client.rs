//! The client (RFC 9250 §5).

use std::net::SocketAddr;
use std::sync::Arc;

use clearway_quic::connection::ConnectionError;
use tokio::sync::Mutex;

use super::message::{self, Changed, QUERY_BLOCK};
use super::stream::{self, Code, MessageError};
use crate::connection::Connection;
use crate::endpoint::Endpoint;
use crate::error::{ConnectError, ReadError, ReadExactError, WriteError};

/// Connections on which a query is tried.
const ATTEMPTS: usize = 2;

/// A client of one DNS server. It connects with the first query, and again when the connection has
/// ended: by a session of before if there is one, and with queries as early data, which attackers can
/// replay without harm (RFC 9250 §4.5). Other messages, such as UPDATE, wait for the handshake.
///
/// A query whose connection ends is sent once more on another, unless it is one of those messages.
/// Queries are padded to multiples of 128 bytes (RFC 8467 §4.1), in an OPT record that is removed
/// from the answer if the query had none. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    endpoint: Endpoint,
    server: SocketAddr,
    name: String,
    /// The connection, which one task at a time establishes.
    connection: Mutex<Option<Connection>>,
}

/// Why a query has no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// The message is shorter than a DNS header (12 bytes) or longer than 65,535 bytes.
    #[error("a DNS message has between 12 and 65,535 bytes, this one has {0}")]
    Length(usize),
    /// A zone transfer, whose answer has several messages.
    #[error("zone transfers are not supported")]
    Transfer,
    /// There is no connection to the server.
    #[error("cannot connect to the DNS server: {0}")]
    Connect(#[from] ConnectError),
    /// The connection ended before the answer.
    #[error("the connection to the DNS server ended: {0}")]
    ConnectionLost(#[from] ConnectionError),
    /// The server refused the query on its stream, with this code.
    #[error("the DNS server reset the query with code {}", .0.0)]
    Reset(Code),
    /// The server's answer is not what RFC 9250 allows; the connection was closed.
    #[error("the DNS server violated RFC 9250: {0}")]
    Protocol(&'static str),
}

impl From<WriteError> for QueryError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Stopped(code) => Self::Reset(Code(code)),
            WriteError::ConnectionLost(error) => Self::ConnectionLost(error),
            WriteError::Closed => Self::Reset(Code::UNSPECIFIED_ERROR),
        }
    }
}

impl Client {
    /// Creates a client of the server at this address, whose certificate has to be valid for `name`.
    /// The endpoint's configuration needs the protocol [`ALPN`](super::ALPN).
    #[must_use]
    pub fn new(endpoint: Endpoint, server: SocketAddr, name: &str) -> Self {
        Self(Arc::new(Inner {
            endpoint,
            server,
            name: name.to_owned(),
            connection: Mutex::new(None),
        }))
    }

    /// Sends a query and returns the answer, with the query's ID. Dropping the future cancels the
    /// query.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub async fn query(&self, query: &[u8]) -> Result<Vec<u8>, QueryError> {
        if !(12..=message::MAX_MESSAGE).contains(&query.len()) {
            return Err(QueryError::Length(query.len()));
        }
        if message::is_transfer(query) {
            return Err(QueryError::Transfer);
        }
        let mut padded = query.to_vec();
        // The stream says which query it is (RFC 9250 §4.2.1).
        message::set_id(&mut padded, 0);
        let changed = message::pad(&mut padded, QUERY_BLOCK, true);
        let replayable = message::is_replayable(query);
        let mut attempt = 1;
        loop {
            let connection = self.connection(replayable).await?;
            match ask(&connection, &padded).await {
                // Only what changes nothing may arrive twice.
                Err(QueryError::ConnectionLost(_)) if replayable && attempt < ATTEMPTS => {
                    attempt = attempt.saturating_add(1);
                }
                answer => return restore(&connection, answer?, query, changed),
            }
        }
    }

    /// Returns the connection, which is established unless there is one.
    async fn connection(&self, early: bool) -> Result<Connection, QueryError> {
        let Inner {
            endpoint,
            server,
            name,
            connection,
        } = &*self.0;
        let mut kept = connection.lock().await;
        let open = kept.as_ref().filter(|it| it.close_reason().is_none());
        let current = match open {
            Some(open) => open.clone(),
            None => match endpoint.connect(*server, name).into_zero_rtt() {
                Ok((connection, _)) => connection,
                Err(connecting) => connecting.await?,
            },
        };
        *kept = Some(current.clone());
        drop(kept);
        if !early {
            current.handshake_complete().await?;
        }
        Ok(current)
    }

    /// Closes the connection, if there is one. The next query opens another.
    pub async fn close(&self) {
        if let Some(connection) = self.0.connection.lock().await.take() {
            connection.close(Code::NO_ERROR.0, b"");
        }
    }

    /// Returns the connection, if there is one: for its statistics.
    pub async fn current_connection(&self) -> Option<Connection> {
        self.0.connection.lock().await.clone()
    }
}

/// Asks on a stream of its own.
async fn ask(connection: &Connection, query: &[u8]) -> Result<Vec<u8>, QueryError> {
    let (mut send, recv) = connection.open_bi().await?;
    let mut recv = StopOnDrop(recv);
    stream::write(&mut send, query).await?;
    send.finish()?;
    let violated = |why| {
        connection.close(Code::PROTOCOL_ERROR.0, why);
        Err(QueryError::Protocol(why))
    };
    let answered = tokio::select! {
        answered = stream::read(&mut recv.0) => answered,
        // It takes what the server opens only to say that it must not (RFC 9250 §4.3.3).
        Ok(_) = connection.accept_bi() => return violated("a stream that the server opened"),
        Ok(_) = connection.accept_uni() => return violated("a stream that the server opened"),
    };
    let answer = match answered {
        Ok(Some(answer)) => answer,
        Ok(None) => return violated("the stream ended without an answer"),
        Err(MessageError::Malformed) => return violated("the stream ended within a message"),
        Err(MessageError::Stream(ReadExactError::Read(ReadError::Reset(code)))) => {
            return Err(QueryError::Reset(Code(code)));
        }
        Err(MessageError::Stream(ReadExactError::Read(ReadError::ConnectionLost(error)))) => {
            return Err(error.into());
        }
        Err(MessageError::Stream(_)) => return Err(QueryError::Reset(Code::UNSPECIFIED_ERROR)),
    };
    // Otherwise the server would be asked to stop sending what it has sent.
    if let Ok(Some(_)) = recv.0.read_chunk(1).await {
        return violated("more than one answer on a stream");
    }
    match message::id(&answer) {
        Some(0) => Ok(answer),
        Some(_) => violated("the answer's message ID must be 0"),
        None => violated("the answer is shorter than a DNS header"),
    }
}

fn restore(
    connection: &Connection,
    mut answer: Vec<u8>,
    query: &[u8],
    changed: Changed,
) -> Result<Vec<u8>, QueryError> {
    if message::has_tcp_keepalive(&answer) {
        let why = "edns-tcp-keepalive is not allowed on QUIC";
        connection.close(Code::PROTOCOL_ERROR.0, why);
        return Err(QueryError::Protocol(why));
    }
    message::unpad(&mut answer, changed);
    message::set_id(&mut answer, message::id(query).unwrap_or(0));
    Ok(answer)
}

/// A query that is cancelled if nobody waits for its answer (RFC 9250 §4.3.1).
struct StopOnDrop(crate::stream::RecvStream);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        // Nothing happens if the stream was read to its end.
        self.0.stop(Code::REQUEST_CANCELLED.0);
    }
}
