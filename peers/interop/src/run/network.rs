//! The network between the ends: a relay that puts datagrams through link models and records what
//! was sent.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clearway_links::{Direction, Ecn, LinkConfig, Packet, Path, Time};
use clearway_udp::{Options, RecvBatch, Socket, Transmit};

use super::capture::{Capture, Datagram, Sender};

/// Longest pause between two looks at the sockets. It makes the path longer than its links say:
/// 0.8 ms of 30 with 200 µs, which a halved window of NewReno does not fill.
const TICK: Duration = Duration::from_micros(100);

/// Returns how long to wait before looking at a path again.
pub(super) fn pause(path: &Path, now: Time) -> Duration {
    let due = path.next_event().map_or(u64::MAX, |due| due.0);
    TICK.min(Duration::from_nanos(due.saturating_sub(now.0)))
}

/// How the client's address, as the server sees it, changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rebinding {
    /// It does not.
    Never,
    /// Its port changes at 1, 6, 11 … s.
    Port,
    /// Its address changes too.
    Address,
}

/// What a network is like.
pub(crate) struct Conditions {
    /// Specifications of links, towards the server and towards the client.
    pub(crate) up: &'static str,
    pub(crate) down: &'static str,
    pub(crate) rebinding: Rebinding,
    pub(crate) ipv6: bool,
}

/// A relay before a server, on a thread of its own.
pub(crate) struct Network {
    /// The address of the server, as clients see it.
    pub(crate) address: SocketAddr,
    /// Another address of the server, as clients see it: its preferred address. IPv4 only.
    pub(crate) preferred: Option<SocketAddr>,
    relay: Option<Relay>,
    capture: Arc<Mutex<Capture>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Binds its sockets. The server will listen on the port `server` of all addresses.
    pub(crate) fn new(server: u16, conditions: &Conditions, seed: u64) -> Result<Self> {
        let link = |spec: &str| -> Result<LinkConfig> {
            let link = spec.parse::<LinkConfig>();
            link.with_context(|| format!("invalid link {spec:?}"))
        };
        let hosts: &[IpAddr] = if conditions.ipv6 {
            &[IpAddr::V6(Ipv6Addr::LOCALHOST)]
        } else {
            &[IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V4(PREFERRED)]
        };
        let fronts: Result<Vec<Front>> = hosts
            .iter()
            .map(|host| {
                let socket = bind(*host)?;
                Ok(Front {
                    address: socket.local_addr()?,
                    server: SocketAddr::new(*host, server),
                    socket,
                })
            })
            .collect();
        let fronts = fronts?;
        let addresses: Vec<SocketAddr> = fronts.iter().map(|front| front.address).collect();
        let capture = Arc::new(Mutex::new(Capture::default()));
        let relay = Relay {
            fronts,
            path: Path::new(link(conditions.up)?, link(conditions.down)?, seed),
            clients: HashMap::new(),
            begun: Instant::now(),
            rebinding: conditions.rebinding,
            rebound: 0,
            capture: capture.clone(),
        };
        Ok(Self {
            address: *addresses.first().context("a network has an address")?,
            preferred: addresses.get(1).copied(),
            relay: Some(relay),
            capture,
            ended: Arc::new(AtomicBool::new(false)),
            thread: None,
        })
    }

    /// Starts it.
    pub(crate) fn start(&mut self) {
        let Some(mut relay) = self.relay.take() else {
            return;
        };
        relay.begun = Instant::now();
        let stop = self.ended.clone();
        self.thread = Some(std::thread::spawn(move || {
            let mut batch = RecvBatch::new(32, 1 << 16);
            while !stop.load(Ordering::Relaxed) {
                relay.turn(&mut batch);
            }
        }));
    }

