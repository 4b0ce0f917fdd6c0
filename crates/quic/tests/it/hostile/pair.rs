//! A hostile end and its victim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::{Connection, ConnectionError, Forgery, RecvMeta};
use clearway_quic::error::{Code, TransportError};
use clearway_quic::event::{Observer, TraceEvent};
use clearway_quic::stream::{Directionality, StreamId};
use clearway_quic::wire::{Frame, PacketKind, Writer};
use clearway_quic::{Instant, Role};

use clearway_testing::{Meter, Setup, World, path};

/// The link between both ends.
pub(crate) const LINK: &str = "rate=100M delay=5ms";

/// Size of the buffer for the payloads that tests write.
const ROOM: usize = 60_000;

/// Default bound on the victim's memory, bytes. It is far below the receive budget, which no test here
/// uses up.
pub(crate) const IDLE_MEMORY: usize = 512 << 10;

/// Encodes a frame.
pub(crate) fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = vec![0; frame.size()];
    let mut w = Writer::new(&mut out);
    frame.encode(&mut w);
    assert!(!w.overflowed(), "{frame:?}");
    out
}

/// Returns the bytes that `write` writes.
pub(crate) fn raw(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; ROOM];
    let mut w = Writer::new(&mut out);
    write(&mut w);
    assert!(!w.overflowed(), "more than {ROOM} bytes");
    w.filled().to_vec()
}

/// Encodes integers: most frames are a type followed by integers.
pub(crate) fn fields(values: &[u64]) -> Vec<u8> {
    raw(|w| values.iter().for_each(|&value| w.varint(value)))
}

/// Returns the ID of a bidirectional stream of the hostile client.
pub(crate) fn client_bidi(index: u64) -> StreamId {
    StreamId::new(Role::Client, Directionality::Bidirectional, index)
}

/// The 1-RTT packets that a victim sends: packet number, and whether it is ack-eliciting.
#[derive(Clone, Debug, Default)]
pub(crate) struct SentNumbers(Arc<Mutex<Vec<(u64, bool)>>>);

impl SentNumbers {
    pub(crate) fn sent(&self) -> Vec<u64> {
        let sent = self.0.lock().expect("one thread");
        sent.iter().map(|&(number, _)| number).collect()
    }

    /// Returns the ack-eliciting ones sent since the last call.
    pub(crate) fn take_eliciting(&self) -> Vec<u64> {
        let mut sent = self.0.lock().expect("one thread");
        let eliciting = sent.drain(..).filter(|&(_, eliciting)| eliciting);
        eliciting.map(|(number, _)| number).collect()
    }
}

impl Observer for SentNumbers {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::PacketSent {
            kind: PacketKind::OneRtt,
            number,
            ack_eliciting,
            ..
        } = *event
        {
            let mut sent = self.0.lock().expect("one thread");
            sent.push((number, ack_eliciting));
        }
    }
}

/// Creates a world that meters the memory of `victim`, for attacks with datagrams that need no keys.
pub(crate) fn metered_world(setup: Setup, spec: &str, victim: Role) -> World {
    let mut world = World::new(setup, path(spec, 1), 1);
    world.meter = Some(Meter::new(victim, IDLE_MEMORY));
    world
}

/// Captures a client's first flight, which does not arrive.
pub(crate) fn first_flight(world: &mut World) -> Vec<Packet> {
    let caught = Arc::new(Mutex::new(Vec::new()));
    let sink = caught.clone();
    world.filter = Some(Box::new(move |_, packet| {
        sink.lock().expect("one thread").push(packet.clone());
        false
    }));
    world.connect();
    world.flush();
    world.filter = None;
    core::mem::take(&mut *caught.lock().expect("one thread"))
}

/// Returns every datagram that is sent now. None arrives.
pub(crate) fn sent_now(world: &mut World) -> Vec<Packet> {
    let caught = Arc::new(Mutex::new(Vec::new()));
    let sink = caught.clone();
    world.filter = Some(Box::new(move |_, packet| {
        sink.lock().expect("one thread").push(packet.clone());
        false
    }));
    world.flush();
    world.filter = None;
    core::mem::take(&mut *caught.lock().expect("one thread"))
}

/// A world in which one end is hostile.
///
/// The victim's memory is measured after every step and must stay within a bound, [`IDLE_MEMORY`]
/// unless the test sets another. If the victim closes the connection, the test must check the error with
/// [`HostilePair::closed_with`]. Both are checked when the pair is dropped.
pub(crate) struct HostilePair {
    pub(crate) world: World,
    hostile: Role,
    /// The victim's close has been compared with what the test expects.
    close_checked: bool,
}

impl HostilePair {
    /// Creates a pair after the handshake, when neither end has anything left to send.
    pub(crate) fn new(hostile: Role) -> Self {
        Self::with(hostile, |_| {})
    }

    pub(crate) fn with(hostile: Role, change: impl FnOnce(&mut Setup)) -> Self {
        let mut pair = Self::begun(hostile, change);
        let done = pair.world.run_until(Duration::from_secs(10), |world| {
            world.client.connection().is_confirmed() && !world.server.connections.is_empty()
        });
        assert!(done, "no handshake");
        pair.world.run_for(Duration::from_secs(1));
        pair
    }

