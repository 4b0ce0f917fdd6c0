//! A WebTransport session, with everything that may happen to it in every order: SETTINGS, the request
//! and its answer, capsules whole and in part, ends and resets of its stream, streams and datagrams
//! that come before it, with it and after it, what the application calls, GOAWAY, and a transport
//! that takes nothing for a while (draft-ietf-webtrans-http3 §4, §6, RFC 9297 §2, §3).

use std::sync::Arc;

use clearway_http3::testing::MemoryTransport;
use clearway_http3::webtransport::{CloseSession, SessionEnd};
use clearway_http3::{Code, Config, Connection, Event, Request, Response, datagram};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::{Instant, Role};

use super::session_actions::{Action, BIDI, PeerHalf, Seen, UNI, slot};
use super::state_of;
use crate::common::Setup;
use crate::hostile::hostile_peer::{DATA, SETTINGS, frame, headers, varints};
use clearway_testing::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};

const CLOSE: u64 = 0x2843;
const DRAIN: u64 = 0x78ae;

/// The code with which the peer resets and stops.
const RESET: Code = Code(0x0123);

struct SessionWorld {
    http: Connection,
    quic: MemoryTransport,
    role: Role,
    session: StreamId,
    own: Option<StreamId>,
    seen: Seen,
    failure: Option<String>,
}

fn capsule(kind: u64, value: &[u8]) -> Vec<u8> {
    frame(
        DATA,
        &[varints(&[kind, value.len() as u64]), value.to_vec()].concat(),
    )
}

fn close() -> Vec<u8> {
    capsule(CLOSE, &[0, 0, 0, 7, b'x'])
}

impl SessionWorld {
    fn new(role: Role) -> Self {
        let config = Config {
            grease: false,
            ..Setup::for_sessions().server
        };
        let mut http = Connection::new(role, Arc::new(config), 1);
        let mut quic = MemoryTransport::new(role);
        http.start(&mut quic);
        Self {
            http,
            quic,
            role,
            session: StreamId::new(Role::Client, BIDI, 0),
            own: None,
            seen: Seen::new(role),
            failure: None,
        }
    }

    /// The peer's stream of this kind: a client's request stream is the first of its kind, and the
    /// control stream the first of the other.
    fn stream(&self, kind: Directionality) -> StreamId {
        let first = kind == UNI || self.role == Role::Server;
        self.quic.peer_stream(kind, first.into())
    }

    fn peer(&mut self, action: Action) {
        let (session, seen) = (self.session, &mut self.seen);
        match action {
            Action::Settings => {
                seen.settings = true;
                let pairs = varints(&[0x08, 1, 0x33, 1, 0x2c7c_f000, 1]);
                let control = self.quic.peer_stream(UNI, 0);
                let bytes = [varints(&[0]), frame(SETTINGS, &pairs)].concat();
                self.quic.feed(control, &bytes);
            }
            Action::Ask => {
                seen.asked = true;
                let request = headers(&[
                    (":method", "CONNECT"),
                    (":protocol", "webtransport"),
                    (":scheme", "https"),
                    (":authority", "localhost"),
                    (":path", "/"),
                ]);
                self.quic.feed(session, &request);
            }
            Action::Answer(status) => {
                seen.answered = Some(status);
                let line = status.to_string();
                self.quic.feed(session, &headers(&[(":status", &line)]));
            }
            Action::Close => {
                seen.half = PeerHalf::Closed;
                self.quic.feed(session, &close());
            }
            Action::ClosePart => {
                seen.half = PeerHalf::WithinCapsule;
                self.quic.feed(session, &close()[..6]);
            }
            Action::CloseRest => {
                seen.half = PeerHalf::Closed;
                self.quic.feed(session, &close()[6..]);
            }
            Action::Drain => self.quic.feed(session, &capsule(DRAIN, &[])),
            Action::Unknown => self.quic.feed(session, &capsule(0x21, b"skipped")),
            Action::End => {
                seen.half = PeerHalf::Ended;
                self.quic.feed_end(session);
            }
            Action::Reset => {
                seen.half = PeerHalf::Reset;
                self.quic.feed_reset(session, RESET.0);
            }
            Action::Stop => {
                seen.stopped = true;
                self.quic.feed_stop(session, RESET.0);
            }
            Action::Open(kind) => {
                seen.streams[slot(kind)] = Some(false);
                let header = varints(&[if kind == UNI { 0x54 } else { 0x41 }, session.as_u64()]);
                let id = self.stream(kind);
                self.quic.feed(id, &[header, b"x".to_vec()].concat());
            }
            Action::EndStream(kind) | Action::ResetStream(kind) => {
                seen.streams[slot(kind)] = Some(true);
                let id = self.stream(kind);
                if matches!(action, Action::EndStream(_)) {
                    self.quic.feed_end(id);
                } else {
                    self.quic.feed_reset(id, RESET.0);
                }
            }
            Action::Datagram => {
                seen.datagrams += 1;
                self.quic.feed_datagram(&datagram::encode(session, b"d"));
            }
            Action::Goaway => {
                seen.goaway = true;
                // A server will process none; a client allows no push.
                let control = self.quic.peer_stream(UNI, 0);
                self.quic.feed(control, &frame(7, &[0]));
            }
            _ => self.application(action),
        }
    }

