//! One end that breaks the protocol, one that has to stand it.

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

use crate::common::{Meter, Setup, World, path};

/// The way between both ends.
pub(crate) const LINK: &str = "rate=100M delay=5ms";

/// Room for any payload a test writes.
const ROOM: usize = 60_000;

/// Memory that a victim may hold at any time of a duel that names no bound of
/// its own: far below the receive budget, which no test here spends.
pub(crate) const IDLE_MEMORY: usize = 512 << 10;

/// Bytes of a frame.
pub(crate) fn bytes(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = vec![0; frame.size()];
    let mut w = Writer::new(&mut out);
    frame.encode(&mut w);
    assert!(!w.overflowed(), "{frame:?}");
    out
}

/// Bytes of what `write` writes.
pub(crate) fn raw(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut out = vec![0; ROOM];
    let mut w = Writer::new(&mut out);
    write(&mut w);
    assert!(!w.overflowed(), "more than {ROOM} bytes");
    w.filled().to_vec()
}

/// A type and integers, which is what most frames are.
pub(crate) fn fields(values: &[u64]) -> Vec<u8> {
    raw(|w| values.iter().for_each(|&value| w.varint(value)))
}

/// A stream of the hostile client's.
pub(crate) fn client_bidi(index: u64) -> StreamId {
    StreamId::new(Role::Client, Directionality::Bidirectional, index)
}

/// The 1-RTT packets that a victim sends: number, whether it asks for an ACK.
#[derive(Clone, Debug, Default)]
pub(crate) struct Numbers(Arc<Mutex<Vec<(u64, bool)>>>);

impl Numbers {
    pub(crate) fn sent(&self) -> Vec<u64> {
        let sent = self.0.lock().expect("one thread");
        sent.iter().map(|&(number, _)| number).collect()
    }

    /// Those that ask for an ACK, sent since this was last called.
    pub(crate) fn take_eliciting(&self) -> Vec<u64> {
        let mut sent = self.0.lock().expect("one thread");
        let eliciting = sent.drain(..).filter(|&(_, eliciting)| eliciting);
        eliciting.map(|(number, _)| number).collect()
    }
}

impl Observer for Numbers {
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

/// A world whose `victim` is weighed like that of a duel, for attacks by datagrams
/// that need no keys.
pub(crate) fn weighed(setup: Setup, spec: &str, victim: Role) -> World {
    let mut world = World::new(setup, path(spec, 1), 1);
    world.meter = Some(Meter::new(victim, IDLE_MEMORY));
    world
}

/// A client's first datagrams, caught on their way.
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

/// A world in which one end is hostile.
///
/// The victim's memory is weighed after every step and must stay within a bound,
/// [`IDLE_MEMORY`] unless the test names another. Each close that the victim
/// pronounces must be asserted to the letter, with [`Duel::closed_with`]. Both
/// hold for every duel: they are checked where it ends.
pub(crate) struct Duel {
    pub(crate) world: World,
    hostile: Role,
    /// The victim's close has been compared with what the test expects.
    heard: bool,
}

impl Duel {
    /// After the handshake, with everything said that honest ends say.
    pub(crate) fn new(hostile: Role) -> Self {
        Self::with(hostile, |_| {})
    }

    pub(crate) fn with(hostile: Role, change: impl FnOnce(&mut Setup)) -> Self {
        let mut duel = Self::begun(hostile, change);
        let done = duel.world.run_until(Duration::from_secs(10), |world| {
            world.client.connection().is_confirmed() && !world.server.connections.is_empty()
        });
        assert!(done, "no handshake");
        duel.world.run_for(Duration::from_secs(1));
        duel
    }

    /// The client's first flight is on its way; nothing has arrived.
    pub(crate) fn begun(hostile: Role, change: impl FnOnce(&mut Setup)) -> Self {
        let mut setup = Setup::new();
        change(&mut setup);
        let mut world = weighed(setup, LINK, hostile.peer());
        world.connect();
        world.flush();
        Self {
            world,
            hostile,
            heard: false,
        }
    }

    /// Names another bound than [`IDLE_MEMORY`], in bytes.
    pub(crate) fn bound(&mut self, bytes: usize) {
        self.meter().bound = bytes;
    }

    /// The most memory that the victim has held, in bytes.
    pub(crate) fn peak(&mut self) -> usize {
        self.meter().peak
    }

    fn meter(&mut self) -> &mut Meter {
        self.world.meter.as_mut().expect("made with the duel")
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

    /// Hands the victim a datagram from the hostile end's address.
    pub(crate) fn deliver(&mut self, datagram: Vec<u8>) {
        let (client, server) = (self.world.client.address, self.world.server.address);
        let (direction, src, dst) = match self.hostile {
            Role::Client => (Direction::Up, client, server),
            Role::Server => (Direction::Down, server, client),
        };
        let packet = Packet::new(src, dst, datagram);
        self.world.deliver(direction, packet);
    }

    /// A forged packet; panics if its keys are not there.
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

    /// A 1-RTT packet with these frames arrives at the victim.
    pub(crate) fn say(&mut self, payload: &[u8]) {
        self.strike(&Forgery::new(PacketKind::OneRtt, payload));
    }

    /// What the hostile end is told; the victim must know the same.
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

    /// Hands what the victim sends straight to the hostile end, for when the
    /// victim sends to connection IDs that were forged and lead nowhere.
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

    /// Asserts the code, the frame type named, and the words.
    #[track_caller]
    pub(crate) fn closed_with(&mut self, code: Code, frame: impl Into<Option<u64>>, words: &str) {
        self.heard = true;
        let error = self.verdict();
        assert_eq!(
            (error.code, error.frame, &*error.reason),
            (code, frame.into(), words)
        );
    }

    /// The victim is open and still serves: a stream goes there and back.
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

impl Drop for Duel {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.heard {
            let said = match self.victim().error() {
                Some(ConnectionError::Transport(error)) => Some(error.clone()),
                _ => None,
            };
            assert_eq!(said, None, "a close that the test does not expect");
        }
    }
}
