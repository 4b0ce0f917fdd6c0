//! One request and its response: two halves, each a small machine.

use bytes::Bytes;
use clearway_quic::Role;

use crate::error::{Code, ConnectionError};
use crate::frame::FrameKind;
use crate::head::{Request, Response};
use crate::outlet::Outlet;
use crate::priority::Priority;
use crate::progress::Progress;
use crate::receiving::Receiving;

/// How far one direction is. The peer's message and ours go through the same
/// states (RFC 9114 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// Before the final header section.
    Header,
    /// Content, or trailers.
    Body,
    /// The bytes of a tunnel (RFC 9114 §4.4).
    Tunnel,
    /// After the trailer section.
    Trailed,
    /// Ended, reset, stopped, or of no interest.
    Over,
}

/// What happens to a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
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

impl Half {
    /// The state after a step; `None` if the step is not allowed.
    pub(crate) const fn after(self, step: Step) -> Option<Self> {
        match (self, step) {
            (Self::Header, Step::Interim) => Some(Self::Header),
            (Self::Header, Step::Header) => Some(Self::Body),
            (Self::Header, Step::Connect) => Some(Self::Tunnel),
            (Self::Body, Step::Data) => Some(Self::Body),
            (Self::Tunnel, Step::Data) => Some(Self::Tunnel),
            (Self::Body, Step::Trailers) => Some(Self::Trailed),
            (Self::Body | Self::Tunnel | Self::Trailed, Step::End) => Some(Self::Over),
            (_, Step::Abort) => Some(Self::Over),
            (Self::Header, Step::Data | Step::Trailers | Step::End)
            | (Self::Body, Step::Interim | Step::Header | Step::Connect)
            | (Self::Tunnel, Step::Interim | Step::Header | Step::Connect | Step::Trailers)
            | (
                Self::Trailed,
                Step::Interim | Step::Header | Step::Connect | Step::Data | Step::Trailers,
            )
            | (
                Self::Over,
                Step::Interim
                | Step::Header
                | Step::Connect
                | Step::Data
                | Step::Trailers
                | Step::End,
            ) => None,
        }
    }

    /// What to do with a frame that begins on the stream of a request.
    ///
    /// # Errors
    /// The code for a frame that has no place here.
    pub(crate) fn admit(self, role: Role, kind: FrameKind) -> Result<Treatment, ConnectionError> {
        let has_section = matches!(self, Self::Header | Self::Body);
        let has_data = matches!(self, Self::Body | Self::Tunnel);
        match kind {
            FrameKind::Headers if has_section => Ok(Treatment::Section),
            FrameKind::Data if has_data => Ok(Treatment::Body),
            FrameKind::Unknown(_) => Ok(Treatment::Skip),
            // No push was ever allowed, so any push ID is too large
            // (RFC 9114 §7.2.5).
            FrameKind::PushPromise if role == Role::Client => Err(ConnectionError::new(
                Code::ID_ERROR,
                "PUSH_PROMISE, and pushes were not allowed",
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
                format!("{} has no place {}", kind.name(), self.place()),
            )),
        }
    }

    const fn place(self) -> &'static str {
        match self {
            Self::Header => "before the header section",
            Self::Body => "in a message",
            Self::Tunnel => "in a tunnel",
            Self::Trailed => "after the trailer section",
            Self::Over => "after the end",
        }
    }
}

/// What to do with the payload of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// Gather and decode it.
    Section,
    /// Hand it to the application.
    Body,
    /// Pass over it.
    Skip,
}

/// What a request asks, as far as it changes what a response may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// HEAD: a response without content.
    Head,
    /// CONNECT: a tunnel.
    Tunnel,
    /// Anything else.
    Content,
}

impl Asks {
    pub(crate) fn of(request: &Request) -> Self {
        match &request.method[..] {
            b"HEAD" => Self::Head,
            b"CONNECT" => Self::Tunnel,
            _ => Self::Content,
        }
    }

    /// How a final response moves the half that carries it.
    pub(crate) fn step(self, response: &Response) -> Step {
        let success = (200..300).contains(&response.status);
        if self == Self::Tunnel && success {
            Step::Connect
        } else {
            Step::Header
        }
    }

    /// How many bytes of content a final response has, if that is known, given its
    /// content-length (RFC 9114 §4.1.2, RFC 9110 §6.4.1, §9.3.6).
    pub(crate) fn content(self, response: &Response, length: Option<u64>) -> Option<u64> {
        match self.step(response) {
            Step::Connect => None,
            _ if self == Self::Head || response.is_empty_by_status() => Some(0),
            _ => length,
        }
    }
}

/// Whether a request has a body as far as its header section tells, whose
/// content-length is `length` (RFC 9110 §9.3).
pub(crate) fn has_body(request: &Request, length: Option<u64>) -> bool {
    match length {
        Some(length) => length > 0,
        None => !matches!(
            &request.method[..],
            b"GET" | b"HEAD" | b"DELETE" | b"OPTIONS" | b"TRACE"
        ),
    }
}

/// A request, from the first byte of either end to the last of both.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// The peer's message.
    pub(crate) receiving: Receiving,
    /// Ours.
    pub(crate) sending: Half,
    pub(crate) asks: Asks,
    /// The peer gave up before our response was complete; counted once.
    pub(crate) abandoned: bool,
    /// The peer has all that we sent, its end included.
    pub(crate) delivered: bool,
    /// What we sent was reset, by either end.
    pub(crate) reset: bool,
    /// Interim responses received.
    pub(crate) informational: u8,
    pub(crate) priority: Priority,
    /// PRIORITY_UPDATE has said so, and what the header section says does not count.
    pub(crate) reprioritized: bool,
    /// Content still to be sent, if its length was announced, bytes.
    promised: Option<u64>,
    pub(crate) outlet: Outlet,
    /// Whether the peer takes what we send.
    pub(crate) progress: Progress,
}