    /// Creates a pair whose client has sent its first flight, which has not arrived.
    pub(crate) fn begun(hostile: Role, change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::new();
        change(&mut setup);
        let mut world = metered_world(setup, LINK, hostile.peer());
        world.connect();
        world.flush();
        Self {
            world,
            hostile,
            close_checked: false,
        }
    }

    /// Sets another bound than [`IDLE_MEMORY`], in bytes.
    pub(crate) fn bound(&mut self, bytes: usize) {
        self.meter().bound = bytes;
    }

    /// Returns the largest memory of the victim so far, in bytes.
    pub(crate) fn peak(&mut self) -> usize {
        self.meter().peak
    }

    fn meter(&mut self) -> &mut Meter {
        self.world.meter.as_mut().expect("made with the pair")
    }

    pub(crate) fn hostile(&mut self) -> &mut Connection {
        match self.hostile {
            Role::Client => self.world.client.connection(),
            Role::Server => self.world.server.connection(),
        }
    }

    pub(crate) fn victim(&mut self) -> &mut Connection {
        match self.hostile {
            Role::Client => self.world.server.connection(),
            Role::Server => self.world.client.connection(),
        }
    }

    /// Delivers a datagram to the victim from the hostile end's address.
    pub(crate) fn deliver(&mut self, datagram: Vec<u8>) {
        let (client, server) = (self.world.client.address, self.world.server.address);
        let (direction, src, dst) = match self.hostile {
            Role::Client => (Direction::Up, client, server),
            Role::Server => (Direction::Down, server, client),
        };
        let packet = Packet::new(src, dst, datagram);
        self.world.deliver(direction, packet);
    }

    /// Forges a packet. Panics if the hostile end has no keys for it.
    pub(crate) fn forge(&mut self, forgery: &Forgery<'_>) -> Vec<u8> {
        let now = self.world.now;
        self.hostile()
            .forge(now, forgery)
            .unwrap_or_else(|| panic!("no keys for {:?}", forgery.kind))
    }

    pub(crate) fn strike(&mut self, forgery: &Forgery<'_>) {
        let packet = self.forge(forgery);
        self.deliver(packet);
    }

    /// Delivers a 1-RTT packet with these frames to the victim.
    pub(crate) fn say(&mut self, payload: &[u8]) {
        self.strike(&Forgery::new(PacketKind::OneRtt, payload));
    }

    /// Returns the error that the hostile end receives, and checks that the victim has the same.
    fn verdict(&mut self) -> TransportError {
        self.world.run_for(Duration::from_millis(100));
        let told = match self.hostile().error() {
            Some(ConnectionError::PeerTransport(error)) => error.clone(),
            other => panic!("the hostile end was told {other:?}"),
        };
        match self.victim().error() {
            Some(ConnectionError::Transport(error)) => assert_eq!(*error, told),
            other => panic!("the victim says {other:?}"),
        }
        told
    }

    /// Passes what the victim sends directly to the hostile end, when the victim sends to forged
    /// connection IDs that are not routed.
    pub(crate) fn hear_unrouted(&mut self) {
        let caught = Arc::new(Mutex::new(Vec::new()));
        let sink = caught.clone();
        self.world.filter = Some(Box::new(move |_, packet| {
            sink.lock().expect("one thread").push(packet.clone());
            false
        }));
        self.world.flush();
        self.world.filter = None;
        let now = self.world.now;
        for mut packet in caught.lock().expect("one thread").drain(..) {
            let from = RecvMeta {
                remote: packet.src,
                local_ip: Some(packet.dst.ip()),
                ecn: ReceivedEcn::NotEct,
            };
            self.hostile().receive(now, from, &mut packet.data);
        }
    }

    /// Checks the error code, the frame type and the reason of the close.
    #[track_caller]
    pub(crate) fn closed_with(&mut self, code: Code, frame: impl Into<Option<u64>>, words: &str) {
        self.close_checked = true;
        let error = self.verdict();
        assert_eq!(
            (error.code, error.frame, &*error.reason),
            (code, frame.into(), words)
        );
    }

    /// Checks that the victim is open and still serves, with one stream there and back.
    #[track_caller]
    pub(crate) fn still_serves(&mut self) {
        assert_eq!(self.victim().error(), None);
        let id = self
            .victim()
            .open(Directionality::Bidirectional)
            .expect("credit for a stream");
        self.victim().write(id, b"alive").expect("writes");
        let hostile = self.hostile;
        let arrived = self.world.run_until(Duration::from_secs(5), |world| {
            let hostile = match hostile {
                Role::Client => world.client.connection(),
                Role::Server => world.server.connection(),
            };
            let mut buffer = [0; 8];
            matches!(hostile.read(id, &mut buffer), Ok(Some(5)))
        });
        assert!(arrived, "the victim does not serve any more");
    }
}

impl Drop for HostilePair {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.close_checked {
            let said = match self.victim().error() {
                Some(ConnectionError::Transport(error)) => Some(error.clone()),
                _ => None,
            };
            assert_eq!(said, None, "a close that the test does not expect");
        }
    }
}
