//! Frames of the connection itself: HANDSHAKE_DONE, NEW_TOKEN, ACK_FREQUENCY.

use std::net::IpAddr;
use std::sync::Arc;

use super::ack_frequency::{AckFrequencyRequest, ImmediateAck};
use super::sent_frame::SentFrame;
use crate::Instant;
use crate::crypto::{MeasuredPath, TokenIssuer};
use crate::rng::Rng;
use crate::wire::{Frame, Version, Writer};

/// Control frames of the connection itself that wait to be sent.
#[derive(Debug, Default)]
pub(crate) struct Control {
    pub(crate) handshake_done: bool,
    /// Makes tokens for the client (server).
    pub(crate) tokens: Option<Arc<TokenIssuer>>,
    /// A NEW_TOKEN for the client, until acknowledged.
    #[expect(
        clippy::box_collection,
        reason = "most connections have none, so this should be no larger than a pointer"
    )]
    pub(crate) new_token: Option<Box<Vec<u8>>>,
    pub(crate) new_token_due: bool,
    pub(crate) ack_frequency: Option<AckFrequencyRequest>,
    pub(crate) ack_frequency_due: bool,
    pub(crate) immediate_ack: ImmediateAck,
}

impl Control {
    /// Returns the bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        let token = self.new_token.as_deref();
        token.map_or(0, |token| {
            size_of_val(token).saturating_add(token.capacity())
        })
    }

    pub(super) fn is_due(&self) -> bool {
        self.handshake_done || self.new_token_due || self.ack_frequency_due
    }

    /// Queues an ACK_FREQUENCY frame.
    pub(super) fn request_ack_frequency(&mut self, request: AckFrequencyRequest) {
        self.ack_frequency = Some(request);
        self.ack_frequency_due = true;
    }

    /// Queues HANDSHAKE_DONE, and the first NEW_TOKEN for the client at `ip`.
    pub(super) fn on_handshake_done(&mut self, now: Instant, ip: IpAddr, rng: &mut Rng) {
        self.handshake_done = true;
        self.renew_token(now, ip, rng);
    }

    /// Queues a NEW_TOKEN for the client's new address `ip`, which is validated (RFC 9000
    /// §9.3). Not while another is on its way: a client that moves back and forth gets one for
    /// each round trip.
    pub(super) fn renew_token(&mut self, now: Instant, ip: IpAddr, rng: &mut Rng) {
        if self.may_renew_token() {
            self.issue_token(now, ip, None, rng);
        }
    }

    /// Returns whether [`remember_path`](Self::remember_path) would queue a token.
    pub(super) fn may_renew_token(&self) -> bool {
        self.new_token.is_none() && self.tokens.is_some()
    }

    /// Queues a NEW_TOKEN with what was measured of the path to the client at `ip`.
    pub(super) fn remember_path(
        &mut self,
        now: Instant,
        ip: IpAddr,
        path: MeasuredPath,
        rng: &mut Rng,
    ) {
        if self.may_renew_token() {
            self.issue_token(now, ip, Some(path), rng);
        }
    }

    fn issue_token(&mut self, now: Instant, ip: IpAddr, path: Option<MeasuredPath>, rng: &mut Rng) {
        if let Some(tokens) = &self.tokens {
            self.new_token = Some(Box::new(tokens.issue(now, ip, path, rng)));
            self.new_token_due = true;
        }
    }

    /// Makes all tokens for `version`, which the server has chosen (RFC 9369 §5).
    pub(super) fn set_token_version(&mut self, version: Version) {
        if let Some(tokens) = &mut self.tokens {
            *tokens = tokens.for_version(version);
        }
    }

    /// Writes the frames that are due, as far as they fit.
    pub(super) fn fill(&mut self, w: &mut Writer<'_>, mut sent: impl FnMut(SentFrame)) {
        if self.handshake_done && push(w, &Frame::HandshakeDone) {
            self.handshake_done = false;
            sent(SentFrame::HandshakeDone);
        }
        if let Some(token) = &self.new_token
            && self.new_token_due
            && push(w, &Frame::NewToken(token))
        {
            self.new_token_due = false;
            sent(SentFrame::NewToken);
        }
        if let Some(request) = self.ack_frequency
            && self.ack_frequency_due
            && push(w, &request.frame())
        {
            self.ack_frequency_due = false;
            sent(SentFrame::AckFrequency(request.sequence));
        }
    }

    /// Handles the acknowledgement of NEW_TOKEN. A copy declared lost may have made it due
    /// again.
    pub(super) fn on_token_acked(&mut self) {
        self.new_token = None;
        self.new_token_due = false;
    }

    /// Handles the loss of NEW_TOKEN.
    pub(super) fn on_token_lost(&mut self) {
        self.new_token_due = self.new_token.is_some();
    }

    /// Handles the loss of ACK_FREQUENCY with this sequence number.
    pub(super) fn on_ack_frequency_lost(&mut self, sequence: u64) {
        let current = self.ack_frequency.map(|request| request.sequence);
        self.ack_frequency_due |= current == Some(sequence);
    }
}

/// Writes `frame` if it fits; returns whether it did.
pub(super) fn push(w: &mut Writer<'_>, frame: &Frame<'_>) -> bool {
    let fits = frame.size() <= w.remaining();
    if fits {
        frame.encode(w);
    }
    fits
}
