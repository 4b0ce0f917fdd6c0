//! Packets of every size: whatever the credit, the buffer and the connection IDs, a packet
//! fits or is not sent.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clearway_recovery::congestion::Algorithm;

use super::*;
use crate::Role;
use crate::ack::ReceivedEcn;
use crate::cid::generator::RandomGenerator;
use crate::connection::ack_frequency::AckFrequencyRequest;
use crate::connection::space::SPACES;
use crate::connection::state::HandshakeState;
use crate::connection::{Config, ConnectOptions, ConnectionError, RecvMeta};
use crate::crypto::provider::Algorithms;
use crate::crypto::testing::configs;
use crate::crypto::{ReplayFilter, ResetKey, TokenKey};
use crate::endpoint::{DatagramEvent, Endpoint, EndpointConfig, Limits, ServerConfig};
use crate::error::{Code, TransportError};
use crate::event::{Observer, TraceEvent};
use crate::path::amplification::Amplification;
use crate::rng::Rng;
use crate::stream::Directionality;
use crate::wire::{MIN_MTU, PacketKind, PartialHeader};

/// Largest credit and buffer tried, bytes.
const MOST: usize = 1500;

/// Lengths of connection IDs tried at each end.
const CID_LENS: [usize; 4] = [0, 1, 8, 20];

/// The state of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// One datagram of the client's ClientHello has left.
    Initial,
    /// The server's first datagrams have left.
    Handshake,
    /// Both ends know that it is complete.
    Confirmed,
}

const STAGES: [Stage; 3] = [Stage::Initial, Stage::Handshake, Stage::Confirmed];

struct Pair {
    now: Instant,
    client: Connection,
    server: Connection,
    /// Lengths of their connection IDs.
    cid_lens: (usize, usize),
}

fn from(role: Role) -> RecvMeta {
    let address = match role {
        Role::Client => ([10, 0, 0, 1], 5000),
        Role::Server => ([10, 0, 0, 2], 443),
    };
    RecvMeta {
        remote: address.into(),
        local_ip: None,
        ecn: ReceivedEcn::Ce,
    }
}

/// An endpoint with connection IDs of `cid_len` bytes and a congestion window of `window` bytes.
fn endpoint(cid_len: usize, window: u64, server: Option<ServerConfig>, rng: &mut Rng) -> Endpoint {
    let transport = Config {
        controller: Algorithm::Fixed(window).into(),
        mtu_discovery: false,
        ..Config::default()
    };
    let config = EndpointConfig {
        transport: Arc::new(transport),
        server,
        reset_key: Arc::new(ResetKey::new(&rng.array())),
        generator: Arc::new(move || Box::new(RandomGenerator::new(cid_len))),
    };
    Endpoint::new(config, rng.child("endpoint"))
}

impl Pair {
    fn new(client_cid: usize, server_cid: usize, stage: Stage) -> Self {
        Self::with_window(client_cid, server_cid, stage, 1 << 30)
    }

    fn with_window(client_cid: usize, server_cid: usize, stage: Stage, window: u64) -> Self {
        let mut rng = Rng::from_seed([1; 32]);
        let (crypto, server_crypto) = configs(&Algorithms::default());
        let server = ServerConfig {
            crypto: server_crypto,
            token_key: Arc::new(TokenKey::new(&[2; 32])),
            replay: Arc::new(ReplayFilter::new(16).into()),
            always_retry: false,
            limits: Limits::default(),
            preferred_address: None,
        };
        let mut dialer = endpoint(client_cid, window, None, &mut rng);
        let mut listener = endpoint(server_cid, window, Some(server), &mut rng);
        let now = Instant::from_nanos(1);
        let connect = ConnectOptions {
            remote: from(Role::Server).remote,
            local_ip: None,
            server_name: "localhost".try_into().expect("a name"),
            crypto,
            sessions: None,
        };
        let (_, mut client) = dialer.connect(now, connect).expect("connects");
        let mut flight = datagrams(&mut client, now).into_iter();
        let mut first = flight.next().expect("a first datagram");
        let client_address = from(Role::Client);
        let arrival = listener.receive(now, 0, client_address, &first, &mut Vec::new());
        let DatagramEvent::Incoming(incoming) = arrival else {
            panic!("{arrival:?}");
        };
        let (_, mut server) = listener.accept(now, *incoming).expect("accepts");
        server.receive(now, client_address, &mut first);
        let mut pair = Self {
            now,
            client,
            server,
            cid_lens: (client_cid, server_cid),
        };
        if stage != Stage::Initial {
            for mut datagram in flight {
                pair.server.receive(now, client_address, &mut datagram);
            }
        }
        if stage == Stage::Confirmed {
            while !(pair.client.is_confirmed() && pair.server.is_confirmed()) {
                pair.exchange(Role::Server);
                pair.exchange(Role::Client);
            }
        }
        pair
    }

