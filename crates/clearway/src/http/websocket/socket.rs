//! A WebSocket, opened by a client or accepted by a server.

use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{HeaderValue, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION};
use http::{Request, Response, Uri};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::io::TunnelIo;
use super::{CloseFrame, PROTOCOL, WebSocketConfig, WebSocketError};
use crate::http::client::Client;
use crate::http::error::Error;
use crate::http::message::Protocol;
use crate::http::tunnel::{OpenTunnelError, Tunnel};

/// The version of the protocol (RFC 6455 §4.1).
const VERSION: HeaderValue = HeaderValue::from_static("13");

/// Bytes read at once, unless configured. tungstenite's 128 KiB are too many for a socket that
/// mostly waits.
const READ_BUFFER: usize = 8 << 10;

/// The longest message, unless configured, in bytes: 1 MiB, as a peer decides what it costs.
const MAX_MESSAGE: usize = 1 << 20;

/// A WebSocket over HTTP/3.
#[derive(Debug)]
pub struct WebSocket {
    stream: WebSocketStream<TunnelIo>,
    protocol: Option<HeaderValue>,
}

/// Why a WebSocket could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenWebSocketError {
    /// The tunnel was refused or could not be opened.
    #[error(transparent)]
    Tunnel(#[from] OpenTunnelError),
    /// The server chose a subprotocol that the client did not offer (RFC 6455 §4.1).
    #[error("the server chose the subprotocol {0:?}, which was not offered")]
    Subprotocol(HeaderValue),
}

impl From<Error> for OpenWebSocketError {
    fn from(error: Error) -> Self {
        Self::Tunnel(error.into())
    }
}

impl Client {
    /// Opens a WebSocket. Messages are at most 1 MiB long.
    ///
    /// # Errors
    /// As [`tunnel`](Self::tunnel).
    pub async fn websocket(&self, url: &str) -> Result<WebSocket, OpenWebSocketError> {
        let uri: Uri = url
            .parse()
            .map_err(|_| Error::Url(url.to_owned(), "not a valid URI"))?;
        let mut request = Request::new(());
        *request.uri_mut() = uri;
        self.websocket_with(request, default_config()).await
    }

    /// Opens a WebSocket with a request of one's own, such as one with the field
    /// `sec-websocket-protocol`, and with limits of one's own.
    ///
    /// # Errors
    /// As [`websocket`](Self::websocket), and if the server chooses a subprotocol that was not
    /// offered.
    pub async fn websocket_with(
        &self,
        mut request: Request<()>,
        config: WebSocketConfig,
    ) -> Result<WebSocket, OpenWebSocketError> {
        let offered: Vec<HeaderValue> = (request.headers().get_all(SEC_WEBSOCKET_PROTOCOL))
            .iter()
            .cloned()
            .collect();
        (request.headers_mut()).insert(SEC_WEBSOCKET_VERSION, VERSION);
        request.extensions_mut().insert(Protocol::new(PROTOCOL));
        let tunnel = self.tunnel(request).await?;
        let protocol = tunnel.response.headers().get(SEC_WEBSOCKET_PROTOCOL);
        let protocol = protocol.cloned();
        if let Some(chosen) = &protocol
            && !offered.iter().any(|offered| lists(offered, chosen))
        {
            return Err(OpenWebSocketError::Subprotocol(chosen.clone()));
        }
        let io = TunnelIo::new(tunnel.sender, tunnel.receiver);
        let stream = WebSocketStream::from_raw_socket(io, Role::Client, Some(config)).await;
        Ok(WebSocket { stream, protocol })
    }
}

/// Accepts a WebSocket on a server that does not use axum: a tunnel whose request has the
/// [`Protocol`] `websocket`. The response may choose a subprotocol. Without `config`, messages are
/// at most 1 MiB long.
///
/// # Errors
/// As [`Tunnel::accept`].
pub async fn accept(
    tunnel: Tunnel,
    response: Response<()>,
    config: Option<WebSocketConfig>,
) -> Result<WebSocket, Error> {
    let protocol = response.headers().get(SEC_WEBSOCKET_PROTOCOL).cloned();
    let (sender, receiver, _) = tunnel.accept(response).await?;
    let config = config.unwrap_or_else(default_config);
    let io = TunnelIo::new(sender, receiver);
    let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    Ok(WebSocket { stream, protocol })
}

impl WebSocket {
    /// Returns the next message, or `None` after the end. Pings are answered by this, and returned
    /// too. Cancel-safe.
    pub async fn recv(&mut self) -> Option<Result<Message, WebSocketError>> {
        self.stream.next().await
    }

    /// Sends a message.
    ///
    /// # Errors
    /// If the WebSocket is closed, or the message is too long.
    pub async fn send(&mut self, message: Message) -> Result<(), WebSocketError> {
        self.stream.send(message).await
    }

    /// Sends a Close frame. [`recv`](Self::recv) returns the peer's, and then `None`.
    ///
    /// # Errors
    /// If the WebSocket is closed.
    pub async fn close(&mut self, frame: Option<CloseFrame>) -> Result<(), WebSocketError> {
        self.stream.close(frame).await
    }

    /// Returns the subprotocol that the server chose.
    #[must_use]
    pub fn protocol(&self) -> Option<&HeaderValue> {
        self.protocol.as_ref()
    }
}

fn default_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
}

/// Whether a list of subprotocols contains this one.
fn lists(list: &HeaderValue, chosen: &HeaderValue) -> bool {
    let mut names = list.as_bytes().split(|&byte| byte == b',');
    names.any(|name| name.trim_ascii() == chosen.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subprotocol_is_looked_up_in_the_list() {
        let list = HeaderValue::from_static("chat, superchat ,v2");
        for (name, expected) in [
            ("chat", true),
            ("superchat", true),
            ("v2", true),
            ("v", false),
        ] {
            assert_eq!(lists(&list, &HeaderValue::from_static(name)), expected);
        }
    }
}
