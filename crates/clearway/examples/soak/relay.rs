//! The network between a client and the server: a link model in real time for each direction,
//! behind a NAT that changes its binding every few seconds.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clearway_links::{Dice, Link, LinkConfig, Packet, Time};
use tokio::net::UdpSocket;
use tokio::time::Instant;

/// What each direction does to datagrams.
const LINK: &str = "delay=3ms jitter=1ms loss=0.3% reorder=1%:4ms duplicate=0.1% corrupt=0.1%";

/// The minimum lifetime of a binding; the maximum is twice as long.
const BINDING: Duration = Duration::from_secs(4);

/// Since the last long header: QUIC relies on stable addresses for the duration of
/// the handshake (RFC 9000 §9), so the binding holds as long as one may be under
/// way, a repetition of its first flight included.
const HANDSHAKE: Duration = Duration::from_secs(2);

const ANY: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// What all relays counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) rebinds: AtomicU64,
    pub(crate) datagrams: AtomicU64,
}

/// The path between one client and the server.
struct Relay {
    /// Towards the client, whose address is that of its last datagram.
    inside: UdpSocket,
    client: Option<SocketAddr>,
    /// Towards the server; replaced to rebind.
    outside: UdpSocket,
    server: SocketAddr,
    up: Link,
    down: Link,
    dice: Dice,
    rebind_at: Instant,
    started: Instant,
    counts: Arc<Counts>,
}

/// Starts a relay to `server`. Returns its address for the client.
pub(crate) async fn start(
    server: SocketAddr,
    seed: u64,
    counts: Arc<Counts>,
) -> io::Result<SocketAddr> {
    let config: LinkConfig = LINK.parse().map_err(io::Error::other)?;
    let inside = UdpSocket::bind(ANY).await?;
    let address = inside.local_addr()?;
    let now = Instant::now();
    let relay = Relay {
        inside,
        client: None,
        outside: UdpSocket::bind(ANY).await?,
        server,
        up: Link::new(config.clone(), seed),
        down: Link::new(config, seed + 1),
        dice: Dice::new(seed, 2),
        rebind_at: now + BINDING,
        started: now,
        counts,
    };
    tokio::spawn(relay.run());
    Ok(address)
}

impl Relay {
    async fn run(mut self) {
        loop {
            let next = [self.up.next_event(), self.down.next_event()];
            let next = next.into_iter().flatten().min();
            let wake = next.map_or(self.rebind_at, |next| {
                let at = self.started + Duration::from_nanos(next.as_nanos());
                at.min(self.rebind_at)
            });
            tokio::select! {
                _ = self.inside.readable() => self.take_up(),
                _ = self.outside.readable() => self.take_down(),
                () = tokio::time::sleep_until(wake) => {}
            }
            if Instant::now() >= self.rebind_at {
                self.rebind().await;
            }
            self.deliver();
        }
    }

    fn now(&self) -> Time {
        let elapsed = self.started.elapsed().as_nanos();
        Time::from_nanos(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    fn take_up(&mut self) {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = self.inside.try_recv_from(&mut buffer) {
            self.client = Some(from);
            self.respect_handshake(&buffer[..len]);
            let packet = Packet::new(from, self.server, buffer[..len].to_vec());
            // What the model drops is dropped.
            let _ = self.up.send(self.now(), packet);
        }
    }

    fn take_down(&mut self) {
        let mut buffer = [0; 2048];
        // An error is an ICMP message about an earlier datagram.
        while let Ok((len, from)) = self.outside.try_recv_from(&mut buffer) {
            let Some(client) = self.client else { continue };
            self.respect_handshake(&buffer[..len]);
            let packet = Packet::new(from, client, buffer[..len].to_vec());
            let _ = self.down.send(self.now(), packet);
        }
    }

    fn respect_handshake(&mut self, datagram: &[u8]) {
        // Header Form (RFC 8999 §5.1).
        if datagram.first().is_some_and(|first| first & 0x80 != 0) {
            self.rebind_at = self.rebind_at.max(Instant::now() + HANDSHAKE);
        }
    }

    /// Datagrams that the socket does not send are lost, as on any network.
    fn deliver(&mut self) {
        let now = self.now();
        let mut delivered = 0;
        while let Some(packet) = self.up.poll(now) {
            let _ = self.outside.try_send_to(&packet.data, self.server);
            delivered += 1;
        }
        while let Some(packet) = self.down.poll(now) {
            let _ = self.inside.try_send_to(&packet.data, packet.dst);
            delivered += 1;
        }
        self.counts
            .datagrams
            .fetch_add(delivered, Ordering::Relaxed);
    }

    /// Changes the port at which the server sees the client. Datagrams on their way to the old
    /// one are lost.
    async fn rebind(&mut self) {
        if let Ok(socket) = UdpSocket::bind(ANY).await {
            self.outside = socket;
            self.counts.rebinds.fetch_add(1, Ordering::Relaxed);
        }
        self.rebind_at = Instant::now() + BINDING + self.dice.up_to(BINDING);
    }
}