    fn end(&mut self, role: Role) -> &mut Connection {
        match role {
            Role::Client => &mut self.client,
            Role::Server => &mut self.server,
        }
    }

    /// One end sends all it has to the other.
    fn exchange(&mut self, sender: Role) {
        self.now += core::time::Duration::from_millis(1);
        let now = self.now;
        for datagram in datagrams(self.end(sender), now) {
            self.deliver(sender, datagram);
        }
    }

    fn deliver(&mut self, sender: Role, mut datagram: Vec<u8>) {
        let now = self.now;
        self.end(sender.peer())
            .receive(now, from(sender), &mut datagram);
    }

    /// The kinds of packets in a datagram that `sender` wrote, which they fill.
    fn kinds(&self, sender: Role, datagram: &[u8]) -> Vec<PacketKind> {
        let cid_len = match sender {
            Role::Client => self.cid_lens.1,
            Role::Server => self.cid_lens.0,
        };
        let mut kinds = Vec::new();
        let mut rest = datagram;
        while !rest.is_empty() {
            let header = PartialHeader::parse(rest, cid_len).expect("a packet");
            kinds.extend(header.kind.packet());
            rest = &rest[header.packet_len..];
        }
        kinds
    }
}

fn datagrams(sender: &mut Connection, now: Instant) -> Vec<Vec<u8>> {
    let mut train = vec![0; 65_536];
    let mut out = Vec::new();
    while let Some(sent) = sender.transmit(now, &mut train, 64) {
        let segment = sent.segment.unwrap_or(sent.len);
        out.extend(train[..sent.len].chunks(segment).map(<[u8]>::to_vec));
    }
    out
}

/// Returns a limit of exactly `bytes` for an unvalidated address.
fn credit(bytes: usize) -> Amplification {
    let mut amplification = Amplification::new();
    amplification.on_received(MOST);
    amplification.on_sent(3 * MOST - bytes);
    assert_eq!(amplification.available(), bytes as u64);
    amplification
}

/// Every credit, then every buffer, up to [`MOST`]: `try_room` is called with
/// what the path allows, a buffer, and the smaller of both sizes.
fn every_room(mut try_room: impl FnMut(Amplification, &mut [u8], usize)) {
    let mut buffer = vec![0; 2 * MOST];
    for room in 0..=MOST {
        try_room(credit(room), &mut buffer, room);
        try_room(Amplification::validated(), &mut buffer[..room], room);
    }
}

#[test]
fn close_fits_any_credit_buffer_and_connection_id_length() {
    for stage in STAGES {
        for (client_cid, server_cid) in CID_LENS.map(|a| CID_LENS.map(|b| (a, b))).concat() {
            for role in [Role::Client, Role::Server] {
                let mut pair = Pair::new(client_cid, server_cid, stage);
                close_in_every_room(&mut pair, role, stage);
            }
        }
    }
}

