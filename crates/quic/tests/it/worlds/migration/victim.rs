//! One end of a connection, driven by hand; its peer forges what it is to hear.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_links::Direction;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{Connection, Forgery, RecvMeta};
use clearway_quic::event::{Observer, TraceEvent};
use clearway_quic::testing::{Addresses, ChallengeData, PathRole, ValidationState};
use clearway_quic::wire::{Frame, Frames, PacketKind};
use clearway_quic::{Instant, Role};

use crate::hostile::pair::bytes;
use clearway_testing::explore::fingerprint_of;
use clearway_testing::{Setup, World, path};

/// Steps without an end mean a busy loop.
const MAX_STEPS: usize = 1000;

/// Bytes that pay for an answer of full size.
const FULL: usize = 1200;

/// What a transmission held.
#[derive(Debug, Default)]
struct Sent {
    challenges: Vec<ChallengeData>,
    /// A packet held more than probing frames.
    data: bool,
}

#[derive(Clone, Debug, Default)]
struct SentFrames(Arc<Mutex<Sent>>);

impl Observer for SentFrames {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::PacketSent { payload, .. } = *event {
            let mut sent = self.0.lock().expect("one thread");
            for frame in Frames::new(payload).map_while(Result::ok) {
                sent.data |= !frame.is_probing();
                if let Frame::PathChallenge(data) = frame {
                    sent.challenges.push(data);
                }
            }
        }
    }
}

/// A connection and what was sent on each of its paths.
pub(super) struct Victim {
    pub(super) connection: Connection,
    peer: Connection,
    now: Instant,
    watch: SentFrames,
    letters: fn(&Addresses) -> char,
    /// By letter: challenges that may still be answered, oldest first.
    challenges: BTreeMap<char, Vec<ChallengeData>>,
    /// By letter: bytes received, bytes sent.
    bytes: BTreeMap<char, (usize, usize)>,
    /// Where challenges were answered: no limit there.
    answered: Vec<char>,
    /// A packet with data that arrives when others have overtaken it.
    late: Vec<u8>,
    /// A packet that has arrived.
    old: Vec<u8>,
    next_cid: u64,
    buffer: Vec<u8>,
}

impl Victim {
    /// After the handshake, with more to send than will ever be acknowledged.
    pub(super) fn new(role: Role, setup: Setup, letters: fn(&Addresses) -> char) -> Self {
        let mut world = World::new(setup, path("rate=1G delay=1ms", 1), 1);
        // What a preferred address hears, and what it answers, is for the events.
        let server = world.server.address;
        world.filter = Some(Box::new(move |direction, packet| {
            direction == Direction::Down || packet.dst == server
        }));
        world.handshake();
        world.run_for(Duration::from_millis(10));
        let now = world.now;
        let client = world.client.connections.into_values().next();
        let server = world.server.connections.into_values().next();
        let (client, server) = (client.expect("connects"), server.expect("accepts"));
        let (mut connection, mut peer) = match role {
            Role::Client => (client, server),
            Role::Server => (server, client),
        };
        let watch = SentFrames::default();
        connection.set_observer(Box::new(watch.clone()));
        let id = connection.open(clearway_quic::stream::Directionality::Unidirectional);
        let id = id.expect("credit");
        connection.write(id, &[7; 40_000]).expect("room");
        let late = forged(&mut peer, now, &[0x01]);
        let old = forged(&mut peer, now, &[0x01]);
        let mut victim = Self {
            connection,
            peer,
            now,
            watch,
            letters,
            challenges: BTreeMap::new(),
            bytes: BTreeMap::new(),
            answered: vec!['A'],
            late,
            old: old.clone(),
            next_cid: 8,
            buffer: vec![0; 65_536],
        };
        let home = victim.connection.paths().active().addresses();
        victim.receive(&home, old);
        victim.flush();
        victim
    }

    pub(super) fn is_open(&self) -> bool {
        self.connection.error().is_none()
    }

    pub(super) fn now(&self) -> Instant {
        self.now
    }

    /// A packet with these frames arrives.
    pub(super) fn hear(&mut self, from: &Addresses, payload: &[u8]) {
        let packet = forged(&mut self.peer, self.now, payload);
        self.receive(from, packet);
    }

    /// A packet arrives that was sent before all others.
    pub(super) fn hear_late(&mut self, from: &Addresses) {
        self.receive(from, self.late.clone());
    }

    /// A copy of a packet arrives that came long ago.
    pub(super) fn hear_copy(&mut self, from: &Addresses) {
        self.receive(from, self.old.clone());
    }

    fn receive(&mut self, from: &Addresses, mut packet: Vec<u8>) {
        let letter = (self.letters)(from);
        self.bytes.entry(letter).or_default().0 += packet.len();
        let from = RecvMeta {
            remote: from.remote,
            local_ip: from.local_ip,
            ecn: ReceivedEcn::NotEct,
        };
        self.connection.receive(self.now, from, &mut packet);
    }

    /// Whether a challenge to `letter` may still be answered.
    pub(super) fn was_challenged(&self, letter: char) -> bool {
        self.challenges.get(&letter).is_some_and(|c| !c.is_empty())
    }

