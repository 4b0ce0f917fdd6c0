//! A request and its response (RFC 9114 §4.1): two messages, each a small state machine.

use bytes::Bytes;
use clearway_quic::Role;

use crate::error::{Code, ConnectionError};
use crate::frame::FrameKind;
use crate::head::{Request, Response};
use crate::priority::Priority;
use crate::progress::Progress;
use crate::receive_half::ReceiveHalf;
use crate::send_buffer::SendBuffer;

/// The state of one message. Received and sent messages go through the same states (RFC 9114 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageState {
    /// Before the final header section; interim responses may come first.
    Header,
    /// Content or trailers may follow.
    Body,
    /// In the data stream of a tunnel (RFC 9114 §4.4).
    Tunnel,
    /// After the trailer section.
    AfterTrailers,
    /// The message has ended, or was reset, stopped or abandoned.
    Done,
}

/// An event that moves a message to another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MessageEvent {
    /// An interim response.
    Interim,
    /// The header section.
    Header,
    /// The header section that opens a tunnel.
    Connect,
    /// A piece of the body.
    Data,
    /// The trailer section.
    Trailers,
    /// The end of the stream.
    End,
    /// The stream is abandoned.
    Abort,
}

impl MessageState {
    /// Returns the state after `event`, or `None` if the event is not allowed.
    pub(crate) const fn after(self, event: MessageEvent) -> Option<Self> {
        match (self, event) {
            (Self::Header, MessageEvent::Interim) => Some(Self::Header),
            (Self::Header, MessageEvent::Header) => Some(Self::Body),
            (Self::Header, MessageEvent::Connect) => Some(Self::Tunnel),
            (Self::Body, MessageEvent::Data) => Some(Self::Body),
            (Self::Tunnel, MessageEvent::Data) => Some(Self::Tunnel),
            (Self::Body, MessageEvent::Trailers) => Some(Self::AfterTrailers),
            (Self::Body | Self::Tunnel | Self::AfterTrailers, MessageEvent::End) => {
                Some(Self::Done)
            }
            (_, MessageEvent::Abort) => Some(Self::Done),
            (Self::Header, MessageEvent::Data | MessageEvent::Trailers | MessageEvent::End)
            | (Self::Body, MessageEvent::Interim | MessageEvent::Header | MessageEvent::Connect)
            | (
                Self::Tunnel,
                MessageEvent::Interim
                | MessageEvent::Header
                | MessageEvent::Connect
                | MessageEvent::Trailers,
            )
            | (
                Self::AfterTrailers,
                MessageEvent::Interim
                | MessageEvent::Header
                | MessageEvent::Connect
                | MessageEvent::Data
                | MessageEvent::Trailers,
            )
            | (
                Self::Done,
                MessageEvent::Interim
                | MessageEvent::Header
                | MessageEvent::Connect
                | MessageEvent::Data
                | MessageEvent::Trailers
                | MessageEvent::End,
            ) => None,
        }
    }

    /// Returns what to do with a frame that begins on the request stream.
    ///
    /// # Errors
    /// A connection error if the frame is not allowed in this state.
    pub(crate) fn check_frame(
        self,
        role: Role,
        kind: FrameKind,
    ) -> Result<FrameAction, ConnectionError> {
        let has_section = matches!(self, Self::Header | Self::Body);
        let has_data = matches!(self, Self::Body | Self::Tunnel);
        match kind {
            FrameKind::Headers if has_section => Ok(FrameAction::Section),
            FrameKind::Data if has_data => Ok(FrameAction::Body),
            FrameKind::Unknown(_) => Ok(FrameAction::Skip),
            // We never send MAX_PUSH_ID, so any push ID is too large (RFC 9114 §7.2.5).
            FrameKind::PushPromise if role == Role::Client => Err(ConnectionError::new(
                Code::ID_ERROR,
                "PUSH_PROMISE without MAX_PUSH_ID: server push is not allowed",
            )),
            FrameKind::Headers
            | FrameKind::Data
            | FrameKind::CancelPush
            | FrameKind::Settings
            | FrameKind::PushPromise
            | FrameKind::Goaway
            | FrameKind::MaxPushId
            | FrameKind::PriorityUpdateRequest
            | FrameKind::PriorityUpdatePush
            | FrameKind::Http2(_) => Err(ConnectionError::new(
                Code::FRAME_UNEXPECTED,
                format!("unexpected {} {}", kind.name(), self.description()),
            )),
        }
    }

    const fn description(self) -> &'static str {
        match self {
            Self::Header => "before the header section",
            Self::Body => "in the body",
            Self::Tunnel => "in a tunnel",
            Self::AfterTrailers => "after the trailer section",
            Self::Done => "after the end of the message",
        }
    }
}

/// What to do with the payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameAction {
    /// Decode the payload as a field section.
    Section,
    /// Pass the payload to the application.
    Body,
    /// Skip the payload.
    Skip,
}

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

    const EVENTS: [MessageEvent; 7] = [
        MessageEvent::Interim,
        MessageEvent::Header,
        MessageEvent::Connect,
        MessageEvent::Data,
        MessageEvent::Trailers,
        MessageEvent::End,
        MessageEvent::Abort,
    ];

    #[test]
    fn message_state_transition_table() {
        let table: Vec<String> = [
            MessageState::Header,
            MessageState::Body,
            MessageState::Tunnel,
            MessageState::AfterTrailers,
            MessageState::Done,
        ]
        .iter()
        .map(|state| {
            let row: Vec<String> = EVENTS
                .iter()
                .map(|&event| {
                    state
                        .after(event)
                        .map_or("-".into(), |to| format!("{to:?}"))
                })
                .collect();
            format!("{state:?}: {}", row.join(" "))
        })
        .collect();
        assert_eq!(
            table,
            [
                "Header: Header Body Tunnel - - - Done",
                "Body: - - - Body AfterTrailers Done Done",
                "Tunnel: - - - Tunnel - Done Done",
                "AfterTrailers: - - - - - Done Done",
                "Done: - - - - - - Done",
            ]
        );
    }

    #[test]
    fn headers_and_data_are_allowed_only_in_their_states() {
        let allowed = |state: MessageState, kind| state.check_frame(Role::Server, kind).ok();
        let (section, body) = (Some(FrameAction::Section), Some(FrameAction::Body));
        for (state, headers, data) in [
            (MessageState::Header, section, None),
            (MessageState::Body, section, body),
            (MessageState::Tunnel, None, body),
            (MessageState::AfterTrailers, None, None),
            (MessageState::Done, None, None),
        ] {
            assert_eq!(allowed(state, FrameKind::Headers), headers);
            assert_eq!(allowed(state, FrameKind::Data), data);
            let skip = Some(FrameAction::Skip);
            assert_eq!(allowed(state, FrameKind::Unknown(0x21)), skip);
        }
    }

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
