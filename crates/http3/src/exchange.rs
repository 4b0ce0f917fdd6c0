//! A request and its response (RFC 9114 §4.1), from the first byte of the request to the end of both.

use bytes::Bytes;

use crate::head::{Request, Response};
use crate::message_state::{MessageEvent, MessageState};
use crate::priority::Priority;
use crate::progress::Progress;
use crate::receive_half::ReceiveHalf;
use crate::send_buffer::SendBuffer;

/// What a request asks for, as far as it changes the format of the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// HEAD: the response has no content.
    Head,
    /// CONNECT to a TCP port: a successful response opens a tunnel.
    Connect,
    /// Extended CONNECT (RFC 9220), whose tunnel may have HTTP datagrams.
    ExtendedConnect,
    /// Any other method.
    Other,
}

impl RequestKind {
    pub(crate) fn of(request: &Request) -> Self {
        match &request.method[..] {
            b"HEAD" => Self::Head,
            b"CONNECT" if request.protocol.is_empty() => Self::Connect,
            b"CONNECT" => Self::ExtendedConnect,
            _ => Self::Other,
        }
    }

    /// Returns whether a successful response opens a tunnel.
    pub(crate) const fn is_connect(self) -> bool {
        match self {
            Self::Connect | Self::ExtendedConnect => true,
            Self::Head | Self::Other => false,
        }
    }

    /// Returns the event that a final response is.
    pub(crate) fn response_event(self, response: &Response) -> MessageEvent {
        let success = (200..300).contains(&response.status);
        if self.is_connect() && success {
            MessageEvent::Connect
        } else {
            MessageEvent::Header
        }
    }

    /// Returns how many bytes of content a final response has, if that is known, given its
    /// content-length (RFC 9114 §4.1.2, RFC 9110 §6.4.1, §9.3.6).
    pub(crate) fn content_len(self, response: &Response, length: Option<u64>) -> Option<u64> {
        match self.response_event(response) {
            MessageEvent::Connect => None,
            _ if self == Self::Head || response.has_no_content() => Some(0),
            _ => length,
        }
    }
}

/// Returns whether a request has a body, according to its method and its content-length (RFC 9110
/// §9.3).
pub(crate) fn has_body(request: &Request, length: Option<u64>) -> bool {
    match length {
        Some(length) => length > 0,
        None => !matches!(
            &request.method[..],
            b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS" | b"TRACE"
        ),
    }
}

/// A request and its response, from the first byte of the request to the end of both.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The received message.
    pub(crate) receiving: ReceiveHalf,
    /// The state of the message we send.
    pub(crate) sending: MessageState,
    pub(crate) request_kind: RequestKind,
    /// Whether the peer gave up before our response was complete; counted once.
    pub(crate) abandoned: bool,
    /// Whether the peer has acknowledged everything we sent, including the end.
    pub(crate) acknowledged: bool,
    /// Whether our sending side was reset, by either endpoint.
    pub(crate) reset: bool,
    /// Interim responses received.
    pub(crate) informational: u8,
    pub(crate) priority: Priority,
    /// Whether the priority is from PRIORITY_UPDATE, which overrides the Priority field.
    pub(crate) reprioritized: bool,
    /// How many bytes of content are still to be sent, if the length was announced.
    unsent_content: Option<u64>,
    pub(crate) send_buffer: SendBuffer,
    /// How fast the peer accepts what we send.
    pub(crate) progress: Progress,
}

impl Exchange {
    pub(crate) fn new(request_kind: RequestKind) -> Self {
        Self {
            receiving: ReceiveHalf::default(),
            sending: MessageState::Header,
            request_kind,
            abandoned: false,
            acknowledged: false,
            reset: false,
            informational: 0,
            priority: Priority::default(),
            reprioritized: false,
            unsent_content: None,
            send_buffer: SendBuffer::default(),
            progress: Progress::default(),
        }
    }

