//! The socket, and the packets that wait for the time that quiche's pacing gives them.

use std::{collections::BTreeMap, net::SocketAddr, time::Instant};

use anyhow::Result;
use tokio::{net::UdpSocket, time::sleep_until};
use tokio_quiche::quiche::{Connection, Error};

/// Largest datagram that may come or go.
const LARGEST: usize = 65_536;

/// What happened first.
pub(crate) enum Arrival {
    /// A datagram of this length from this address, at the beginning of the buffer.
    Datagram(usize, SocketAddr),
    /// The deadline passed.
    Deadline,
}

/// A socket with its queue of packets to be sent.
pub(crate) struct Link {
    socket: UdpSocket,
    pub(crate) local: SocketAddr,
    /// By the time at which they go, and their order.
    waiting: BTreeMap<(Instant, u64), (Vec<u8>, SocketAddr)>,
    sequence: u64,
    pub(crate) buffer: Vec<u8>,
}

impl Link {
    pub(crate) async fn bind(address: SocketAddr) -> Result<Self> {
        let socket = UdpSocket::bind(address).await?;
        Ok(Self {
            local: socket.local_addr()?,
            socket,
            waiting: BTreeMap::new(),
            sequence: 0,
            buffer: vec![0; LARGEST],
        })
    }

    /// Queues a datagram that is not paced.
    pub(crate) fn push(&mut self, datagram: Vec<u8>, to: SocketAddr) {
        self.push_at(Instant::now(), datagram, to);
    }

    fn push_at(&mut self, at: Instant, datagram: Vec<u8>, to: SocketAddr) {
        self.waiting.insert((at, self.sequence), (datagram, to));
        self.sequence += 1;
    }

    /// Queues everything that a connection has to send.
    pub(crate) fn take_from(&mut self, connection: &mut Connection) -> Result<(), Error> {
        let mut packet = [0; 2048];
        loop {
            match connection.send(&mut packet) {
                Ok((length, info)) => self.push_at(info.at, packet[..length].to_vec(), info.to),
                Err(Error::Done) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends what is due until a datagram arrives or the deadline passes.
    pub(crate) async fn receive(&mut self, deadline: Option<Instant>) -> Result<Arrival> {
        loop {
            self.send_due(Instant::now()).await;
            let release = self.waiting.keys().next().map(|(at, _)| *at);
            let wake = match (release, deadline) {
                (Some(release), Some(deadline)) => Some(release.min(deadline)),
                (either, other) => either.or(other),
            };
            let wait = async {
                match wake {
                    Some(wake) => sleep_until(wake.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                received = self.socket.recv_from(&mut self.buffer) => {
                    // The error of an earlier datagram, which found nobody.
                    let Ok((length, from)) = received else { continue };
                    return Ok(Arrival::Datagram(length, from));
                }
                () = wait => {
                    if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                        return Ok(Arrival::Deadline);
                    }
                }
            }
        }
    }

    /// Sends everything, whenever it was due.
    pub(crate) async fn send_all(&mut self) {
        while let Some((_, (datagram, to))) = self.waiting.pop_first() {
            self.send(&datagram, to).await;
        }
    }

    async fn send_due(&mut self, now: Instant) {
        while let Some(entry) = self.waiting.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (datagram, to) = entry.remove();
            self.send(&datagram, to).await;
        }
    }

    async fn send(&self, datagram: &[u8], to: SocketAddr) {
        // A datagram that cannot be sent is lost like one on the way.
        let _ = self.socket.send_to(datagram, to).await;
    }
}
