//! Early data: which requests a client sends in it, and how a server recognises it (RFC 8470).

use std::sync::Arc;

use bytes::Bytes;
use clearway_http3::Settings;
use clearway_quic::crypto::{ClientSessions, ServerId, StoredState};
use http::Method;

/// Whether a request may be sent as early data, before the handshake is complete: an
/// extension of a single request. An attacker on the path may cause a server to act on such
/// a request **more than once** (RFC 8470 §2).
///
/// Without it, requests with safe methods (GET, HEAD, OPTIONS, TRACE) and no body are sent as
/// early data to servers that allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EarlyData {
    /// Sends it as early data whatever its method, with its body. Only for requests that may
    /// be acted on twice.
    Allow,
    /// Waits for the handshake.
    Avoid,
}

impl EarlyData {
    /// Whether a request may be early data: the caller's choice, or else only if its method is
    /// safe and it has no body (`whole`).
    pub(super) fn allows(choice: Option<Self>, method: &Method, whole: bool) -> bool {
        match choice {
            Some(Self::Allow) => *method != Method::CONNECT,
            Some(Self::Avoid) => false,
            None => method.is_safe() && whole,
        }
    }
}

/// An extension of requests that arrived as early data: they may be a replay. A handler that
/// must not act twice awaits
/// [`Connection::handshake_complete`](crate::Connection::handshake_complete) of the connection
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

/// The store of a server's SETTINGS, beside its session tickets (RFC 9114 §7.2.4.2).
#[derive(Debug)]
pub(crate) struct RememberedSettings {
    sessions: Arc<ClientSessions>,
    server: ServerId,
}

impl RememberedSettings {
    pub(crate) fn new(sessions: Arc<ClientSessions>, server: ServerId) -> Self {
        Self { sessions, server }
    }

    /// Returns the settings that apply to early data.
    pub(super) fn settings(&self) -> Option<Settings> {
        let state = self.sessions.stored(&self.server).application?;
        Settings::decode(&state).ok()
    }

    pub(super) fn keep(&self, settings: &Settings) {
        let state = Bytes::from(settings.payload());
        self.sessions.put_application_state(&self.server, state);
    }

    /// Forgets the server, which did not honour its settings.
    pub(super) fn forget(&self) {
        self.sessions.forget(&self.server);
    }
}

/// Whether the next connection to a server can carry early data.
pub(super) fn allows_early_requests(stored: &StoredState) -> bool {
    stored.tickets > 0 && stored.application.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn early_data_defaults_to_safe_requests_without_a_body() {
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
