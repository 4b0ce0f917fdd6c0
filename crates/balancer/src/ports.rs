//! Upstream sockets, and forwarding from clients to backends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use clearway_udp::{Options, RecvBatch, Socket};
use rustix::event::epoll;

use crate::engine::{Destination, Engine, Outgoing};
use crate::orphans::packet_for;
use crate::plan::Plan;
use crate::send::send;
use crate::traffic::Traffic;

/// The upstream sockets of a shard. They are opened when they are needed.
pub(crate) struct Ports {
    sockets: Vec<Socket>,
    epoll: OwnedFd,
    options: Options,
    /// Empty, but for its memory.
    outgoing: Outgoing<'static>,
    /// A socket could not be opened, which has been said.
    is_lacking: bool,
}

impl Ports {
    /// Creates an empty set whose sockets report to `epoll`, with their numbers as data.
    pub(crate) fn new(epoll: OwnedFd, options: &Options) -> Self {
        Self {
            sockets: Vec::new(),
            epoll,
            options: Options {
                reuse_port: false,
                ..options.clone()
            },
            outgoing: Outgoing::default(),
            is_lacking: false,
        }
    }

    pub(crate) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    pub(crate) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Returns how many messages the kernel has dropped because a socket's buffer was full.
    pub(crate) fn overflowed(&self) -> u64 {
        let sockets = self.sockets.iter();
        sockets.map(|socket| socket.counters().receive_drops).sum()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&Socket> {
        self.sockets.get(number)
    }

    /// Forwards the messages of clients to their backends.
    pub(crate) fn forward(&mut self, engine: &mut Engine, now: Duration, batch: &mut RecvBatch) {
        let mut outgoing = std::mem::take(&mut self.outgoing).emptied();
        for (meta, payload) in batch.messages() {
            engine.route_message(now, meta, payload, &mut outgoing);
        }
        self.open_for(outgoing.destinations(), engine.router.plan());
        engine.send_up(&self.sockets, &mut outgoing);
        self.outgoing = outgoing.emptied();
    }

    /// Has clients of backends that went down told by others, as many as have their turn.
    pub(crate) fn tell_orphans(&mut self, engine: &mut Engine, now: Duration) {
        while let Some(orphan) = engine.next_orphan(now) {
            let packet = packet_for(orphan.cid);
            let Some((to, mut transmit)) = engine.for_another_backend(now, orphan.client, &packet)
            else {
                continue;
            };
            self.open_for([to], engine.router.plan());
            if let Some(socket) = self.sockets.get(to.upstream.socket as usize) {
                // Not counted with what clients have sent.
                let mut sent = Traffic::default();
                send(socket, std::slice::from_mut(&mut transmit), &mut sent);
                engine.counts.reset_requests += sent.forwarded;
            }
        }
    }

    /// Opens the sockets that these datagrams are to be sent from.
    fn open_for(&mut self, to: impl IntoIterator<Item = Destination>, plan: &Plan) {
        let needed = to.into_iter().map(|to| to.upstream.socket).max();
        while needed.is_some_and(|needed| needed as usize >= self.sockets.len()) {
            if let Err(error) = self.add(plan) {
                // Datagrams for it are counted as dropped, and the next ones try again.
                if !self.is_lacking {
                    tracing::warn!(%error, "cannot open another upstream socket");
                }
                self.is_lacking = true;
                return;
            }
            self.is_lacking = false;
        }
    }

    fn add(&mut self, plan: &Plan) -> io::Result<()> {
        let socket = open(plan, &self.options)?;
        let data = epoll::EventData::new_u64(self.sockets.len() as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        self.sockets.push(socket);
        Ok(())
    }
}

/// Opens a socket with a port of its own, for every address of this host.
fn open(plan: &Plan, options: &Options) -> io::Result<Socket> {
    let v6 = plan
        .backends()
        .iter()
        .any(|backend| backend.address.is_ipv6());
    let any = if v6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    };
    Socket::bind(SocketAddr::new(any, 0), options)
}
