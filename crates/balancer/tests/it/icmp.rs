//! ICMP errors about what the balancer has sent, of every type and code: anybody can forge them (RFC 9000
//! §14.2.1 and §21), so none of them changes where a datagram goes, whatever the state of its flow and of
//! its backend.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail as tests do")]

use std::fmt::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use clearway_balancer::{BackendSettings, BackendState, Balancer, Mode, Settings, Status};
use clearway_quic::cid::quic_lb::{Config, ServerId};
use clearway_udp::testing::{Forger, IcmpMessage};

/// Ends a test that waits for a datagram which does not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// How often each error is sent before the next datagram.
const REPEATED: usize = 3;

/// How far a client's flow has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// The backend has not sent anything.
    Unanswered,
    Answered,
    /// The client has used the connection ID that the backend sent.
    Proven,
}

const FLOWS: [Flow; 3] = [Flow::Unanswered, Flow::Answered, Flow::Proven];

/// What has happened to the backend since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    None,
    Drained,
    Down,
    Removed,
}

const CHANGES: [Change; 4] = [Change::None, Change::Drained, Change::Down, Change::Removed];

/// Whose datagrams the errors are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Nobody,
    /// What the balancer has sent to the client.
    Client,
    /// What it has sent to the backend.
    Backend,
}

/// Two backends, of which the first is changed, and a balancer. Each family and test has addresses of
/// its own, because the host remembers what it was told of the MTU of paths.
struct World {
    balancer: Balancer,
    backends: [UdpSocket; 2],
    is_v6: bool,
}

fn encoding() -> Config {
    Config::new(0, 1, 7).unwrap()
}

/// A connection ID that names a backend, and that is different for each client.
fn cid(backend: u8, client: u8) -> [u8; 9] {
    let id = ServerId::new(&[backend]).unwrap();
    let cid = encoding().encode(&id, &[client; 7], 0).unwrap();
    cid[..].try_into().unwrap()
}

fn long(kind: u8, dcid: &[u8], scid: &[u8]) -> Vec<u8> {
    let mut packet = vec![0xc0 | kind << 4, 0, 0, 0, 1];
    for cid in [dcid, scid] {
        packet.push(cid.len() as u8);
        packet.extend(cid);
    }
    packet.resize(1_200, 0);
    packet
}

fn short(backend: u8, client: u8) -> Vec<u8> {
    [&[0x40][..], &cid(backend, client), &[client; 50]].concat()
}

fn socket(is_v6: bool, last: u8) -> UdpSocket {
    let address = match is_v6 {
        true => "[::1]:0".parse().unwrap(),
        false => SocketAddr::from(([127, 91, 7, last], 0)),
    };
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2_000];
    let (len, from) = socket.recv_from(&mut buffer).unwrap();
    (buffer[..len].to_vec(), from)
}

impl World {
    fn new(mode: Mode, is_v6: bool) -> Self {
        let backends = [socket(is_v6, 1), socket(is_v6, 2)];
        let listen = if is_v6 { "[::1]:0" } else { "127.91.7.3:0" };
        let mut settings = Settings::new(listen.parse().unwrap());
        settings.mode = mode;
        settings.quic_lb = vec![encoding()];
        settings.health = None;
        settings.backends = (1..).zip(&backends).map(Self::backend).collect();
        Self {
            balancer: Balancer::start(&settings).unwrap(),
            backends,
            is_v6,
        }
    }

    fn backend((number, socket): (u8, &UdpSocket)) -> BackendSettings {
        BackendSettings {
            name: format!("b{number}"),
            address: socket.local_addr().unwrap(),
            weight: 1,
            state: BackendState::Active,
            server_ids: vec![(0, ServerId::new(&[number]).unwrap())],
        }
    }

    fn service(&self) -> SocketAddr {
        self.balancer.local_addr()
    }

    /// Has the flow of a client with the first backend come as far as this. Returns the upstream
    /// address.
    fn open(&self, client: &UdpSocket, number: u8, flow: Flow) -> SocketAddr {
        // It names the backend, so that all flows begin there.
        let initial = long(0, &cid(1, number), &[number; 8]);
        client.send_to(&initial, self.service()).unwrap();
        let (_, upstream) = receive(&self.backends[0]);
        if flow == Flow::Unanswered {
            return upstream;
        }
        let answer = long(2, &[number; 8], &cid(1, number));
        self.backends[0].send_to(&answer, upstream).unwrap();
        receive(client);
        if flow == Flow::Proven {
            let finished = long(2, &cid(1, number), &[number; 8]);
            client.send_to(&finished, self.service()).unwrap();
            receive(&self.backends[0]);
        }
        upstream
    }