    /// The newest challenge that went to `letter` is answered from `from`.
    pub(super) fn answer(&mut self, letter: char, from: &Addresses) {
        let sent = self.challenges.entry(letter).or_default();
        let data = sent.pop().expect("a challenge");
        self.answered.push(letter);
        self.hear(from, &bytes(&Frame::PathResponse(data)));
    }

    /// A path is challenged, in a datagram of full size.
    pub(super) fn challenge(&mut self, from: &Addresses) {
        let mut frames = bytes(&Frame::PathChallenge([9; 8]));
        frames.resize(FULL, 0);
        self.hear(from, &frames);
    }

    /// All connection IDs of the peer but a fresh one are retired.
    pub(super) fn replace_cids(&mut self, from: &Addresses) {
        let sequence = self.next_cid;
        self.next_cid += 1;
        let (mut cid, mut token) = ([0xee; 8], [0xdd; 16]);
        cid[..8].copy_from_slice(&(sequence << 8).to_be_bytes());
        token[..8].copy_from_slice(&sequence.to_be_bytes());
        let frame = bytes(&Frame::NewConnectionId {
            sequence,
            retire_prior_to: sequence,
            cid: clearway_quic::cid::ConnectionId::new(&cid).expect("eight bytes"),
            reset_token: clearway_quic::cid::ResetToken(token),
        });
        self.hear(from, &frame);
    }

    /// Time passes; every timer is served when it is due.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        for _ in 0..MAX_STEPS {
            let next = self.connection.next_timeout();
            let Some(at) = next.filter(|at| *at <= end) else {
                self.now = end;
                return;
            };
            self.now = self.now.max(at);
            self.connection.handle_timeout(self.now);
            self.flush();
        }
        panic!("busy: {:?}", self.connection.next_timeout());
    }

    /// Sends all that may leave. On a path of the preferred address that is nothing
    /// but probes before somebody answered there.
    pub(super) fn flush(&mut self) {
        for _ in 0..MAX_STEPS {
            let Some(sent) = self.connection.transmit(self.now, &mut self.buffer, 10) else {
                while self.connection.poll_event().is_some() {}
                while self.connection.poll_endpoint_event().is_some() {}
                return;
            };
            let to = Addresses {
                remote: sent.remote,
                local_ip: sent.local_ip,
            };
            let letter = (self.letters)(&to);
            self.bytes.entry(letter).or_default().1 += sent.len;
            let what = core::mem::take(&mut *self.watch.0.lock().expect("one thread"));
            let open = self.is_open();
            assert!(
                letter != 'P' || !what.data || !open || self.answered.contains(&'P'),
                "data on a path of the preferred address that nobody answered on"
            );
            let challenges = self.challenges.entry(letter).or_default();
            challenges.extend(what.challenges);
            let more = challenges.len().saturating_sub(2);
            challenges.drain(..more);
        }
        panic!("it never stops sending");
    }

    pub(super) fn check(&self, limited: bool) -> Result<(), String> {
        self.connection.check_invariants();
        if limited {
            for (letter, (received, sent)) in &self.bytes {
                if !self.answered.contains(letter) && *sent > 3 * received {
                    return Err(format!("{sent} bytes sent to {letter} for {received}"));
                }
            }
        }
        match self.connection.next_timeout() {
            None if self.connection.is_drained() => Ok(()),
            None => Err("no timer is armed".into()),
            Some(_) => Ok(()),
        }
    }

    pub(super) fn fingerprint(&self) -> Vec<u8> {
        let cids = self.connection.remote_cids();
        let round = |at: Option<Instant>| at.map(|at| (at - self.now).as_millis() / 250);
        let paths: Vec<_> = self
            .connection
            .paths()
            .roles()
            .map(|(path, place)| {
                let credit = path.amplification().available();
                let credit = [64, 1200, u64::MAX]
                    .iter()
                    .position(|&least| credit < least);
                let running = match path.validation().state() {
                    ValidationState::Running { address_validated } => Some(address_validated),
                    ValidationState::Idle
                    | ValidationState::Validated
                    | ValidationState::Failed(_) => None,
                };
                let letter = (self.letters)(&path.addresses());
                let deadline = round(path.validation().deadline());
                let silent = cids.cid(path.id()).is_none();
                ((letter, place, silent), (credit, running, deadline))
            })
            .collect();
        let challenges: Vec<_> = self
            .challenges
            .iter()
            .map(|(at, c)| (at, c.len()))
            .collect();
        let error = self.connection.error().map(ToString::to_string);
        fingerprint_of(&(paths, challenges, cids.unused(), error))
    }

    /// Where data goes.
    pub(super) fn active(&self) -> char {
        (self.letters)(&self.connection.paths().active().addresses())
    }

    /// Whether a path stands there, and waits to become the active one.
    pub(super) fn joins(&self, letter: char) -> bool {
        let mut places = self.connection.paths().roles();
        places.any(|(path, place)| {
            place == PathRole::Candidate && (self.letters)(&path.addresses()) == letter
        })
    }
}

fn forged(peer: &mut Connection, now: Instant, payload: &[u8]) -> Vec<u8> {
    let forgery = Forgery::new(PacketKind::OneRtt, payload);
    peer.forge(now, &forgery).expect("keys")
}

pub(super) fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}
