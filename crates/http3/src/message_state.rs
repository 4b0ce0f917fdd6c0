//! The state machine of one message, a request or a response (RFC 9114 §4.1).

use clearway_quic::Role;

use crate::error::{Code, ConnectionError};
use crate::frame::FrameKind;

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
}