fn close_in_every_room(pair: &mut Pair, role: Role, stage: Stage) {
    let now = pair.now;
    let lens = pair.cid_lens;
    let end = pair.end(role);
    match stage {
        Stage::Initial | Stage::Confirmed => end.close(now, u64::MAX, &[b'x'; 3000]),
        Stage::Handshake => {
            let words = "é".repeat(1500);
            end.fail(now, TransportError::new(Code::PROTOCOL_VIOLATION, words));
        }
    }
    let mut smallest = None;
    every_room(|amplification, buffer, room| {
        let end = pair.end(role);
        end.network.paths.active_mut().amplification = amplification;
        let LifecycleState::Closing(closing) = &mut end.lifecycle.state else {
            panic!("closing");
        };
        closing.due = true;
        let Some(sent) = end.transmit(now, buffer, 10) else {
            assert!(room < 100, "{role:?} {stage:?} {lens:?}: nothing in {room}");
            return;
        };
        assert!(sent.len <= room, "{} bytes in {room}", sent.len);
        assert!(!pair.kinds(role, &buffer[..sent.len]).is_empty());
        smallest.get_or_insert(room);
    });
    assert!(smallest.is_some());
    // The last packet can be opened at the other end.
    let end = pair.end(role);
    end.network.paths.active_mut().amplification = Amplification::validated();
    if let LifecycleState::Closing(closing) = &mut end.lifecycle.state {
        closing.due = true;
    }
    if stage != Stage::Handshake || role == Role::Server {
        pair.exchange(role);
        let error = pair.end(role.peer()).error();
        assert!(error.is_some(), "{role:?} {stage:?} {lens:?}");
    }
}

/// Makes everything due that can be.
fn make_everything_due(end: &mut Connection, now: Instant, round: usize) {
    for space in SPACES {
        if end.keys.sending_kind(space).is_none() {
            continue;
        }
        let state = end.frames.spaces.get_mut(space);
        state.ping = true;
        state.crypto.resend_all();
        state.ack.on_immediate_ack();
    }
    if end.lifecycle.handshake != HandshakeState::Confirmed {
        return;
    }
    end.frames.local_cids.rotate();
    end.issue_cids();
    if end.role() == Role::Server {
        end.frames.control.handshake_done = true;
        end.frames.control.new_token = Some(Box::new(vec![7; round]));
        end.frames.control.new_token_due = true;
    }
    end.frames.control.ack_frequency_due = true;
    let path = end.network.paths.active_mut();
    path.responses.on_challenge([7; 8]);
    path.validation.start(now, core::time::Duration::ZERO);
    for len in [
        0,
        1,
        round % 64,
        round,
        end.max_datagram_size().unwrap_or(0),
    ] {
        let _ = end.send_datagram(Bytes::from(vec![7; len]));
    }
    for dir in [
        Directionality::Bidirectional,
        Directionality::Unidirectional,
    ] {
        let Some(id) = end.open(dir) else { continue };
        let _ = end.write(id, &[7; 3000]);
        match round % 3 {
            0 => drop(end.reset(id, u64::MAX)),
            1 => drop(end.finish(id)),
            _ => drop(end.stop(id, u64::MAX)),
        }
    }
}

#[test]
fn all_due_frames_fit_any_credit_buffer_and_connection_id_length() {
    for stage in STAGES {
        for (client_cid, server_cid) in [(0, 20), (20, 0), (8, 8), (20, 20)] {
            for role in [Role::Client, Role::Server] {
                let mut pair = Pair::new(client_cid, server_cid, stage);
                everything_in_every_room(&mut pair, role, |pair, datagram| {
                    // The peer understands what is sent.
                    pair.deliver(role, datagram);
                    let peer = pair.end(role.peer());
                    assert_eq!(peer.error(), None, "{role:?} {stage:?}");
                });
            }
        }
    }
}

/// Gaps in the received numbers make ACK frames as large as possible.
#[test]
fn ack_of_many_ranges_fits_any_credit_and_buffer() {
    for stage in STAGES {
        for role in [Role::Client, Role::Server] {
            let mut pair = Pair::new(20, 20, stage);
            for space in SPACES {
                let state = pair.end(role).frames.spaces.get_mut(space);
                for gap in 0..100 {
                    state.received.insert((gap + 1) << (20 + gap % 30));
                }
            }
            // The peer would close: it never sent these numbers.
            everything_in_every_room(&mut pair, role, |_, _| {});
        }
    }
}

