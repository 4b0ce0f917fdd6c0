//! A model of two applications, and the invariants of their connection.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use clearway_links::{Direction, LinkConfig, Nat, Time};
use clearway_quic::connection::{Connection, ConnectionError};
use clearway_quic::error::Code;
use clearway_quic::stream::{Directionality, ReadError, StreamId, WriteError};

use crate::operations::ops::{End, Fault, HEALED, Op, Refusal};
use crate::operations::tap::Tap;
use clearway_testing::{Setup, SocketFault, World, path};

/// Bytes that a connection may hold: the receive budget, twice the congestion
/// window or the send budget, CRYPTO and packets kept for later.
const MEMORY_BOUND: usize = (4 << 20) + (4 << 20) + 3 * 64 * 1024 + 10 * 1500;

/// Timers that fire with nothing to do, at most, over a run.
const IDLE_WAKEUPS: u64 = 200;

/// A minute: six probes on a path without a round trip yet.
const BACKED_OFF: Duration = Duration::from_secs(60);

/// Byte `i` of what `end` sends on `id`: no two streams look alike, nor two
/// places in one.
fn byte(end: End, id: StreamId, i: usize) -> u8 {
    (i as u8)
        .wrapping_mul(31)
        .wrapping_add((i >> 8) as u8)
        .wrapping_add((id.as_u64() as u8).wrapping_mul(17))
        .wrapping_add(end as u8)
}

/// What is known of one direction of a stream.
#[derive(Debug, Default)]
struct Flow {
    written: usize,
    finished: bool,
    /// The sender reset it or was told to stop.
    reset: bool,
    stopped: bool,
    read: usize,
    ended: bool,
}

pub(crate) struct Model {
    world: World,
    /// By sender and stream.
    flows: BTreeMap<(End, StreamId), Flow>,
    datagrams: BTreeSet<Bytes>,
    addresses: u8,
    moved: bool,
    closed: bool,
    corrupted: bool,
    tap: Tap,
    /// The longest jump of the clock: a round trip may have seemed that long.
    jumped: Duration,
    /// How long a probe may wait because those before it were taken by the socket,
    /// or overtaken by copies: each doubles the wait, up to here.
    backed_off: Duration,
}

impl Model {
    pub(crate) fn new(seed: u64) -> Self {
        let mut setup = Setup::new();
        for config in [&mut setup.client, &mut setup.server] {
            config.idle_timeout = Duration::from_secs(120);
            config.handshake_timeout = Duration::from_secs(120);
            config.client_hello_timeout = Duration::from_secs(120);
            config.streams.receive_budget = 4 << 20;
        }
        // A client behind a NAT that forgot it has to speak first.
        setup.client.keep_alive = Some(Duration::from_secs(5));
        let mut world = World::new(setup, path(HEALED, seed), seed);
        world.nat = Some(Nat::new(outside(0)));
        let tap = Tap::default();
        tap.install(&mut world);
        world.connect();
        Self {
            tap,
            jumped: Duration::ZERO,
            backed_off: Duration::ZERO,
            world,
            flows: BTreeMap::new(),
            datagrams: BTreeSet::new(),
            addresses: 0,
            moved: false,
            closed: false,
            corrupted: false,
        }
    }

    fn connection(&mut self, end: End) -> Option<&mut Connection> {
        match end {
            End::Client => self.world.client.first(),
            End::Server => self.world.server.first(),
        }
    }

    /// The `which`th stream that `end` sends on, or receives on.
    fn pick(&self, end: End, which: usize) -> Option<StreamId> {
        let ids: Vec<_> = self.flows.keys().filter(|key| key.0 == end).collect();
        ids.get(which % ids.len().max(1)).map(|key| key.1)
    }

