//! Early data: what of it a client sends, and how a server knows it (RFC 8470).

use std::sync::Arc;

use bytes::Bytes;
use clearway_http3::Settings;
use clearway_quic::crypto::ClientSessions;
use clearway_quic::crypto::client_sessions::StoredState;
use http::Method;
use rustls::pki_types::ServerName;

/// Whether a request may be sent as early data, before the handshake is complete:
/// among a request's extensions, for this request alone. An attacker on the path
/// may have a server act on such a request **more than once** (RFC 8470 §2).
///
/// Without it, requests with safe methods (GET, HEAD, OPTIONS, TRACE) and no body
/// are sent so, to servers that offered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// Whatever its method, and with its body: to act on it twice does no harm.
    Allow,
    /// Wait for the handshake.
    Avoid,
}

impl EarlyData {
    /// Whether a request may be early: the caller's choice, else only if it is safe
    /// and whole.
    pub(super) fn allows(choice: Option<Self>, method: &Method, whole: bool) -> bool {
        match choice {
            Some(Self::Allow) => *method != Method::CONNECT,
            Some(Self::Avoid) => false,
            None => method.is_safe() && whole,
        }
    }
}

/// Among the extensions of a request that arrived as early data: the client has not
/// yet proved that it is no replay. A handler that must not act twice awaits
/// [`Connection::handshaken`](crate::Connection::handshaken) of the connection
/// beside it, or answers 425 (Too Early), upon which the client sends the request
/// again (RFC 8470 §5.2).
///
/// ```
/// use axum::extract::Request;
/// use clearway::http::ArrivedEarly;
/// use http::StatusCode;
///
/// async fn transfer_money(request: Request) -> StatusCode {
///     if request.extensions().get::<ArrivedEarly>().is_some() {
///         return StatusCode::TOO_EARLY;
///     }
///     // …
///     StatusCode::OK
/// }
/// # let _: axum::Router = axum::Router::new().fallback(transfer_money);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrivedEarly;

/// Where a client remembers a server's SETTINGS, beside its tickets
/// (RFC 9114 §7.2.4.2).
#[derive(Debug)]
pub(crate) struct Memory {
    sessions: Arc<ClientSessions>,
    server: ServerName<'static>,
}

impl Memory {
    pub(crate) fn new(sessions: Arc<ClientSessions>, server: ServerName<'static>) -> Self {
        Self { sessions, server }
    }

    /// The settings that early data has to keep to.
    pub(super) fn settings(&self) -> Option<Settings> {
        let state = self.sessions.stored(&self.server).application?;
        Settings::decode(&state).ok()
    }

    pub(super) fn keep(&self, settings: &Settings) {
        let state = Bytes::from(settings.payload());
        self.sessions.put_application_state(&self.server, state);
    }

    /// The server does not keep to what it said.
    pub(super) fn forget(&self) {
        self.sessions.forget(&self.server);
    }
}

/// Whether the next connection to a server may carry early requests.
pub(super) fn is_enough(stored: &StoredState) -> bool {
    stored.tickets > 0 && stored.application.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_requests_with_safe_methods_are_early_unless_one_says_so() {
        let early = |choice, method: &Method| {
            [true, false].map(|whole| EarlyData::allows(choice, method, whole))
        };
        for method in [Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE] {
            assert_eq!(early(None, &method), [true, false], "{method}");
            assert_eq!(early(Some(EarlyData::Avoid), &method), [false; 2]);
        }
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
            assert_eq!(early(None, &method), [false; 2], "{method}");
            assert_eq!(early(Some(EarlyData::Allow), &method), [true; 2]);
        }
        assert_eq!(early(Some(EarlyData::Allow), &Method::CONNECT), [false; 2]);
    }
}