    /// Changes the backend, once the balancer has done everything it was sent: what it is sent
    /// afterwards is routed as the change says.
    fn change(&self, change: Change) {
        let begin = Instant::now();
        let opened = |status: &Status| (status.up.received, status.down.received) == (4, 2);
        while !opened(&self.balancer.status()) {
            assert!(begin.elapsed() < PATIENCE, "{:?}", self.balancer.status());
            std::thread::sleep(Duration::from_millis(5));
        }
        let state = match change {
            Change::None => return,
            Change::Drained => BackendState::Draining,
            Change::Down => BackendState::Down,
            Change::Removed => {
                let second = Self::backend((2, &self.backends[1]));
                self.balancer
                    .reconfigure(vec![second], vec![encoding()])
                    .unwrap();
                return;
            }
        };
        assert!(self.balancer.set_state("b1", state));
    }

    /// Sends every error about this. `upstream` is where the first backend sees the client.
    fn forge(&self, message: IcmpMessage, about: About, client: &UdpSocket, upstream: SocketAddr) {
        let (from, to) = match about {
            About::Nobody => return,
            About::Client => (self.service(), client.local_addr().unwrap()),
            About::Backend => (upstream, self.backends[0].local_addr().unwrap()),
        };
        // All of this host has one address in IPv6, whose MTU is not to be lied about.
        let elsewhere = "[2001:db8::9]:443".parse().unwrap();
        let to = if self.is_v6 { elsewhere } else { to };
        let forger = Forger::new(from, to).unwrap();
        for _ in 0..REPEATED {
            forger.send(message, &[0x40; 64]).unwrap();
        }
    }

    /// The client sends a datagram, and whoever receives it answers. Returns who that was, and the
    /// address that it saw the client at.
    fn exchange(&self, client: &UdpSocket, number: u8, change: Change) -> (usize, SocketAddr) {
        // Which backend that is has its test in `engine/states.rs`.
        let expected = match change {
            Change::None | Change::Drained => 0,
            Change::Down | Change::Removed => 1,
        };
        client.send_to(&short(1, number), self.service()).unwrap();
        // The balancer's own packets ask it to reset the connections of one that is down.
        let (packet, upstream) = std::iter::repeat_with(|| receive(&self.backends[expected]))
            .find(|(packet, _)| *packet == short(1, number))
            .unwrap();
        self.backends[expected].send_to(&packet, upstream).unwrap();
        let (packet, from) = receive(client);
        assert_eq!((packet, from), (short(1, number), self.service()));
        (expected, upstream)
    }
}

/// Sends every error about flows in each state while they are used. Returns what became of the flows,
/// and the balancer's counts.
fn outcomes(mode: Mode, change: Change, about: About, is_v6: bool) -> (String, Status) {
    let world = World::new(mode, is_v6);
    let clients: Vec<_> = (0..)
        .zip(FLOWS)
        .map(|(number, flow)| {
            let client = socket(is_v6, 10 + number);
            let upstream = world.open(&client, number, flow);
            (number, flow, client, upstream)
        })
        .collect();
    world.change(change);
    let mut table = String::new();
    for (number, flow, client, upstream) in &clients {
        let mut seen = Vec::new();
        for message in IcmpMessage::all(world.service().ip()) {
            world.forge(message, about, client, *upstream);
            seen.push(world.exchange(client, *number, change));
        }
        seen.dedup();
        let [(backend, at)] = seen[..] else {
            panic!("{flow:?} {change:?} {about:?}: a flow has moved: {seen:?}");
        };
        let kept = at == *upstream;
        writeln!(table, "{flow:?}: b{}, upstream kept: {kept}", backend + 1).unwrap();
    }
    assert!(world.balancer.is_running());
    (table, world.balancer.stop().unwrap())
}

fn can_forge() -> bool {
    let local = "127.91.7.3:9".parse().unwrap();
    let can = Forger::new(local, local).is_ok();
    if !can {
        eprintln!("skipped: forging ICMP needs a raw socket (CAP_NET_RAW)");
    }
    can
}

