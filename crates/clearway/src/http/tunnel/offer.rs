//! Whether a server's request for a tunnel was accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clearway_http3::Code;
use http::header::CONTENT_LENGTH;
use http::response;

use crate::http::error::Error;
use crate::http::message;
use crate::http::request_stream::RequestStream;
use crate::http::server_state::{Permit, ServerState, TunnelPermit};

/// What handlers, halves and the request's body share.
#[derive(Debug)]
pub(in crate::http) struct TunnelOffer {
    stream: RequestStream,
    stage: AtomicU8,
    /// The request came as early data.
    early: bool,
    /// Returned when the last handle is dropped.
    permit: TunnelPermit,
    _request: Permit,
}

/// Nothing was answered yet.
const OFFERED: u8 = 0;
/// The tunnel was accepted.
const ACCEPTED: u8 = 1;
/// The handler's response is sent.
const ANSWERED: u8 = 2;

impl TunnelOffer {
    pub(in crate::http) fn new(
        stream: RequestStream,
        early: bool,
        permit: TunnelPermit,
        request: Permit,
    ) -> Arc<Self> {
        Arc::new(Self {
            stream,
            stage: AtomicU8::new(OFFERED),
            early,
            permit,
            _request: request,
        })
    }

    /// The request came as early data.
    pub(super) fn is_early(&self) -> bool {
        self.early
    }

    pub(super) fn stream(&self) -> &RequestStream {
        &self.stream
    }

    pub(super) fn server(&self) -> &Arc<ServerState> {
        self.permit.server()
    }

    pub(in crate::http) fn is_accepted(&self) -> bool {
        self.stage.load(Ordering::Acquire) == ACCEPTED
    }

    /// The handler's response is about to be sent. Returns false if the tunnel was accepted.
    pub(in crate::http) fn answer(&self) -> bool {
        self.advance(ANSWERED)
    }

    /// Accepts the tunnel with this response, and returns its stream. Returns `None` if it was
    /// answered before.
    pub(in crate::http) fn accept_stream(
        &self,
        mut response: response::Parts,
    ) -> Option<Result<RequestStream, Error>> {
        if !self.advance(ACCEPTED) {
            return None;
        }
        // A tunnel has no length (RFC 9110 §9.3.6).
        response.headers.remove(CONTENT_LENGTH);
        let sent = (self.stream).respond(&message::response_head(response), false);
        Some(sent.map(|()| self.stream.clone()))
    }

    fn advance(&self, stage: u8) -> bool {
        let advanced =
            self.stage
                .compare_exchange(OFFERED, stage, Ordering::AcqRel, Ordering::Acquire);
        advanced.is_ok()
    }
}

impl Drop for TunnelOffer {
    fn drop(&mut self) {
        // The receiving half of an accepted tunnel does this itself.
        if !self.is_accepted() {
            self.stream.stop(Code::NO_ERROR);
        }
    }
}