    /// Applies a PRIORITY_UPDATE frame.
    pub(crate) fn reprioritize(&mut self, priority: Priority) {
        self.priority = priority;
        self.reprioritized = true;
    }

    /// Returns whether nothing is left to do, also for the application.
    pub(crate) fn is_over(&self) -> bool {
        self.receiving.is_over()
            && self.sending == MessageState::Done
            && self.send_buffer.is_empty()
    }

    /// Returns whether our message was sent completely, and the peer has not acknowledged it yet.
    pub(crate) fn is_unacknowledged(&self) -> bool {
        self.sending == MessageState::Done && !self.reset && !self.acknowledged
    }

    /// Moves the sent message to its next state. Returns false if the event is not allowed.
    pub(crate) fn advance_sending(&mut self, event: MessageEvent) -> bool {
        let next = self.sending.after(event);
        self.sending = next.unwrap_or(self.sending);
        next.is_some()
    }

    /// Ends the sending side and drops its pending data.
    pub(crate) fn abort_sending(&mut self) {
        self.advance_sending(MessageEvent::Abort);
        self.reset = true;
        self.send_buffer.clear();
    }

    pub(crate) fn expect_to_send(&mut self, content: Option<u64>) {
        self.unsent_content = content;
    }

    /// Returns whether `len` more bytes of content may be sent.
    pub(crate) fn may_send(&self, len: u64) -> bool {
        self.unsent_content
            .is_none_or(|unsent_content| len <= unsent_content)
    }

    pub(crate) fn on_sent(&mut self, len: u64) {
        if let Some(unsent_content) = &mut self.unsent_content {
            *unsent_content = unsent_content.saturating_sub(len);
        }
    }

    /// Returns whether all announced content was sent.
    pub(crate) fn is_content_sent(&self) -> bool {
        matches!(self.unsent_content, Some(0) | None)
    }

    /// Returns the memory in use, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.receiving
            .memory()
            .saturating_add(self.send_buffer.memory())
    }
}

/// A piece of a body, as returned by [`Connection::read_body`](crate::Connection::read_body).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Content, as the transport buffered it; never empty.
    Data(Bytes),
    /// The trailer section; `End` follows.
    Trailers(Vec<crate::qpack::Field>),
    /// The end of the message.
    End,
    /// Nothing more has arrived; [`Event::Readable`](crate::Event::Readable) follows.
    Blocked,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_content_length_depends_on_method_and_status() {
        let ok = Response::new(200);
        assert_eq!(RequestKind::Other.content_len(&ok, Some(5)), Some(5));
        assert_eq!(RequestKind::Other.content_len(&ok, None), None);
        assert_eq!(RequestKind::Head.content_len(&ok, Some(5)), Some(0));
        assert_eq!(RequestKind::Connect.content_len(&ok, Some(5)), None);
        for status in [204, 304] {
            let empty = Response::new(status);
            assert_eq!(RequestKind::Other.content_len(&empty, Some(5)), Some(0));
        }
        let refused = Response::new(403);
        assert_eq!(RequestKind::Connect.content_len(&refused, Some(5)), Some(5));
    }

    #[test]
    fn content_is_checked_against_its_length_in_both_directions() {
        let mut exchange = Exchange::new(RequestKind::Other);
        let receiving = &mut exchange.receiving;
        receiving.expect(Some(10));
        assert!(receiving.on_data(6).is_ok());
        assert!(receiving.on_content_end().is_err());
        assert!(receiving.on_data(5).is_err());
        assert!(receiving.on_data(4).is_ok());
        assert!(receiving.on_content_end().is_ok());
        exchange.expect_to_send(Some(3));
        assert!(exchange.may_send(3) && !exchange.may_send(4));
        exchange.on_sent(2);
        assert!(!exchange.is_content_sent());
        exchange.on_sent(1);
        assert!(exchange.is_content_sent());
    }
}