    fn application(&mut self, action: Action) {
        let Self {
            http,
            quic,
            seen,
            session,
            ..
        } = self;
        match action {
            Action::LocalClose => {
                seen.given_up = true;
                http.close_session(quic, *session, 9, "");
            }
            Action::LocalDrain => http.drain_session(quic, *session),
            Action::LocalReset => {
                seen.given_up = true;
                http.reset(quic, *session, Code::INTERNAL_ERROR);
            }
            Action::LocalOpen => {
                seen.opened = true;
                self.own = http
                    .open_session_stream(quic, *session, UNI)
                    .map(|(id, _)| id);
            }
            Action::Accept(kind) => {
                if http.accept_session_stream(*session, kind).is_some() {
                    seen.accepted[slot(kind)] += 1;
                }
            }
            Action::Shutdown => {
                seen.shutdown = true;
                http.shutdown(quic);
                http.shutdown(quic);
            }
            Action::Block => {
                seen.blocked = true;
                quic.max_write = 0;
            }
            Action::Unblock => {
                seen.blocked = false;
                quic.unblock();
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn settle(&mut self) {
        while let Some(event) = self.quic.poll_event() {
            self.http.on_quic_event(&mut self.quic, &event);
        }
        self.drain_events();
        self.http.flush(Instant::ZERO, &mut self.quic);
        self.drain_events();
    }

    fn drain_events(&mut self) {
        while let Some(event) = self.http.poll_event() {
            self.on_event(&event);
        }
    }

    fn on_event(&mut self, event: &Event) {
        let mut wrong = |what: &str| self.failure = Some(format!("{what}: {event:?}"));
        let seen = &mut self.seen;
        match event {
            Event::Request { .. } => {
                if seen.told || !seen.settings {
                    wrong("told twice, or before SETTINGS");
                }
                seen.told = true;
            }
            Event::SessionStream { .. } | Event::SessionDraining(_)
                if !seen.told || seen.answered != Some(200) || seen.end.is_some() =>
            {
                wrong("outside of the session");
            }
            Event::SessionEnded { end, .. } => {
                if seen.end.is_some() {
                    wrong("ended twice");
                }
                let expected = match end {
                    SessionEnd::Local => seen.given_up,
                    SessionEnd::Closed(close) if *close == CloseSession::new(7, "x") => {
                        seen.half == PeerHalf::Closed || seen.half == PeerHalf::Ended
                    }
                    SessionEnd::Closed(_) => seen.half == PeerHalf::Ended,
                    SessionEnd::Reset(code) => *code == RESET && seen.half == PeerHalf::Reset,
                    SessionEnd::Failed(_) => seen.half == PeerHalf::Ended,
                    SessionEnd::Refused => seen.answered != Some(200),
                };
                if !expected {
                    wrong("unexpected end");
                }
                seen.end = Some(format!("{end:?}"));
            }
            Event::DatagramReceived => {
                while let Some((id, _)) = self.http.recv_datagram(&mut self.quic) {
                    if !seen.told || id != self.session {
                        self.failure = Some("datagram for nobody".into());
                    }
                    seen.delivered += 1;
                }
            }
            Event::Closed(_) => wrong("closed"),
            _ => {}
        }
    }
}

impl World for SessionWorld {
    type Event = Action;

    fn events(&self) -> Vec<Action> {
        self.seen.possible(self.role)
    }

    fn apply(&mut self, event: &Action) {
        match (*event, self.role) {
            (Action::Ask, Role::Client) => {
                let request = Request {
                    protocol: "webtransport".into(),
                    path: "/".into(),
                    scheme: "https".into(),
                    ..Request::connect("localhost")
                };
                let asked = self.http.request(&mut self.quic, &request, false);
                self.seen.asked = asked == Ok(self.session);
            }
            (Action::Answer(status), Role::Server) => {
                self.seen.answered = Some(status);
                let response = Response::new(status);
                let end = status != 200;
                // It fails if the peer has stopped or reset the request.
                let _ = self
                    .http
                    .respond(&mut self.quic, self.session, &response, end);
            }
            (Action::LocalDrain, _) => {
                self.seen.drained = true;
                self.application(*event);
            }
            (action, _) => self.peer(action),
        }
        self.settle();
    }

    fn check(&self) -> Result<(), String> {
        if let Some(wrong) = &self.failure {
            return Err(wrong.clone());
        }
        if self.quic.closed.is_some() {
            return Err(format!("closed with {:?}", self.quic.closed));
        }
        let seen = &self.seen;
        let open = self.http.is_session_open(self.session);
        let accepted = seen.answered == Some(200) && seen.told;
        if open && (!accepted || seen.end.is_some()) {
            return Err("open, but not accepted, or over".into());
        }
        // Whatever came while the session was open has been told.
        if open && seen.datagrams != seen.delivered {
            return Err("a datagram of an open session was lost".into());
        }
        let over = seen.end.is_some() || accepted && !open;
        for kind in [BIDI, UNI] {
            let (reset, stop) = self.quic.reset_and_stop_codes(self.stream(kind));
            let refused = matches!(seen.answered, Some(403));
            match seen.streams[slot(kind)] {
                Some(false) if over || refused => {
                    let both = stop.is_some() && (kind == UNI || reset.is_some());
                    if !both {
                        return Err(format!("{kind:?} stream is open after the session"));
                    }
                }
                _ if open && (reset.is_some() || stop.is_some()) => {
                    return Err(format!("{kind:?} stream of an open session was rejected"));
                }
                _ => {}
            }
        }
        if let Some(own) = self.own
            && over
            && self.quic.reset_and_stop_codes(own).0.is_none()
        {
            return Err("a stream of ours is open after the session".into());
        }
        // Nothing is left of a session of which both ends have let go.
        let let_go = seen.given_up || seen.end.is_some();
        let peer_done = matches!(seen.half, PeerHalf::Ended | PeerHalf::Reset);
        if let_go && peer_done && !seen.blocked && self.http.open_requests() != 0 {
            return Err(format!("{} requests are left", self.http.open_requests()));
        }
        if self.http.memory() > 24 << 10 {
            return Err(format!("{} bytes of memory", self.http.memory()));
        }
        Ok(())
    }

    fn fingerprint(&self) -> Vec<u8> {
        fingerprint_of(&(
            state_of(&self.http),
            self.quic.fingerprint(),
            &self.seen,
            self.own,
        ))
    }
}

fn walk(role: Role, name: &str) {
    let depth = if cfg!(debug_assertions) { 5 } else { 6 };
    explore_by_replay(name, || SessionWorld::new(role), Bounds::to_depth(depth)).expect_clean();
}

#[test]
fn session_on_a_server_survives_everything_in_every_order() {
    walk(Role::Server, "session on a server");
}

#[test]
fn session_on_a_client_survives_everything_in_every_order() {
    walk(Role::Client, "session on a client");
}
