//! A network for whole IP packets: two network namespaces with a TUN device each, and the lab's link
//! models between them. A TCP connection of the kernel shares the links with QUIC. It takes root.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::process::CommandExt as _,
    process::Command,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use clearway_links::{Direction, Ecn, LinkConfig, Packet, Path, Time, Verdict};
use tun::AbstractDevice as _;

use super::{
    capture::{Capture, Datagram, Sender},
    cleanup,
    network::pause,
};

/// Addresses of the ends.
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 97, 0, 2);

/// Protocol numbers of IP (RFC 9293 §3.1, RFC 768).
const TCP: u8 = 6;
const UDP: u8 = 17;

/// What passed through.
#[derive(Default)]
pub(crate) struct Recorded {
    /// QUIC's datagrams.
    pub(crate) quic: Capture,
    /// TCP segments that reached the client.
    tcp: Vec<Segment>,
    /// Packets to the client that the queue dropped: when, and the port of their flow.
    dropped: Vec<(Duration, u16)>,
}

/// A TCP segment that reached the client.
struct Segment {
    at: Duration,
    /// The client's port, which tells TCP connections apart.
    port: u16,
    /// Bytes of content.
    content: usize,
}

/// A part of a test's time.
type Span = (Duration, Duration);

/// What the queue dropped of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drops {
    pub(crate) packets: usize,
    /// Drops within a round trip of the first count as one: a sender reduces its window once for them.
    pub(crate) episodes: usize,
}

/// The round trip of the path with a full queue, which bounds an episode of drops.
const ROUND_TRIP: Duration = Duration::from_millis(60);

impl Recorded {
    /// Returns when the content of the TCP connection to this port of the client began and
    /// ceased to arrive.
    pub(crate) fn tcp_arrived(&self, port: u16) -> Option<Span> {
        let mut arrived = self
            .tcp
            .iter()
            .filter(|it| it.port == port && it.content > 0)
            .map(|it| it.at);
        let first = arrived.next()?;
        Some((first, arrived.next_back().unwrap_or(first)))
    }

    /// Returns the rate of the content of the TCP connection to this port, in kbit/s.
    pub(crate) fn tcp_rate(&self, port: u16, (first, last): Span) -> u64 {
        let meanwhile = self
            .tcp
            .iter()
            .filter(|it| it.port == port && (first..=last).contains(&it.at));
        let bits: usize = meanwhile.map(|it| 8 * it.content).sum();
        (bits as f64 / (last - first).as_secs_f64() / 1000.0) as u64
    }

    /// Returns what the queue dropped of the flow with this port.
    pub(crate) fn drops(&self, port: u16, (first, last): Span) -> Drops {
        let mut drops = Drops {
            packets: 0,
            episodes: 0,
        };
        let mut begun = None;
        for (at, of) in &self.dropped {
            if *of != port || !(first..=last).contains(at) {
                continue;
            }
            drops.packets += 1;
            if begun.is_none_or(|begun| *at > begun + ROUND_TRIP) {
                drops.episodes += 1;
                begun = Some(*at);
            }
        }
        drops
    }
}

/// The namespaces, and a thread that carries packets between them. All of it ends when this is
/// dropped.
pub(crate) struct Tunnel {
    /// Names of the namespaces of client and server.
    pub(crate) spaces: [String; 2],
    recorded: Arc<Mutex<Recorded>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Tunnel {
    /// Makes namespaces and devices and starts to carry packets. QUIC's server is at `port`.
    pub(crate) fn new(link: &str, seed: u64, port: u16) -> Result<Self> {
        let id = std::process::id();
        let mut this = Self {
            spaces: [format!("cw-{id}-client"), format!("cw-{id}-server")],
            recorded: Arc::default(),
            ended: Arc::default(),
            thread: None,
        };
        // Held, so that a signal finds whole namespaces or none.
        let mut present = cleanup::present();
        present.namespaces.extend(this.spaces.iter().cloned());
        let [client, server] = &this.spaces;
        let carrier = Carrier {
            client: device(&format!("cw{id}c"), client, (CLIENT, SERVER))?,
            server: device(&format!("cw{id}s"), server, (SERVER, CLIENT))?,
            path: Path::symmetric(&link.parse::<LinkConfig>().context("invalid link")?, seed),
            begun: Instant::now(),
            port,
            recorded: this.recorded.clone(),
        };
        drop(present);
        let ended = this.ended.clone();
        this.thread = Some(std::thread::spawn(move || carrier.run(&ended)));
        Ok(this)
    }

    /// Ends it and returns what was recorded.
    pub(crate) fn end(mut self) -> Recorded {
        self.stop();
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *recorded)
    }