    pub(crate) fn apply(&mut self, op: &Op) {
        let now = self.world.now;
        match *op {
            Op::Open(end, uni) => self.open(end, uni),
            Op::Write(end, which, len) => self.write(end, which, len),
            Op::Finish(end, which) => self.finish(end, which),
            Op::Reset(end, which) => {
                let Some(id) = self.pick(end, which) else {
                    return;
                };
                let done = self.connection(end).map(|c| c.reset(id, 7));
                if done.is_some_and(|result| result.is_ok()) {
                    self.flow(end, id).reset = true;
                }
            }
            Op::Stop(end, which) => {
                let Some(id) = self.pick(end.other(), which) else {
                    return;
                };
                let done = self.connection(end).map(|c| c.stop(id, 8));
                if done.is_some_and(|result| result.is_ok()) {
                    self.flow(end.other(), id).stopped = true;
                }
            }
            Op::Read(end, max) => self.read(end, max),
            Op::Datagram(end, len) => {
                let data = Bytes::from(vec![len as u8; len]);
                if let Some(connection) = self.connection(end)
                    && connection.send_datagram(data.clone()).is_ok()
                {
                    self.datagrams.insert(data);
                }
            }
            Op::UpdateKeys(end) => {
                // Too soon after the last one is an answer, too.
                let _ = self.connection(end).map(|c| c.update_keys(now));
            }
            Op::RotateIds(end) => {
                if let Some(connection) = self.connection(end).filter(|c| !c.is_handshaking()) {
                    connection.rotate_connection_ids();
                }
            }
            Op::Ping(end) => {
                if let Some(connection) = self.connection(end) {
                    connection.ping();
                }
            }
            Op::Rebind => {
                self.addresses += 1;
                self.rebind(outside(self.addresses));
            }
            Op::Return(which) => self.rebind(outside(which % (self.addresses + 1))),
            Op::Migrate => self.migrate(),
            // Before that, whoever is first with a copy of the first Initial is the
            // client (RFC 9000 §21.1.3): nothing can be asked of the connection.
            Op::Copy(count, from) if self.is_confirmed() => {
                self.backed_off = BACKED_OFF;
                self.tap.copy(count, from);
            }
            Op::Replay(which, from) if self.is_confirmed() => self.tap.replay(which, from),
            Op::Copy(..) | Op::Replay(..) => {}
            Op::Socket(end, count, refusal) => {
                let fault = match refusal {
                    Refusal::Lost => SocketFault::Lost,
                    Refusal::TooLarge => SocketFault::TooLarge,
                };
                let host = match end {
                    End::Client => &mut self.world.client,
                    End::Server => &mut self.world.server,
                };
                host.faults = (count, fault);
                self.backed_off = BACKED_OFF;
            }
            Op::Jump(millis) => {
                let jump = Duration::from_millis(millis);
                self.jumped = self.jumped.max(jump);
                self.world.now += jump;
                self.run(Duration::from_millis(1));
            }
            Op::Close(end) => {
                if let Some(connection) = self.connection(end) {
                    connection.close(now, 42, b"enough");
                    self.closed = true;
                }
            }
            Op::Network(ref fault) => {
                self.corrupted |= matches!(fault, Fault::Corrupt(_));
                self.network(&fault.settings());
            }
            Op::Run(millis) => self.run(Duration::from_millis(millis)),
        }
        self.check();
    }

    fn flow(&mut self, sender: End, id: StreamId) -> &mut Flow {
        self.flows.entry((sender, id)).or_default()
    }

    fn open(&mut self, end: End, uni: bool) {
        let kind = if uni {
            Directionality::Unidirectional
        } else {
            Directionality::Bidirectional
        };
        let Some(connection) = self.connection(end) else {
            return;
        };
        if let Some(id) = connection.open(kind) {
            self.flow(end, id);
        }
    }

    fn write(&mut self, end: End, which: usize, len: usize) {
        let Some(id) = self.pick(end, which) else {
            return;
        };
        let from = self.flow(end, id).written;
        let data: Vec<u8> = (from..from + len).map(|i| byte(end, id, i)).collect();
        let result = self
            .connection(end)
            .expect("it has streams")
            .write(id, &data);
        let closed = self.is_closed();
        let flow = self.flow(end, id);
        match result {
            Ok(n) => {
                assert!(n <= len);
                flow.written += n;
            }
            Err(WriteError::Blocked) => {}
            Err(WriteError::Stopped(code)) => {
                assert_eq!(code, 8);
                assert!(flow.stopped, "{id} was not stopped");
            }
            Err(WriteError::Finished) => assert!(flow.finished),
            Err(WriteError::Unknown) => {
                assert!(flow.finished || flow.reset || flow.stopped || closed);
            }
        }
    }

