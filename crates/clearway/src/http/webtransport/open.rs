//! Sessions of a client.

use http::{HeaderValue, Request, Response};

use super::request::{AVAILABLE_PROTOCOLS, chosen_protocol, quoted};
use super::session::WebTransportSession;
use crate::http::client::Client;
use crate::http::message::Protocol;
use crate::http::tunnel::{OpenTunnelError, OpenedStream};

impl Client {
    /// Opens a WebTransport session ([`webtransport`](crate::http::webtransport)). The method and
    /// the protocol of the request are set. It shares the connection with other requests to the same
    /// server.
    ///
    /// # Errors
    /// As [`tunnel`](Self::tunnel): `Unsendable` if the server does not support WebTransport.
    pub async fn webtransport(
        &self,
        request: Request<()>,
    ) -> Result<(WebTransportSession, Response<()>), OpenTunnelError> {
        self.webtransport_with_protocols(request, &[]).await
    }

    /// Does the same and offers these protocols, the preferred one first.
    /// [`WebTransportSession::protocol`] returns the one that the server chose.
    ///
    /// # Errors
    /// As [`webtransport`](Self::webtransport).
    pub async fn webtransport_with_protocols(
        &self,
        mut request: Request<()>,
        protocols: &[&str],
    ) -> Result<(WebTransportSession, Response<()>), OpenTunnelError> {
        request
            .extensions_mut()
            .insert(Protocol::new("webtransport"));
        let list: Vec<String> = protocols.iter().map(|it| quoted(it)).collect();
        if let Ok(value) = HeaderValue::try_from(list.join(", "))
            && !list.is_empty()
        {
            request.headers_mut().insert(AVAILABLE_PROTOCOLS, value);
        }
        let OpenedStream {
            response, stream, ..
        } = self.open_tunnel(request).await?;
        let chosen = chosen_protocol(response.headers());
        // A protocol that was not offered is none (§3.3).
        let chosen = chosen.filter(|chosen| protocols.contains(&chosen.as_str()));
        Ok((WebTransportSession::new(stream, None, chosen), response))
    }
}