    /// Ends it and returns what was recorded.
    pub(crate) fn end(mut self) -> Capture {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        std::mem::take(&mut *lock(&self.capture))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn lock(capture: &Mutex<Capture>) -> std::sync::MutexGuard<'_, Capture> {
    capture
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A socket towards clients, and the server's address that it stands for.
struct Front {
    socket: Socket,
    address: SocketAddr,
    server: SocketAddr,
}

/// A client and the front that it sends to.
type ClientPath = (SocketAddr, usize);

struct Relay {
    fronts: Vec<Front>,
    path: Path,
    /// The socket towards the server of each client, and its address.
    clients: HashMap<ClientPath, (Socket, SocketAddr)>,
    begun: Instant,
    rebinding: Rebinding,
    /// How often clients have been given new sockets.
    rebound: u64,
    capture: Arc<Mutex<Capture>>,
}

impl Relay {
    /// Receives, rebinds and delivers what is due, then pauses.
    fn turn(&mut self, batch: &mut RecvBatch) {
        self.rebind_if_due();
        self.receive_from_clients(batch);
        self.receive_from_server(batch);
        let now = self.now();
        while let Some((direction, packet)) = self.path.poll(now) {
            self.deliver(direction, &packet);
        }
        std::thread::sleep(pause(&self.path, now));
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn receive_from_clients(&mut self, batch: &mut RecvBatch) {
        for at in 0..self.fronts.len() {
            let Some((address, server, arrived)) = self.fronts.get(at).map(|front| {
                let arrived = receive(&front.socket, batch);
                (front.address, front.server, arrived)
            }) else {
                return;
            };
            for (client, ecn, bytes) in arrived {
                let (_, outside) = self
                    .clients
                    .entry((client, at))
                    .or_insert_with(|| upstream(server, server.ip()));
                let datagram = Datagram {
                    sender: Sender::Client,
                    client_inside: client,
                    client: *outside,
                    server: address,
                    ecn,
                    bytes,
                };
                self.send(Direction::Up, (client, address), datagram);
            }
        }
    }

    fn receive_from_server(&mut self, batch: &mut RecvBatch) {
        let mut arrived = Vec::new();
        for ((client, at), (socket, outside)) in &self.clients {
            let Some(front) = self.fronts.get(*at) else {
                continue;
            };
            for (_, ecn, bytes) in receive(socket, batch) {
                let datagram = Datagram {
                    sender: Sender::Server,
                    client_inside: *client,
                    client: *outside,
                    server: front.address,
                    ecn,
                    bytes,
                };
                arrived.push(((*client, front.address), datagram));
            }
        }
        for (ends, datagram) in arrived {
            self.send(Direction::Down, ends, datagram);
        }
    }

    fn send(
        &mut self,
        direction: Direction,
        (client, front): (SocketAddr, SocketAddr),
        datagram: Datagram,
    ) {
        let now = self.now();
        let (src, dst) = match direction {
            Direction::Up => (client, front),
            Direction::Down => (front, client),
        };
        let packet = Packet::new(src, dst, datagram.bytes.clone()).with_ecn(datagram.ecn);
        lock(&self.capture).record(datagram);
        let _ = self.path.send(now, direction, packet);
    }

    fn deliver(&self, direction: Direction, packet: &Packet) {
        let front = match direction {
            Direction::Up => packet.dst,
            Direction::Down => packet.src,
        };
        let mut fronts = self.fronts.iter().enumerate();
        let Some((at, front)) = fronts.find(|(_, it)| it.address == front) else {
            return;
        };
        match direction {
            Direction::Up => {
                let Some((socket, outside)) = self.clients.get(&(packet.src, at)) else {
                    return;
                };
                lock(&self.capture).record_arrival_at_server(*outside, &packet.data);
                send(socket, front.server, packet);
            }
            Direction::Down => {
                let now = Duration::from_nanos(self.now().0);
                lock(&self.capture).record_arrival_at_client(now, &packet.data);
                send(&front.socket, packet.dst, packet);
            }
        }
    }

    fn rebind_if_due(&mut self) {
        let seconds = self.begun.elapsed().as_secs();
        let due = if seconds < 1 {
            0
        } else {
            1 + (seconds - 1) / 5
        };
        if self.rebinding == Rebinding::Never || due <= self.rebound {
            return;
        }
        self.rebound = due;
        for ((_, at), client) in &mut self.clients {
            let Some(front) = self.fronts.get(*at) else {
                continue;
            };
            let from = match self.rebinding {
                Rebinding::Address => Ipv4Addr::new(127, 0, 1, (due % 250) as u8 + 1).into(),
                Rebinding::Never | Rebinding::Port => front.server.ip(),
            };
            *client = upstream(front.server, from);
        }
    }
}

/// A second address of this host, which stands for the server's preferred one.
const PREFERRED: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// A socket without segmentation offload: each datagram is recorded by itself.
fn bind(host: IpAddr) -> Result<Socket> {
    let options = Options {
        gso: false,
        gro: false,
        ..Options::default()
    };
    Ok(Socket::bind(SocketAddr::new(host, 0), &options)?)
}

/// A socket towards the server, from an address of this host.
#[expect(clippy::expect_used, reason = "without a socket there is no network")]
fn upstream(server: SocketAddr, from: IpAddr) -> (Socket, SocketAddr) {
    let from = if server.is_ipv6() { server.ip() } else { from };
    let socket = bind(from).expect("a socket on loopback");
    let address = socket.local_addr().expect("a socket has an address");
    (socket, address)
}

/// Returns the datagrams that wait: sender, ECN field and content.
fn receive(socket: &Socket, batch: &mut RecvBatch) -> Vec<(SocketAddr, Ecn, Vec<u8>)> {
    let mut arrived = Vec::new();
    // ICMP about an end that has gone is not an error here.
    while socket.recv(batch).is_ok() {
        arrived.extend(batch.datagrams().map(|(meta, datagram)| {
            let ecn = meta.ecn.map_or(0, clearway_udp::Ecn::bits);
            (meta.remote, Ecn::from_bits(ecn), datagram.to_vec())
        }));
    }
    arrived
}

/// Sends a datagram; what cannot be sent is lost.
fn send(socket: &Socket, to: SocketAddr, packet: &Packet) {
    let mut transmit = Transmit::new(to, &packet.data);
    transmit.ecn = clearway_udp::Ecn::from_bits(packet.ecn.bits());
    let _ = socket.send(&mut transmit);
}
