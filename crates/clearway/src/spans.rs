//! Spans of `tracing`: one for each connection and one for each request, for applications that
//! export them, for instance with OpenTelemetry, whose names the fields have.
//!
//! A span is made only if a subscriber takes it. Without one, a connection costs a pointer and a
//! request costs the comparison of a static level.

use clearway_quic::Role;
use clearway_quic::connection::{Connection, ConnectionError};
use http::{Method, Response, Uri};
use tracing::field::{Empty, display};
use tracing::{Id, Level, Span};

use crate::connection::ConnectionShared;
use crate::http::Error;

/// The target of all spans, by which filters select them.
pub(crate) const TARGET: &str = "clearway::span";

/// The span of a connection, if a subscriber takes it.
#[derive(Debug)]
pub(crate) struct ConnectionSpan(Option<Box<Span>>);

impl ConnectionSpan {
    /// Begins the span of a connection.
    pub(crate) fn begin(quic: &Connection) -> Self {
        if !tracing::span_enabled!(target: TARGET, Level::INFO) {
            return Self(None);
        }
        let remote = quic.remote_address();
        let kind = match quic.role() {
            Role::Client => "client",
            Role::Server => "server",
        };
        let span = tracing::info_span!(
            target: TARGET,
            parent: None,
            "quic connection",
            otel.kind = kind,
            network.peer.address = %remote.ip(),
            network.peer.port = remote.port(),
            error.type = Empty,
        );
        Self(span.id().is_some().then(|| Box::new(span)))
    }

    pub(crate) fn id(&self) -> Option<Id> {
        self.0.as_deref().and_then(Span::id)
    }

    /// Records why the connection ended.
    pub(crate) fn record_end(&self, error: &ConnectionError) {
        if let Some(span) = &self.0 {
            span.record("error.type", display(error));
        }
    }
}

/// The span of a connection, as the parent of those of its requests.
pub(crate) fn parent(connection: &ConnectionShared) -> Option<Id> {
    if !tracing::span_enabled!(target: TARGET, Level::INFO) {
        return None;
    }
    connection.span_id()
}

/// The span of a request to a server.
pub(crate) fn server_request(connection: Option<Id>, head: &clearway_http3::Request) -> Span {
    tracing::info_span!(
        target: TARGET,
        parent: connection,
        "http request",
        otel.kind = "server",
        http.request.method = %String::from_utf8_lossy(&head.method),
        url.path = %path(&head.path),
        http.response.status_code = Empty,
        error.type = Empty,
    )
}

/// The path without its query, which may hold secrets.
fn path(target: &[u8]) -> std::borrow::Cow<'_, str> {
    let path = target.split(|byte| *byte == b'?').next();
    String::from_utf8_lossy(path.unwrap_or_default())
}

/// The span of a request of a client, until the response begins.
pub(crate) fn client_request(method: &Method, uri: &Uri) -> Span {
    tracing::info_span!(
        target: TARGET,
        "http request",
        otel.kind = "client",
        http.request.method = %method,
        server.address = uri.host().unwrap_or_default(),
        url.path = uri.path(),
        http.response.status_code = Empty,
        error.type = Empty,
    )
}

/// Records the outcome of a request.
pub(crate) fn record_outcome<B>(span: &Span, outcome: &Result<Response<B>, Error>) {
    match outcome {
        Ok(response) => record_status(span, response),
        Err(error) => record_error(span, error),
    }
}

/// Records the status of a response.
pub(crate) fn record_status<B>(span: &Span, response: &Response<B>) {
    if !span.is_none() {
        span.record("http.response.status_code", response.status().as_u16());
    }
}

/// Records why there was no response, or no whole one.
pub(crate) fn record_error(span: &Span, error: &dyn core::fmt::Display) {
    if !span.is_none() {
        span.record("error.type", display(error));
    }
}
