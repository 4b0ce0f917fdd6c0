//! What may happen to a session, and what has happened so far.

use clearway_quic::Role;
use clearway_quic::stream::Directionality;

pub(super) const UNI: Directionality = Directionality::Unidirectional;
pub(super) const BIDI: Directionality = Directionality::Bidirectional;

/// The place of a directionality in an array.
pub(super) fn slot(kind: Directionality) -> usize {
    usize::from(kind == UNI)
}

/// An action of the peer, or of the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    Settings,
    Ask,
    Answer(u16),
    /// WT_CLOSE_SESSION with code 7.
    Close,
    /// Its first bytes.
    ClosePart,
    /// What is missing of it.
    CloseRest,
    Drain,
    /// A capsule of a type that nobody knows.
    Unknown,
    End,
    Reset,
    Stop,
    /// Opens a stream of the session, with a byte.
    Open(Directionality),
    EndStream(Directionality),
    ResetStream(Directionality),
    Datagram,
    Goaway,
    /// The application closes the session with code 9, or gives the request up.
    LocalClose,
    LocalDrain,
    /// The application resets its half of the session's stream.
    LocalReset,
    LocalOpen,
    Accept(Directionality),
    Shutdown,
    /// The transport takes no more data, and takes it again.
    Block,
    Unblock,
}

/// What the peer has done to the session's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum PeerHalf {
    Open,
    WithinCapsule,
    Closed,
    Ended,
    Reset,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seen {
    pub(super) settings: bool,
    pub(super) asked: bool,
    /// The application knows of the session.
    pub(super) told: bool,
    pub(super) answered: Option<u16>,
    pub(super) half: PeerHalf,
    pub(super) stopped: bool,
    pub(super) drained: bool,
    pub(super) goaway: bool,
    pub(super) shutdown: bool,
    pub(super) blocked: bool,
    /// The application has closed or reset the session, or given its request up.
    pub(super) given_up: bool,
    /// Streams of the peer: opened, and whether the peer has ended them.
    pub(super) streams: [Option<bool>; 2],
    pub(super) opened: bool,
    pub(super) accepted: [u8; 2],
    pub(super) datagrams: u8,
    pub(super) delivered: u8,
    pub(super) end: Option<String>,
}

impl Seen {
    pub(super) fn new(role: Role) -> Self {
        Self {
            settings: false,
            asked: false,
            told: role == Role::Client,
            answered: None,
            half: PeerHalf::Open,
            stopped: false,
            drained: false,
            goaway: false,
            shutdown: false,
            blocked: false,
            given_up: false,
            streams: [None; 2],
            opened: false,
            accepted: [0; 2],
            datagrams: 0,
            delivered: 0,
            end: None,
        }
    }

    /// What may happen next, on an endpoint with this role.
    pub(super) fn possible(&self, role: Role) -> Vec<Action> {
        let mut events = Vec::new();
        if !self.settings {
            events.push(Action::Settings);
        } else if !self.goaway {
            events.push(Action::Goaway);
        }
        let may_send = match role {
            Role::Server if !self.asked => {
                events.push(Action::Ask);
                false
            }
            Role::Server => true,
            Role::Client => self.answered.is_some(),
        };
        let may_answer = match role {
            Role::Server => self.told && !self.given_up,
            Role::Client => self.asked && self.half == PeerHalf::Open,
        };
        if may_answer && self.answered.is_none() {
            events.extend([200, 403].map(Action::Answer));
        }
        if role == Role::Client && !self.asked && self.settings && !self.goaway {
            events.push(Action::Ask);
        }
        match self.half {
            PeerHalf::Open if may_send => {
                events.extend([
                    Action::Close,
                    Action::ClosePart,
                    Action::Drain,
                    Action::Unknown,
                ]);
            }
            PeerHalf::WithinCapsule => events.push(Action::CloseRest),
            PeerHalf::Open | PeerHalf::Closed | PeerHalf::Ended | PeerHalf::Reset => {}
        }
        if may_send && !matches!(self.half, PeerHalf::Ended | PeerHalf::Reset) {
            events.extend([Action::End, Action::Reset]);
        }
        if self.asked {
            if !self.stopped {
                events.push(Action::Stop);
            }
            if self.datagrams < 2 {
                events.push(Action::Datagram);
            }
        }
        for kind in [BIDI, UNI] {
            match self.streams[slot(kind)] {
                // A server's stream comes after the request.
                None if role == Role::Server || self.asked => events.push(Action::Open(kind)),
                Some(false) => {
                    events.extend([Action::EndStream(kind), Action::ResetStream(kind)]);
                }
                None | Some(true) => {}
            }
            if self.accepted[slot(kind)] == 0 && self.told {
                events.push(Action::Accept(kind));
            }
        }
        if self.told && self.asked && !self.given_up {
            events.extend([Action::LocalClose, Action::LocalReset]);
            if !self.drained {
                events.push(Action::LocalDrain);
            }
            if !self.opened {
                events.push(Action::LocalOpen);
            }
        }
        if !self.shutdown {
            events.push(Action::Shutdown);
        }
        events.push(if self.blocked {
            Action::Unblock
        } else {
            Action::Block
        });
        events
    }
}