impl Exchange {
    pub(crate) fn new(asks: Asks) -> Self {
        Self {
            receiving: Receiving::default(),
            sending: Half::Header,
            asks,
            abandoned: false,
            delivered: false,
            reset: false,
            informational: 0,
            priority: Priority::default(),
            reprioritized: false,
            promised: None,
            outlet: Outlet::default(),
            progress: Progress::default(),
        }
    }

    /// PRIORITY_UPDATE has arrived.
    pub(crate) fn reprioritize(&mut self, priority: Priority) {
        self.priority = priority;
        self.reprioritized = true;
    }

    /// Whether nothing is left to do, also for the application.
    pub(crate) fn is_over(&self) -> bool {
        self.receiving.is_over() && self.sending == Half::Over && self.outlet.is_empty()
    }

    /// Whether all of our message is with the transport, and not with the peer.
    pub(crate) fn is_on_its_way(&self) -> bool {
        self.sending == Half::Over && !self.reset && !self.delivered
    }

    /// Moves the sending half, if that is allowed.
    pub(crate) fn send(&mut self, step: Step) -> bool {
        let next = self.sending.after(step);
        self.sending = next.unwrap_or(self.sending);
        next.is_some()
    }

    /// Abandons what we send.
    pub(crate) fn abort_sending(&mut self) {
        self.send(Step::Abort);
        self.reset = true;
        self.outlet.clear();
    }

    pub(crate) fn promise(&mut self, content: Option<u64>) {
        self.promised = content;
    }

    /// Whether `len` bytes more may be sent.
    pub(crate) fn may_send(&self, len: u64) -> bool {
        self.promised.is_none_or(|promised| len <= promised)
    }

    pub(crate) fn on_sent(&mut self, len: u64) {
        if let Some(promised) = &mut self.promised {
            *promised = promised.saturating_sub(len);
        }
    }

    /// Whether our content may end here.
    pub(crate) fn is_content_sent(&self) -> bool {
        matches!(self.promised, Some(0) | None)
    }

    /// Bytes held for it.
    pub(crate) fn memory(&self) -> usize {
        self.receiving.memory().saturating_add(self.outlet.memory())
    }
}

/// What reading a body gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// A piece, as it lay in the transport's buffer; never empty.
    Data(Bytes),
    /// The trailer section; the end follows.
    Trailers(Vec<crate::qpack::Field>),
    /// There is no more.
    End,
    /// Nothing has arrived; [`Event::Readable`](crate::Event::Readable) follows.
    Blocked,
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Step; 7] = [
        Step::Interim,
        Step::Header,
        Step::Connect,
        Step::Data,
        Step::Trailers,
        Step::End,
        Step::Abort,
    ];

    #[test]
    fn the_whole_table() {
        let table: Vec<String> = [
            Half::Header,
            Half::Body,
            Half::Tunnel,
            Half::Trailed,
            Half::Over,
        ]
        .iter()
        .map(|half| {
            let row: Vec<String> = STEPS
                .iter()
                .map(|&step| half.after(step).map_or("-".into(), |to| format!("{to:?}")))
                .collect();
            format!("{half:?}: {}", row.join(" "))
        })
        .collect();
        assert_eq!(
            table,
            [
                "Header: Header Body Tunnel - - - Over",
                "Body: - - - Body Trailed Over Over",
                "Tunnel: - - - Tunnel - Over Over",
                "Trailed: - - - - - Over Over",
                "Over: - - - - - - Over",
            ]
        );
    }

    #[test]
    fn frames_have_their_places() {
        let admitted = |half: Half, kind| half.admit(Role::Server, kind).ok();
        let (section, body) = (Some(Treatment::Section), Some(Treatment::Body));
        for (half, headers, data) in [
            (Half::Header, section, None),
            (Half::Body, section, body),
            (Half::Tunnel, None, body),
            (Half::Trailed, None, None),
            (Half::Over, None, None),
        ] {
            assert_eq!(admitted(half, FrameKind::Headers), headers);
            assert_eq!(admitted(half, FrameKind::Data), data);
            let skip = Some(Treatment::Skip);
            assert_eq!(admitted(half, FrameKind::Unknown(0x21)), skip);
        }
    }

    #[test]
    fn content_of_responses() {
        let ok = Response::new(200);
        assert_eq!(Asks::Content.content(&ok, Some(5)), Some(5));
        assert_eq!(Asks::Content.content(&ok, None), None);
        assert_eq!(Asks::Head.content(&ok, Some(5)), Some(0));
        assert_eq!(Asks::Tunnel.content(&ok, Some(5)), None);
        for status in [204, 304] {
            let empty = Response::new(status);
            assert_eq!(Asks::Content.content(&empty, Some(5)), Some(0));
        }
        let refused = Response::new(403);
        assert_eq!(Asks::Tunnel.content(&refused, Some(5)), Some(5));
    }

    #[test]
    fn content_is_counted_both_ways() {
        let mut exchange = Exchange::new(Asks::Content);
        let receiving = &mut exchange.receiving;
        receiving.expect(Some(10));
        assert!(receiving.on_data(6).is_ok());
        assert!(receiving.on_content_end().is_err());
        assert!(receiving.on_data(5).is_err());
        assert!(receiving.on_data(4).is_ok());
        assert!(receiving.on_content_end().is_ok());
        exchange.promise(Some(3));
        assert!(exchange.may_send(3) && !exchange.may_send(4));
        exchange.on_sent(2);
        assert!(!exchange.is_content_sent());
        exchange.on_sent(1);
        assert!(exchange.is_content_sent());
    }
}