/// The token of an Initial packet is limited only by the packet.
#[test]
fn header_that_does_not_fit_sends_nothing() {
    let mut pair = Pair::new(20, 20, Stage::Initial);
    let mut buffer = vec![0; MOST];
    let mut fitted = 0;
    for token_len in (0..2000).chain([16_383, 16_384, 65_000]) {
        pair.now += core::time::Duration::from_millis(500);
        let now = pair.now;
        pair.client.tls.token = vec![7; token_len];
        pair.client
            .frames
            .spaces
            .get_mut(clearway_recovery::Space::Initial)
            .ping = true;
        let sent = pair.client.transmit(now, &mut buffer, 1);
        assert_eq!(pair.client.error(), None);
        match sent {
            Some(sent) => {
                assert_eq!(sent.len, usize::from(MIN_MTU), "{token_len}");
                fitted = token_len;
            }
            None => assert!(token_len > 1100, "{token_len}"),
        }
    }
    assert!((1100..usize::from(MIN_MTU)).contains(&fitted), "{fitted}");
}

/// RFC 9002 §7: nothing is sent that would exceed the window, not even by a part of a datagram.
#[test]
fn data_in_flight_never_exceeds_the_congestion_window() {
    let datagram = u64::from(MIN_MTU);
    for window in (2 * datagram..5 * datagram).step_by(100) {
        let mut pair = Pair::with_window(8, 8, Stage::Confirmed, window);
        let server = &mut pair.server;
        let id = server
            .open(Directionality::Unidirectional)
            .expect("a stream");
        assert!(server.write(id, &[7; 10_000]).is_ok());
        // Long enough for the pacer.
        for _ in 0..100 {
            pair.now += core::time::Duration::from_millis(1);
            datagrams(&mut pair.server, pair.now);
            let in_flight = pair.server.network.active_recovery().in_flight();
            assert!(in_flight <= window, "{in_flight} bytes of {window}");
        }
        let in_flight = pair.server.network.active_recovery().in_flight();
        assert!(in_flight + datagram > window, "{in_flight} of {window}");
    }
}

/// A modem that thins acknowledgements by their size drops one that a packet with credit follows.
#[test]
fn packet_after_a_lost_ack_acknowledges_the_same() {
    let mut pair = Pair::new(8, 8, Stage::Confirmed);
    pair.exchange(Role::Server);
    let server = &mut pair.server;
    let id = server
        .open(Directionality::Unidirectional)
        .expect("a stream");
    assert!(server.write(id, &[7; 10_000]).is_ok());
    pair.exchange(Role::Server);
    assert!(pair.server.network.active_recovery().in_flight() > 0);
    pair.now += core::time::Duration::from_millis(100);
    let lost = datagrams(&mut pair.client, pair.now);
    assert_eq!(lost.len(), 1, "an ACK");
    let client = &mut pair.client;
    let id = client
        .open(Directionality::Unidirectional)
        .expect("a stream");
    assert!(client.write(id, &[7]).is_ok());
    pair.exchange(Role::Client);
    assert_eq!(pair.server.network.active_recovery().in_flight(), 0);
}

/// A defect closes one connection, and its peer is told at once.
#[test]
fn frame_that_cannot_be_encoded_closes_connection_with_internal_error() {
    let mut pair = Pair::new(8, 8, Stage::Confirmed);
    let control = &mut pair.server.frames.control;
    control.ack_frequency = Some(AckFrequencyRequest::without_encoding());
    control.ack_frequency_due = true;
    pair.exchange(Role::Server);
    let Some(ConnectionError::Transport(ours)) = pair.server.error() else {
        panic!("{:?}", pair.server.error());
    };
    assert_eq!(ours.code, Code::INTERNAL_ERROR);
    let Some(ConnectionError::PeerTransport(heard)) = pair.client.error() else {
        panic!("{:?}", pair.client.error());
    };
    assert_eq!((heard.code, &heard.reason), (ours.code, &ours.reason));
}