    fn finish(&mut self, end: End, which: usize) {
        let Some(id) = self.pick(end, which) else {
            return;
        };
        let result = self.connection(end).expect("it has streams").finish(id);
        if result.is_ok() {
            self.flow(end, id).finished = true;
        }
    }

    /// Accepts whatever was opened and reads up to `max` bytes of each stream.
    fn read(&mut self, end: End, max: usize) {
        let Some(connection) = self.connection(end) else {
            return;
        };
        let mut opened = Vec::new();
        for kind in [
            Directionality::Bidirectional,
            Directionality::Unidirectional,
        ] {
            while let Some(id) = connection.accept(kind) {
                opened.push(id);
            }
        }
        let mut received = Vec::new();
        while let Some(datagram) = connection.recv_datagram() {
            received.push(datagram);
        }
        for id in opened {
            assert!(self.flows.contains_key(&(end.other(), id)), "{id} appeared");
            if id.directionality() == Directionality::Bidirectional {
                self.flow(end, id);
            }
        }
        for datagram in received {
            assert!(
                self.datagrams.contains(&datagram),
                "nobody sent {datagram:?}"
            );
        }
        let ids: Vec<_> = self
            .flows
            .keys()
            .filter(|key| key.0 != end)
            .copied()
            .collect();
        for (sender, id) in ids {
            self.read_stream(sender, id, max);
        }
    }

    fn read_stream(&mut self, sender: End, id: StreamId, max: usize) {
        let mut left = max;
        while left > 0 && !self.flow(sender, id).ended {
            let connection = self.connection(sender.other()).expect("it reads");
            let result = connection.read_chunk(id, left);
            let flow = self.flow(sender, id);
            match result {
                Ok(Some(chunk)) => {
                    for (i, got) in chunk.iter().enumerate() {
                        assert_eq!(
                            *got,
                            byte(sender, id, flow.read + i),
                            "{id} at {}",
                            flow.read + i
                        );
                    }
                    flow.read += chunk.len();
                    assert!(flow.read <= flow.written, "{id}: more than was written");
                    left -= chunk.len();
                }
                Ok(None) => {
                    assert!(flow.finished, "{id} ended, unfinished");
                    assert_eq!(flow.read, flow.written, "{id} ended early");
                    flow.ended = true;
                }
                Err(ReadError::Reset(code)) => {
                    // A reset of ours, or the answer to STOP_SENDING.
                    assert!(
                        code == 7 && flow.reset || code == 8 && flow.stopped,
                        "{id}: {code}"
                    );
                    flow.ended = true;
                }
                Err(ReadError::Blocked | ReadError::Unknown) => return,
            }
        }
    }

    fn is_confirmed(&mut self) -> bool {
        self.connection(End::Client)
            .is_some_and(|c| c.is_confirmed())
    }

    /// The NAT forgets and gives the client another outside address, or an earlier one.
    fn rebind(&mut self, to: SocketAddr) {
        // RFC 9000 §9: not before the handshake is confirmed.
        if !self.is_confirmed() {
            return;
        }
        self.world.now += Duration::from_micros(1);
        self.moved = true;
        let at = Time(self.world.now.as_nanos());
        self.world.nat = self.world.nat.take().map(|nat| nat.rebind(at, to));
    }

    /// The client takes another address of its own.
    fn migrate(&mut self) {
        if !self.is_confirmed() {
            return;
        }
        let address: SocketAddr = format!("10.0.1.{}:5000", self.addresses + 1)
            .parse()
            .expect("an address");
        let now = self.world.now;
        let connection = self.connection(End::Client).expect("a client");
        if connection.migrate(now, Some(address.ip())).is_ok() {
            self.world.client.address = address;
            self.addresses += 1;
            self.rebind(outside(self.addresses));
        }
    }