fn icmp_errors_change_nothing(mode: Mode, is_v6: bool) {
    if !can_forge() {
        return;
    }
    for change in CHANGES {
        let (undisturbed, without) = outcomes(mode, change, About::Nobody, is_v6);
        let backend = match change {
            Change::None | Change::Drained => "b1, upstream kept: true",
            Change::Down | Change::Removed => "b2",
        };
        assert!(undisturbed.contains(backend), "{change:?}: {undisturbed}");
        for about in [About::Client, About::Backend] {
            let (disturbed, with) = outcomes(mode, change, about, is_v6);
            let case = format!("{mode:?} {change:?} {about:?}");
            assert_eq!(kept(&disturbed), kept(&undisturbed), "{case}");
            assert_eq!((with.up, with.down), (without.up, without.down), "{case}");
            assert_eq!((with.up.dropped(), with.down.dropped()), (0, 0), "{case}");
            assert!(with.up.is_conserved() && with.down.is_conserved());
            assert_eq!(with.flows, without.flows, "{case}");
            assert_eq!(with.sockets, without.sockets, "{case}");
            let states = |status: &Status| -> Vec<BackendState> {
                status
                    .backends
                    .iter()
                    .map(|backend| backend.state)
                    .collect()
            };
            assert_eq!(states(&with), states(&without), "{case}");
        }
    }
}

/// The outcomes without ports of another backend's flows, which may have the same number by chance.
fn kept(table: &str) -> Vec<&str> {
    let rows = table.lines();
    rows.map(|row| row.split_once("b2").map_or(row, |(row, _)| row))
        .collect()
}

#[test]
fn icmp_errors_change_nothing_in_any_state() {
    icmp_errors_change_nothing(Mode::Batched, false);
}

#[test]
fn icmp_errors_change_nothing_in_any_state_over_ipv6() {
    if UdpSocket::bind("[::1]:0").is_ok() {
        icmp_errors_change_nothing(Mode::Batched, true);
    }
}

#[test]
fn icmp_errors_change_nothing_in_other_modes() {
    icmp_errors_change_nothing(Mode::Naive, false);
    icmp_errors_change_nothing(Mode::Decoupled, false);
}

/// A backend without a process: its host refuses every datagram. What others send goes on.
#[test]
fn refusals_of_a_real_backend_harm_no_other() {
    let world = World::new(Mode::Batched, false);
    let (first, second) = (socket(false, 20), socket(false, 21));
    world.open(&first, 0, Flow::Proven);
    let initial = long(0, &cid(2, 1), &[1; 8]);
    second.send_to(&initial, world.service()).unwrap();
    let (_, upstream) = receive(&world.backends[1]);
    let [closed, open] = &world.backends;
    let closed = closed.local_addr().unwrap();
    let World { balancer, .. } = &world;
    let other = open.try_clone().unwrap();
    let service = balancer.local_addr();
    let World {
        balancer, backends, ..
    } = world;
    drop(backends);
    for _ in 0..200 {
        first.send_to(&short(1, 0), service).unwrap();
        second.send_to(&short(2, 1), service).unwrap();
        let (packet, from) = receive(&other);
        assert_eq!((packet, from), (short(2, 1), upstream));
        other.send_to(&short(2, 1), from).unwrap();
        assert_eq!(receive(&second).0, short(2, 1));
    }
    // The same port is there again: its flow goes on.
    let again = UdpSocket::bind(closed).unwrap();
    again.set_read_timeout(Some(PATIENCE)).unwrap();
    first.send_to(&short(1, 0), service).unwrap();
    let (_, upstream) = receive(&again);
    again.send_to(&short(1, 0), upstream).unwrap();
    assert_eq!(receive(&first).0, short(1, 0));
    let status = balancer.stop().unwrap();
    assert!(status.up.is_conserved() && status.down.is_conserved());
    assert_eq!(status.up.received, status.up.forwarded, "{status:?}");
    let states = status.backends.iter().map(|backend| backend.state);
    assert_eq!(states.collect::<Vec<_>>(), [BackendState::Active; 2]);
}

/// Errors come faster than datagrams, at both of the balancer's sockets.
#[test]
fn flood_of_icmp_errors_loses_no_datagram() {
    if !can_forge() {
        return;
    }
    let world = World::new(Mode::Batched, false);
    let client = socket(false, 30);
    let upstream = world.open(&client, 0, Flow::Proven);
    let to = |from, to| {
        let forger = Forger::new(from, to).unwrap();
        forger.flood(IcmpMessage::all(world.service().ip()))
    };
    let floods = [
        to(world.service(), client.local_addr().unwrap()),
        to(upstream, world.backends[0].local_addr().unwrap()),
    ];
    while floods.iter().any(|flood| flood.sent() < 1_000) {
        std::thread::yield_now();
    }
    for _ in 0..2_000 {
        let (backend, at) = world.exchange(&client, 0, Change::None);
        assert_eq!((backend, at), (0, upstream));
    }
    drop(floods);
    assert!(world.balancer.is_running());
    let status = world.balancer.stop().unwrap();
    assert_eq!((status.up.dropped(), status.down.dropped()), (0, 0));
    assert_eq!((status.up_overflowed, status.down_overflowed), (0, 0));
}