fn everything_in_every_room(pair: &mut Pair, role: Role, mut look: impl FnMut(&mut Pair, Vec<u8>)) {
    let (mut round, mut sent_in) = (0, 0);
    every_room(|amplification, buffer, room| {
        round += 1;
        pair.now += core::time::Duration::from_millis(500);
        let now = pair.now;
        let end = pair.end(role);
        make_everything_due(end, now, round);
        end.network.paths.active_mut().amplification = amplification;
        let mut left = room;
        for _ in 0..20 {
            let end = pair.end(role);
            let sent = end.transmit(now, buffer, 3);
            assert_eq!(end.error(), None, "in {room} bytes");
            let Some(sent) = sent else { break };
            assert!(sent.len <= buffer.len());
            if !end.network.paths.active().amplification.is_validated() {
                left = left.checked_sub(sent.len).expect("within the credit");
            }
            let segment = sent.segment.unwrap_or(sent.len);
            for datagram in buffer[..sent.len].chunks(segment) {
                sent_in += 1;
                look(pair, datagram.to_vec());
            }
        }
    });
    assert!(sent_in > MOST / 4, "{sent_in} datagrams");
}

/// Keeps the last reason for not sending that it heard of.
#[derive(Debug)]
struct LastLimit(Arc<Mutex<Option<Limit>>>);

impl Observer for LastLimit {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::Limit(limit) = event {
            *self.0.lock().expect("one thread") = Some(*limit);
        }
    }
}

/// Returns the reason for not sending that time is counted for.
fn counted_limit(end: &Connection, now: Instant) -> Option<Limit> {
    let at = |time| end.stats(time).limits;
    let later = at(now + core::time::Duration::from_millis(1));
    let grown = at(now).into_iter().zip(later);
    grown.filter(|(a, b)| a != b).map(|(a, _)| a.0).next()
}

/// A path that the connection returns to has its own reason for not sending. Traces report
/// it, and agree with what the connection counts.
#[test]
fn limit_event_follows_return_to_the_old_path() {
    let mut pair = Pair::new(8, 8, Stage::Confirmed);
    let last = Arc::new(Mutex::new(None));
    pair.exchange(Role::Server);
    pair.client.set_observer(Box::new(LastLimit(last.clone())));
    pair.exchange(Role::Client);
    let old = pair.client.paths().active_id();
    let mut now = pair.now;
    assert_eq!(counted_limit(&pair.client, now), Some(Limit::Application));
    let elsewhere = [192, 0, 2, 9].into();
    pair.client.migrate(now, Some(elsewhere)).expect("migrates");
    assert_ne!(pair.client.paths().active_id(), old);
    pair.client.on_scheduling_limited(now);
    // Nobody answers on the new path.
    for _ in 0..100 {
        if pair.client.paths().active_id() == old {
            break;
        }
        now += core::time::Duration::from_millis(100);
        pair.client.handle_timeout(now);
    }
    assert_eq!(pair.client.paths().active_id(), old);
    let counted = counted_limit(&pair.client, now);
    assert_eq!(counted, Some(Limit::Application));
    assert_eq!(*last.lock().expect("one thread"), counted);
}

/// Neither end is told of a dropped DATAGRAM: the count is the only trace of it.
#[test]
fn stats_count_datagrams_dropped_by_a_full_receive_queue() {
    let mut pair = Pair::new(8, 8, Stage::Confirmed);
    let capacity = crate::datagram::QueueLimits::default().count;
    for _ in 0..capacity + 3 {
        pair.client
            .send_datagram(Bytes::from_static(b"x"))
            .expect("room in the queue");
        pair.exchange(Role::Client);
    }
    assert_eq!(pair.server.stats(pair.now).datagrams_dropped, 3);
    let error = TransportError::new(Code::NO_ERROR, "");
    pair.server.abort(pair.now, error);
    assert_eq!(pair.server.stats(pair.now).datagrams_dropped, 3);
}