    fn stop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        for space in &self.spaces {
            // It does not exist if creating it failed.
            cleanup::delete_namespace(space);
            cleanup::present().namespaces.remove(space);
        }
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Creates a device in a namespace of its own.
fn device(name: &str, space: &str, (address, peer): (Ipv4Addr, Ipv4Addr)) -> Result<tun::Device> {
    ip(&format!("netns add {space}"))?;
    let mut configuration = tun::Configuration::default();
    configuration.tun_name(name).platform_config(|linux| {
        // Addresses are set below, in the namespace.
        linux.ensure_root_privileges(false);
    });
    let device = tun::create(&configuration).context("creating a TUN device, which takes root")?;
    device.set_nonblock()?;
    ip(&format!("link set {} netns {space}", device.tun_name()?))?;
    ip(&format!(
        "-n {space} addr add {address} peer {peer} dev {name}"
    ))?;
    ip(&format!("-n {space} link set {name} mtu 1500 up"))?;
    ip(&format!("-n {space} link set lo up"))?;
    Ok(device)
}

/// Runs `ip` with these arguments.
fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip")
        .args(arguments.split_whitespace())
        .process_group(0)
        .output()
        .context("running ip")?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("ip {arguments}: {}", error.trim());
    }
    Ok(())
}

struct Carrier {
    client: tun::Device,
    server: tun::Device,
    path: Path,
    begun: Instant,
    port: u16,
    recorded: Arc<Mutex<Recorded>>,
}