    fn network(&mut self, settings: &str) {
        let config: LinkConfig = settings.parse().expect("a link");
        let now = Time(self.world.now.as_nanos());
        for direction in Direction::ALL {
            let config = config.clone();
            let link = self.world.path.link_mut(direction);
            link.reconfigure(now, |current| *current = config);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.world.now + time;
        while self.world.now < end {
            self.check();
            self.tap.deliver(&mut self.world);
            if !self.world.step_to(end) {
                break;
            }
        }
    }

    fn check(&mut self) {
        self.world.check();
        let now = self.world.now;
        for end in [End::Client, End::Server] {
            if let Some(connection) = self.connection(end) {
                let memory = connection.memory();
                assert!(memory <= MEMORY_BOUND, "{end:?} holds {memory} bytes");
                let idle = connection.stats(now).idle_wakeups;
                assert!(idle < IDLE_WAKEUPS, "{end:?}: {idle} wakeups for nothing");
            }
        }
    }

    pub(crate) fn is_closed(&mut self) -> bool {
        [End::Client, End::Server]
            .into_iter()
            .any(|end| self.connection(end).is_some_and(|c| c.error().is_some()))
    }

    /// Whether what ended the connection was asked for by the sequence.
    fn is_legitimate(&self, error: &ConnectionError) -> bool {
        match error {
            ConnectionError::LocalApplication { code } => self.closed && *code == 42,
            ConnectionError::PeerApplication { code, .. } => self.closed && *code == 42,
            // Before the handshake is complete the application's code stays
            // private; a CONNECTION_CLOSE may get lost, and what comes after it
            // is met with a stateless reset.
            ConnectionError::PeerTransport(error) => {
                self.closed && error.code == Code::APPLICATION_ERROR || self.no_path(error.code)
            }
            ConnectionError::HandshakeTimeout => {
                !self.backed_off.is_zero() || !self.jumped.is_zero()
            }
            ConnectionError::IdleTimeout | ConnectionError::StatelessReset => {
                self.closed || self.moved || !self.backed_off.is_zero()
            }
            ConnectionError::Transport(error) => self.no_path(error.code),
            // Nothing authenticates Version Negotiation: an altered version
            // provokes it, an altered list makes it believable.
            ConnectionError::VersionMismatch => self.corrupted,
            _ => false,
        }
    }

    /// A black hole right after a change of address leaves no path validated.
    fn no_path(&self, code: Code) -> bool {
        self.moved && code == Code::NO_VIABLE_PATH
    }

    fn all_delivered(&self) -> bool {
        self.flows.values().all(|flow| {
            let told = flow.finished || flow.reset;
            !told || flow.stopped || flow.ended
        })
    }

    /// Heals the path and reads everything.
    pub(crate) fn conclude(&mut self) {
        self.network(HEALED);
        let limit =
            self.world.now + Duration::from_secs(90) + 10 * self.jumped + 10 * self.backed_off;
        while !self.all_delivered() && !self.is_closed() && self.world.now < limit {
            for end in [End::Client, End::Server] {
                self.read(end, usize::MAX);
            }
            self.run(Duration::from_millis(20));
        }
        self.check_errors();
        if self.is_closed() {
            return;
        }
        for (key, flow) in &self.flows {
            let told = flow.finished || flow.reset;
            assert!(!told || flow.stopped || flow.ended, "{key:?}: {flow:?}");
        }
        self.settles();
        self.check_errors();
    }

    /// Nothing has ended the connection but what the sequence asked for.
    fn check_errors(&mut self) {
        for end in [End::Client, End::Server] {
            if let Some(error) = self.connection(end).and_then(|c| c.error().cloned()) {
                assert!(self.is_legitimate(&error), "{end:?}: {error:?}");
            }
        }
    }

    /// With nothing more to say, both ends fall silent.
    fn settles(&mut self) {
        if self.flows.values().any(|flow| flow.read < flow.written) {
            return; // Unread and unfinished data may wait for credit.
        }
        for end in [End::Client, End::Server] {
            let patience = Duration::from_millis(10) + (self.jumped + self.backed_off) / 50;
            let silent = (0..1000).any(|_| {
                self.run(patience);
                let now = self.world.now;
                // Nothing of the client's may have reached the server.
                self.connection(end).is_none_or(|connection| {
                    connection.stats(now).in_flight == 0 || connection.error().is_some()
                })
            });
            assert!(
                silent,
                "{end:?} is not done after a thousand times {patience:?}"
            );
        }
    }
}

fn outside(n: u8) -> SocketAddr {
    SocketAddr::from(([203, 0, 113, 1 + n], 7000))
}
