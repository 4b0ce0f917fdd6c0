//! The states of the handshake and of the connection (RFC 9000 §10, RFC 9001 §4.1).

use crate::Instant;
use crate::error::{Code, ConnectionError, TransportError};

/// The state of the handshake (RFC 9001 §4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum HandshakeState {
    /// TLS has not finished.
    Running,
    /// TLS has finished on this end (RFC 9001 §4.1.1).
    Complete,
    /// Both ends know that it is complete (RFC 9001 §4.1.2).
    Confirmed,
}

/// The state of the connection (RFC 9000 §10.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LifecycleState {
    /// Packets are sent and received.
    Open,
    /// This end closed the connection. Packets are answered with CONNECTION_CLOSE at a
    /// limited rate.
    Closing(Box<Closing>),
    /// The peer closed or reset the connection. Nothing is sent while packets may still
    /// arrive.
    Draining {
        /// When the state ends.
        until: Instant,
    },
    /// The connection is over, and the endpoint may forget it.
    Drained,
}

/// The closing state (RFC 9000 §10.2.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Closing {
    /// The reason that the peer is told.
    pub(crate) close: CloseReason,
    /// When the state ends: three PTOs after it began.
    pub(crate) until: Instant,
    /// Whether CONNECTION_CLOSE is due.
    pub(crate) due: bool,
    /// Packets received since the last CONNECTION_CLOSE.
    pub(crate) received: u32,
    /// Packets to receive before the next one; doubles with each.
    pub(crate) every: u32,
}

/// The reason in our CONNECTION_CLOSE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    /// A transport error (frame type 0x1c).
    Transport(TransportError),
    /// The application's code and reason (frame type 0x1d).
    Application {
        /// The application's error code.
        code: u64,
        /// The reason phrase.
        reason: Vec<u8>,
    },
}

impl CloseReason {
    /// Returns the error that the local application gets.
    pub(crate) fn as_error(&self) -> ConnectionError {
        match self {
            Self::Transport(error) => ConnectionError::Transport(error.clone()),
            Self::Application { code, .. } => ConnectionError::LocalApplication { code: *code },
        }
    }

    /// Returns the reason to send before the handshake is complete, when anyone could read
    /// an application's code (RFC 9000 §10.2.3).
    pub(crate) fn without_application(&self) -> TransportError {
        match self {
            Self::Transport(error) => error.clone(),
            Self::Application { .. } => TransportError::new(Code::APPLICATION_ERROR, ""),
        }
    }
}

impl Closing {
    pub(crate) fn new(close: CloseReason, until: Instant) -> Box<Self> {
        Box::new(Self {
            close,
            until,
            due: true,
            received: 0,
            every: 1,
        })
    }

    /// Handles a received packet: the 1st, 2nd, 4th, 8th… is answered (RFC 9000 §10.2.1).
    pub(crate) fn on_packet(&mut self) {
        self.received = self.received.saturating_add(1);
        if self.received >= self.every {
            self.received = 0;
            self.every = self.every.saturating_mul(2);
            self.due = true;
        }
    }
}

impl LifecycleState {
    /// Returns whether packets are sent and received.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Open)
    }

    /// Returns when the state ends by itself.
    pub(crate) fn until(&self) -> Option<Instant> {
        match self {
            Self::Closing(closing) => Some(closing.until),
            Self::Draining { until } => Some(*until),
            Self::Open | Self::Drained => None,
        }
    }

    /// Moves to the next state. Returns false, and changes nothing, if that would be a step
    /// back.
    ///
    /// ```text
    /// Open -> Closing | Draining | Drained     Closing -> Draining | Drained
    /// Draining -> Drained                      Drained is terminal
    /// ```
    pub(crate) fn advance(&mut self, next: Self) -> bool {
        let legal = next.rank() > self.rank();
        if legal {
            *self = next;
        }
        legal
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Open => 0,
            Self::Closing(_) => 1,
            Self::Draining { .. } => 2,
            Self::Drained => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_from_peer_is_escaped_and_truncated() {
        let reason = |reason: &[u8]| {
            let error = ConnectionError::PeerApplication {
                code: 7,
                reason: reason.to_vec(),
            };
            error.to_string()
        };
        let prefix = "closed by the peer's application with code 7: ";
        let shown = reason(b"it's \x1b[2J\n\xe2\x80\xae\x9b");
        assert_eq!(
            shown.strip_prefix(prefix).unwrap(),
            "it's \\u{1b}[2J\\n\\u{202e}\u{fffd}"
        );
        let long = reason(&[b'x'; 60_000]);
        assert!(
            long.len() < 400 && long.ends_with("x… (59744 more characters)"),
            "{long}"
        );
        let error = TransportError::new(Code::NO_ERROR, "\u{9b}31m".to_owned());
        let shown = ConnectionError::PeerTransport(error).to_string();
        assert!(shown.contains("\\u{9b}31m"), "{shown}");
    }

    fn states() -> [LifecycleState; 4] {
        let close = CloseReason::Application {
            code: 7,
            reason: Vec::new(),
        };
        [
            LifecycleState::Open,
            LifecycleState::Closing(Closing::new(close, Instant::ZERO)),
            LifecycleState::Draining {
                until: Instant::ZERO,
            },
            LifecycleState::Drained,
        ]
    }

    #[test]
    fn lifecycle_state_only_moves_forward() {
        for (i, from) in states().into_iter().enumerate() {
            for (j, to) in states().into_iter().enumerate() {
                let mut life = from.clone();
                assert_eq!(life.advance(to.clone()), j > i, "{from:?} -> {to:?}");
                assert_eq!(life, if j > i { to } else { from.clone() });
            }
        }
    }

    #[test]
    fn closing_state_answers_at_a_limited_rate() {
        let close = CloseReason::Transport(TransportError::new(Code::NO_ERROR, ""));
        let mut closing = Closing::new(close, Instant::ZERO);
        let mut answers = 0;
        for _ in 0..1000 {
            closing.due = false;
            closing.on_packet();
            answers += u32::from(closing.due);
        }
        assert_eq!(answers, 9);
    }

    #[test]
    fn application_code_is_not_sent_before_handshake_completes() {
        let close = CloseReason::Application {
            code: 7,
            reason: b"secret".to_vec(),
        };
        let said = close.without_application();
        assert_eq!(said.code, Code::APPLICATION_ERROR);
        assert!(said.reason.is_empty());
    }
}