impl Carrier {
    fn run(mut self, ended: &AtomicBool) {
        let mut buffer = vec![0; 1 << 16];
        while !ended.load(Ordering::Relaxed) {
            for direction in [Direction::Up, Direction::Down] {
                while let Ok(len) = self.sender(direction).recv(&mut buffer) {
                    let packet = buffer.get(..len).unwrap_or_default().to_vec();
                    self.send(direction, packet);
                }
            }
            let now = self.now();
            while let Some((direction, packet)) = self.path.poll(now) {
                self.deliver(direction, &packet.data);
            }
            std::thread::sleep(pause(&self.path, now));
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn sender(&self, direction: Direction) -> &tun::Device {
        match direction {
            Direction::Up => &self.client,
            Direction::Down => &self.server,
        }
    }

    fn send(&mut self, direction: Direction, bytes: Vec<u8>) {
        let sender = match direction {
            Direction::Up => Sender::Client,
            Direction::Down => Sender::Server,
        };
        let Some(header) = Header::parse(&bytes) else {
            return; // IPv6, which asks for neighbours by itself.
        };
        if let Some(content) = header.quic(&bytes, self.port) {
            let [src, dst] = header.ends;
            let (client, server) = match direction {
                Direction::Up => (src, dst),
                Direction::Down => (dst, src),
            };
            self.record().quic.record(Datagram {
                sender,
                client_inside: client,
                client,
                server,
                ecn: header.ecn,
                bytes: content.to_vec(),
            });
        }
        let [src, dst] = header.ends;
        let packet = Packet::new(src, dst, bytes).with_ecn(header.ecn);
        let now = self.now();
        let verdict = self.path.send(now, direction, packet);
        if direction == Direction::Down && verdict != Verdict::Accepted {
            let port = match header.protocol {
                TCP => dst.port(),
                _ => src.port(),
            };
            let at = Duration::from_nanos(now.0);
            self.record().dropped.push((at, port));
        }
    }

    fn deliver(&self, direction: Direction, bytes: &[u8]) {
        if direction == Direction::Down
            && let Some(header) = Header::parse(bytes)
        {
            let now = Duration::from_nanos(self.now().0);
            if let Some(content) = header.quic(bytes, self.port) {
                self.record().quic.record_arrival_at_client(now, content);
            } else if header.protocol == TCP {
                let [_, client] = header.ends;
                let content = header.content(bytes).map_or(0, <[u8]>::len);
                self.record().tcp.push(Segment {
                    at: now,
                    port: client.port(),
                    content,
                });
            }
        }
        let receiver = match direction {
            Direction::Up => &self.server,
            Direction::Down => &self.client,
        };
        // What the kernel does not take is lost.
        let _ = receiver.send(bytes);
    }

    fn record(&self) -> std::sync::MutexGuard<'_, Recorded> {
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the headers of an IPv4 packet say.
struct Header {
    protocol: u8,
    ecn: Ecn,
    ends: [SocketAddr; 2],
    /// Where the header of UDP or TCP begins.
    inner: usize,
}

impl Header {
    fn parse(packet: &[u8]) -> Option<Self> {
        let first = *packet.first()?;
        if first >> 4 != 4 {
            return None;
        }
        let inner = usize::from(first & 0xf) * 4;
        let address = |at: usize| -> Option<IpAddr> {
            let octets: [u8; 4] = packet.get(at..at + 4)?.try_into().ok()?;
            Some(IpAddr::from(octets))
        };
        let port = |at: usize| -> Option<u16> {
            let octets = packet.get(at..at + 2)?.try_into().ok()?;
            Some(u16::from_be_bytes(octets))
        };
        Some(Self {
            protocol: *packet.get(9)?,
            ecn: Ecn::from_bits(*packet.get(1)?),
            ends: [
                SocketAddr::new(address(12)?, port(inner)?),
                SocketAddr::new(address(16)?, port(inner + 2)?),
            ],
            inner,
        })
    }

    /// Returns what UDP or TCP carry.
    fn content<'a>(&self, packet: &'a [u8]) -> Option<&'a [u8]> {
        let len = match self.protocol {
            UDP => 8,
            TCP => usize::from(packet.get(self.inner + 12)? >> 4) * 4,
            _ => return None,
        };
        packet.get(self.inner + len..)
    }

    /// Returns the datagram if it is one from or to this port.
    fn quic<'a>(&self, packet: &'a [u8], port: u16) -> Option<&'a [u8]> {
        let ours = self.ends.iter().any(|end| end.port() == port);
        (self.protocol == UDP && ours).then(|| self.content(packet))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_datagram_are_read() {
        let mut packet = vec![0x45, 0x02, 0, 32, 0, 0, 0, 0, 64, UDP, 0, 0];
        packet.extend(SERVER.octets());
        packet.extend(CLIENT.octets());
        packet.extend([0x01, 0xbb, 0xc0, 0x00, 0, 12, 0, 0]);
        packet.extend(b"quic");
        let header = Header::parse(&packet).expect("IPv4");
        assert_eq!(header.ecn, Ecn::Ect0);
        assert_eq!(header.ends[0], SocketAddr::new(SERVER.into(), 443));
        assert_eq!(header.quic(&packet, 443), Some(&b"quic"[..]));
        assert_eq!(header.quic(&packet, 80), None);
        for len in 0..24 {
            assert!(Header::parse(&packet[..len]).is_none(), "{len}");
        }
        assert!(Header::parse(&[0x60; 60]).is_none());
    }

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn tcp_counts_while_the_measured_flow_lasts() {
        let mut recorded = Recorded::default();
        for (at, port, content) in [
            (500, 1, 9_999),
            (1_000, 2, 0),
            (1_500, 1, 1_000),
            (2_000, 2, 9_999),
            (2_500, 1, 1_500),
            (3_500, 1, 9_999),
        ] {
            recorded.tcp.push(Segment {
                at: millis(at),
                port,
                content,
            });
        }
        assert_eq!(recorded.tcp_rate(1, (millis(1_000), millis(3_000))), 10);
        assert_eq!(recorded.tcp_arrived(1), Some((millis(500), millis(3_500))));
        assert_eq!(
            recorded.tcp_arrived(2),
            Some((millis(2_000), millis(2_000)))
        );
        assert_eq!(recorded.tcp_arrived(3), None);
    }

    #[test]
    fn drops_within_a_round_trip_are_one_episode() {
        let mut recorded = Recorded::default();
        for (at, port) in [(5, 1), (100, 1), (110, 2), (140, 1), (161, 1), (300, 1)] {
            recorded.dropped.push((millis(at), port));
        }
        let drops = recorded.drops(1, (millis(50), millis(200)));
        assert_eq!((drops.packets, drops.episodes), (3, 2));
    }
}
