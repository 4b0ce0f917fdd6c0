//! Upstream sockets, and forwarding from clients to backends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_udp::{DatagramSocket as _, Options, RecvBatch, Socket};
use rustix::event::epoll;

use crate::engine::{Destination, Engine, Outgoing};
use crate::orphans::packet_for;
use crate::plan::Plan;
use crate::sample::{SampleDirection, SampleLog, SampledSocket};
use crate::send::send;
use crate::traffic::Traffic;

/// How long nothing is said of sockets that cannot be opened, after it was said.
const SILENCE: Duration = Duration::from_secs(60);

/// How upstream sockets are opened.
#[derive(Debug)]
pub(crate) struct Opener {
    pub(crate) options: Options,
    /// Where their datagrams are counted.
    pub(crate) samples: Option<Arc<SampleLog>>,
}

/// The upstream sockets of a shard. They are opened when they are needed.
pub(crate) struct Ports {
    /// By number: counted up, or in transparent mode the port, so that there are gaps.
    sockets: Vec<Option<Box<SampledSocket>>>,
    /// How many there are.
    open: usize,
    /// What the kernel has dropped from sockets that were closed.
    closed_overflowed: u64,
    epoll: OwnedFd,
    opener: Opener,
    /// Empty, but for its memory.
    outgoing: Outgoing<'static>,
    /// When it was last said that a socket could not be opened.
    said: Option<Instant>,
}

impl Ports {
    /// Creates an empty set whose sockets report to `epoll`, with their numbers as data.
    pub(crate) fn new(epoll: OwnedFd, opener: Opener) -> Self {
        Self {
            sockets: Vec::new(),
            open: 0,
            closed_overflowed: 0,
            epoll,
            opener,
            outgoing: Outgoing::default(),
            said: None,
        }
    }

    pub(crate) fn epoll(&self) -> &OwnedFd {
        &self.epoll
    }

    pub(crate) fn len(&self) -> usize {
        self.open
    }

    /// Returns how many messages the kernel has dropped because a socket's buffer was full.
    pub(crate) fn overflowed(&self) -> u64 {
        let sockets = self.sockets.iter().flatten();
        let dropped = sockets.map(|socket| socket.counters().receive_drops);
        self.closed_overflowed + dropped.sum::<u64>()
    }

    pub(crate) fn get(&self, number: usize) -> Option<&SampledSocket> {
        find(&self.sockets, number)
    }

    /// Closes a socket that no flow uses any more.
    pub(crate) fn close(&mut self, number: u32) {
        let place = self.sockets.get_mut(number as usize);
        if let Some(socket) = place.and_then(Option::take) {
            self.open -= 1;
            self.closed_overflowed += socket.counters().receive_drops;
        }
    }

    /// Forwards the messages of clients to their backends.
    pub(crate) fn forward(&mut self, engine: &mut Engine, now: Duration, batch: &mut RecvBatch) {
        let mut outgoing = std::mem::take(&mut self.outgoing).emptied();
        for (meta, payload) in batch.messages() {
            engine.route_arrived(now, meta, payload, &mut outgoing);
        }
        self.send(engine, outgoing);
    }

    /// Forwards what has arrived at other shards. Returns how many messages there were.
    pub(crate) fn forward_strays(&mut self, engine: &mut Engine, now: Duration) -> usize {
        let strays = engine.take_strays();
        let mut outgoing = std::mem::take(&mut self.outgoing).emptied();
        for stray in &strays {
            engine.route_message(now, &stray.meta, &stray.payload, &mut outgoing);
        }
        self.send(engine, outgoing);
        strays.len()
    }

    fn send(&mut self, engine: &mut Engine, mut outgoing: Outgoing<'_>) {
        self.open_for(outgoing.destinations(), engine.router.plan());
        let sockets = &self.sockets;
        engine.send_up(|number| find(sockets, number as usize), &mut outgoing);
        self.outgoing = outgoing.emptied();
    }

    /// Has clients of backends that went down told by others, as many as have their turn.
    pub(crate) fn tell_orphans(&mut self, engine: &mut Engine, now: Duration) {
        while let Some(orphan) = engine.next_orphan(now) {
            let packet = packet_for(orphan.cid);
            let Some((to, mut transmit)) = engine.for_another_backend(now, &orphan, &packet) else {
                continue;
            };
            self.open_for([to], engine.router.plan());
            if let Some(socket) = find(&self.sockets, to.upstream.socket as usize) {
                // Not counted with what clients have sent.
                let mut sent = Traffic::default();
                send(socket, std::slice::from_mut(&mut transmit), &mut sent);
                engine.counts.reset_requests += sent.forwarded;
            }
            engine.orphans.repeat(orphan);
        }
    }

    /// Opens the sockets that these datagrams are to be sent from.
    fn open_for(&mut self, to: impl IntoIterator<Item = Destination>, plan: &Plan) {
        for to in to {
            let number = to.upstream.socket;
            if self.get(number as usize).is_some() {
                continue;
            }
            match self.add(number, plan) {
                Ok(()) => {}
                // Datagrams for it are counted as dropped, and the next ones try again. Others may
                // be opened: in transparent mode another program of this host may have this port.
                Err(error) => self.say(number, &error),
            }
        }
    }

    /// Strangers choose how often this happens.
    fn say(&mut self, number: u32, error: &io::Error) {
        if self.said.is_none_or(|said| said.elapsed() >= SILENCE) {
            self.said = Some(Instant::now());
            tracing::warn!(%error, "cannot open upstream socket {number}");
        }
    }

    fn add(&mut self, number: u32, plan: &Plan) -> io::Result<()> {
        let socket = self.opener.open(number, plan)?;
        let data = epoll::EventData::new_u64(u64::from(number));
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        let place = number as usize;
        if place >= self.sockets.len() {
            self.sockets.resize_with(place + 1, || None);
        }
        if let Some(place) = self.sockets.get_mut(place) {
            *place = Some(Box::new(socket));
            self.open += 1;
        }
        Ok(())
    }
}

fn find(sockets: &[Option<Box<SampledSocket>>], number: usize) -> Option<&SampledSocket> {
    sockets.get(number)?.as_deref()
}

impl Opener {
    /// Opens a socket for every address of this host, with a port of its own; in transparent mode
    /// for every address there is, and with the port that is its number.
    fn open(&self, number: u32, plan: &Plan) -> io::Result<SampledSocket> {
        let port = if self.options.transparent {
            // Port 0 would be any port.
            let port = u16::try_from(number).ok().filter(|&port| port > 0);
            port.ok_or(io::ErrorKind::InvalidInput)?
        } else {
            0
        };
        let socket = Socket::bind(SocketAddr::new(any(plan), port), &self.options)?;
        Ok(match &self.samples {
            Some(log) => SampledSocket::new(
                socket,
                log.clone(),
                crate::service::SERVER_SIDE,
                SampleDirection::Down,
            ),
            None => socket.into(),
        })
    }
}

/// Returns the wildcard address of the backends' family.
fn any(plan: &Plan) -> IpAddr {
    let v6 = plan
        .backends()
        .iter()
        .any(|backend| backend.address.is_ipv6());
    if v6 {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    }
}
