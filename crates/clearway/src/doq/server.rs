//! The server (RFC 9250 §5).

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use super::message::{self, RESPONSE_BLOCK};
use super::stream::{self, Code, MessageError};
use crate::application::Application;
use crate::connection::Connection;
use crate::stream::{RecvStream, SendStream};

/// A query that has arrived.
#[derive(Clone, Debug)]
pub struct Query {
    message: Vec<u8>,
    remote: SocketAddr,
}

impl Query {
    /// Returns the message, whose ID is 0.
    #[must_use]
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Returns the client's address.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }
}

/// What a query is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A message. Its ID is set to 0.
    Message(Vec<u8>),
    /// None: the stream is reset with this code.
    Reset(Code),
}

impl From<Vec<u8>> for Answer {
    fn from(message: Vec<u8>) -> Self {
        Self::Message(message)
    }
}

/// Answers queries. A closure `async |query: Query| -> Answer` is one.
pub trait Resolver: Send + Sync + 'static {
    /// Answers a query. It is dropped if the client cancels the query.
    fn resolve(&self, query: Query) -> impl Future<Output = Answer> + Send;
}

impl<F, T> Resolver for F
where
    F: Fn(Query) -> T + Send + Sync + 'static,
    T: Future<Output = Answer> + Send,
{
    fn resolve(&self, query: Query) -> impl Future<Output = Answer> + Send {
        self(query)
    }
}

/// DNS over QUIC as an [`Application`], for [`Endpoint::serve`](crate::Endpoint::serve). The
/// endpoint's configuration needs the protocol [`ALPN`](super::ALPN).
///
/// A client may have as many queries at once as streams
/// ([`ServerConfig`](crate::ServerConfig)'s transport settings; 100). Responses are padded to
/// multiples of 468 bytes if the query is padded (RFC 8467 §4.1). With
/// [`ServerConfig::early_data`](crate::ServerConfig::early_data), QUERY and NOTIFY are answered
/// before the handshake is complete, others after it (RFC 9250 §4.5). Zone transfers are answered
/// with NOTIMP.
#[derive(Debug)]
pub struct Server<R>(Arc<R>);

/// The response code of a query that is not implemented (RFC 1035 §4.1.1).
const NOT_IMPLEMENTED: u8 = 4;

impl<R: Resolver> Server<R> {
    /// Creates a server whose answers are the resolver's.
    #[must_use]
    pub fn new(resolver: R) -> Self {
        Self(Arc::new(resolver))
    }
}

impl<R: Resolver> Application for Server<R> {
    async fn on_connection(&self, connection: Connection) {
        loop {
            tokio::select! {
                stream = connection.accept_bi() => {
                    let Ok((send, recv)) = stream else { return };
                    let resolver = self.0.clone();
                    let connection = connection.clone();
                    tokio::spawn(async move {
                        if let Err(why) = serve(&*resolver, &connection, send, recv).await {
                            connection.close(Code::PROTOCOL_ERROR.0, why);
                        }
                    });
                }
                stream = connection.accept_uni() => {
                    if stream.is_ok() {
                        let why = "DNS over QUIC has no unidirectional streams";
                        connection.close(Code::PROTOCOL_ERROR.0, why);
                    }
                    return;
                }
            }
        }
    }
}

/// Serves a query.
///
/// # Errors
/// How the client violated RFC 9250.
async fn serve(
    resolver: &impl Resolver,
    connection: &Connection,
    mut send: SendStream,
    mut recv: RecvStream,
) -> Result<(), &'static str> {
    let message = match stream::read(&mut recv).await {
        Ok(Some(message)) => message,
        Ok(None) => return Err("the stream ended without a query"),
        Err(MessageError::Malformed) => return Err("the stream ended within a query"),
        // The client cancelled it, or has left.
        Err(MessageError::Stream(_)) => {
            let _ = send.reset(Code::REQUEST_CANCELLED.0);
            return Ok(());
        }
    };
    match message::id(&message) {
        Some(0) if message.len() >= 12 => {}
        Some(0) | None => return Err("a query is shorter than a DNS header"),
        Some(_) => return Err("a query's message ID must be 0"),
    }
    if message::has_tcp_keepalive(&message) {
        return Err("edns-tcp-keepalive is not allowed on QUIC");
    }
    // The client has to end its stream with the query (§4.2): anything else is an error.
    match recv.read_chunk(1).await {
        Ok(Some(_)) => return Err("more than one query on a stream"),
        Ok(None) => {}
        Err(_) => {
            let _ = send.reset(Code::REQUEST_CANCELLED.0);
            return Ok(());
        }
    }
    if !message::is_replayable(&message) && connection.handshake_complete().await.is_err() {
        return Ok(());
    }
    let padded = message::asks_for_padding(&message);
    let answer = if message::is_transfer(&message) {
        Answer::Message(message::error_response(&message, NOT_IMPLEMENTED))
    } else {
        let remote = connection.remote_address();
        let query = Query { message, remote };
        tokio::select! {
            answer = resolver.resolve(query) => answer,
            _ = send.stopped() => Answer::Reset(Code::REQUEST_CANCELLED),
        }
    };
    match answer {
        Answer::Message(mut answer) => {
            message::set_id(&mut answer, 0);
            if padded {
                message::pad(&mut answer, RESPONSE_BLOCK, false);
            }
            // It fails if the client does not want it any more.
            if stream::write(&mut send, &answer).await.is_ok() {
                let _ = send.finish();
            }
        }
        Answer::Reset(code) => {
            let _ = send.reset(code.0);
        }
    }
    Ok(())
}
