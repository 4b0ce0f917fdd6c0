//! What a connection tells about itself: its streams, its peer, its states, and when it rests.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_quic::event::{ConnectionState, Observer, TraceEvent};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::{Frame, Frames};
use clearway_quic::{Instant, Role};
use clearway_testing::{Setup, World, download, path};

const CLEAN: &str = "rate=100M delay=5ms queue=250";

/// What an observer saw.
#[derive(Debug, Default)]
struct Seen {
    states: Vec<ConnectionState>,
    /// Reads of streams: stream ID and bytes.
    reads: Vec<(u64, u64)>,
    /// ACK_FREQUENCY frames that were sent.
    ack_frequency: u32,
}

#[derive(Clone, Debug, Default)]
struct Watch(Arc<Mutex<Seen>>);

impl Watch {
    fn take(&self) -> Seen {
        std::mem::take(&mut *self.0.lock().expect("one thread"))
    }
}

impl Observer for Watch {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        let mut seen = self.0.lock().expect("one thread");
        match *event {
            TraceEvent::StateChanged(state) => seen.states.push(state),
            TraceEvent::StreamRead { id, len } => seen.reads.push((id, len)),
            TraceEvent::PacketSent { payload, .. } => {
                let frames = Frames::new(payload).map_while(Result::ok);
                let asks = frames.filter(|frame| matches!(frame, Frame::AckFrequency { .. }));
                seen.ack_frequency += asks.count() as u32;
            }
            _ => {}
        }
    }
}

fn world(change: impl FnOnce(&mut Setup)) -> World {
    let mut setup = Setup::new();
    change(&mut setup);
    World::new(setup, path(CLEAN, 1), 1)
}

#[test]
fn open_streams_are_those_of_both_ends() {
    let mut world = world(|_| {});
    world.handshake();
    assert_eq!(world.client.connection().open_streams(), 0);
    for (directionality, open) in [
        (Directionality::Bidirectional, 1),
        (Directionality::Unidirectional, 2),
    ] {
        let client = world.client.connection();
        let id = client.open(directionality).expect("a stream");
        assert_eq!(client.open_streams(), open);
        client.write(id, b"data").expect("room");
    }
    world.run_for(Duration::from_secs(1));
    let server = world.server.connection();
    assert_eq!(server.open_streams(), 2);
    server
        .open(Directionality::Unidirectional)
        .expect("a stream");
    assert_eq!(server.open_streams(), 3);
}

#[test]
fn peer_transport_parameters_are_what_the_peer_sent() {
    let mut world = world(|setup| {
        setup.client.idle_timeout = Duration::from_secs(17);
        setup.server.idle_timeout = Duration::from_secs(19);
    });
    world.connect();
    let parameters = world.client.connection().peer_transport_parameters();
    assert_eq!(parameters, None, "nothing has arrived");
    world.run_for(Duration::from_secs(1));
    for (role, idle) in [(Role::Client, 19_000), (Role::Server, 17_000)] {
        let connection = match role {
            Role::Client => world.client.connection(),
            Role::Server => world.server.connection(),
        };
        let parameters = connection.peer_transport_parameters().expect("arrived");
        assert_eq!(parameters.max_idle_timeout, idle, "{role:?}");
        let from_server = parameters.original_destination_connection_id.is_some();
        assert_eq!(from_server, role == Role::Client);
    }
}

#[test]
fn rest_is_reported_once() {
    let mut world = world(|_| {});
    world.handshake();
    for _ in 0..2 {
        world.run_for(Duration::from_millis(500));
        assert!(!world.client.connection().take_rested(), "too early");
        world.run_for(Duration::from_secs(3));
        assert!(world.client.connection().take_rested());
        assert!(!world.client.connection().take_rested());
        world.client.connection().ping();
    }
}

#[test]
fn observer_sees_each_state_in_order() {
    use ConnectionState::*;
    let mut world = world(|_| {});
    world.connect();
    let watch = Watch::default();
    world
        .client
        .connection()
        .set_observer(Box::new(watch.clone()));
    world.run_for(Duration::from_secs(1));
    let now = world.now;
    world.client.connection().close(now, 0, b"");
    world.run_for(Duration::from_secs(5));
    assert_eq!(
        watch.take().states,
        [
            Attempted,
            HandshakeComplete,
            HandshakeConfirmed,
            Closing,
            Closed
        ]
    );
}

#[test]
fn reads_of_a_stream_are_summed_until_another_stream_is_read() {
    let mut world = world(|_| {});
    world.handshake();
    let watch = Watch::default();
    let client = world.client.connection();
    let ids = [(); 2].map(|()| {
        let id = client.open(Directionality::Unidirectional).expect("room");
        client.write(id, &[1; 100]).expect("room");
        id
    });
    let server = world.server.connection();
    server.set_observer(Box::new(watch.clone()));
    world.run_for(Duration::from_secs(1));
    let server = world.server.connection();
    for (id, bytes) in [(0, 10), (0, 20), (1, 30), (0, 40)] {
        assert_eq!(server.read(ids[id], &mut vec![0; bytes]), Ok(Some(bytes)));
    }
    world.client.connection().ping();
    world.run_for(Duration::from_secs(1));
    let [first, second] = ids.map(StreamId::as_u64);
    assert_eq!(watch.take().reads, [(first, 30), (second, 30), (first, 40)]);
}

#[test]
fn peer_is_asked_for_fewer_acks_only_if_configured() {
    for wanted in [true, false] {
        let mut world = world(|setup| setup.server.ack_frequency = wanted);
        world.handshake();
        let watch = Watch::default();
        let server = world.server.connection();
        server.set_observer(Box::new(watch.clone()));
        assert!(download(&mut world, 4_000_000, Duration::from_secs(60)));
        assert_eq!(watch.take().ack_frequency > 0, wanted);
    }
}

/// RFC 9287 §3: an end clears the fixed bit only towards a peer that takes such packets.
#[test]
fn fixed_bit_is_cleared_only_if_both_ends_grease_it() {
    for (client, server) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut world = world(|setup| {
            setup.client.grease = client;
            setup.server.grease = server;
        });
        let cleared = Arc::new(Mutex::new(0));
        let sink = cleared.clone();
        world.filter = Some(Box::new(move |_, packet| {
            if packet.data[0] & 0x40 == 0 {
                *sink.lock().expect("one thread") += 1;
            }
            true
        }));
        world.handshake();
        for _ in 0..50 {
            world.client.connection().ping();
            world.server.connection().ping();
            world.run_for(Duration::from_millis(100));
        }
        let cleared = *cleared.lock().expect("one thread");
        assert_eq!(cleared > 0, client && server, "{client} {server}");
    }
}
