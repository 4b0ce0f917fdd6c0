//! Decisions about received messages: which upstream port or client each part goes to.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_quic::cid::ConnectionId;
use clearway_udp::{Meta, Transmit};

use crate::backend::BackendId;
use crate::flows::{FlowKey, Flows, Upstream};
use crate::header::Header;
use crate::orphans::{Orphan, Orphans};
use crate::plan::Plan;
use crate::report::ShardReport;
use crate::router::{Route, RouteStep, Router, Tuple};
use crate::sample::SampledSocket;
use crate::send::{datagrams, emptied, send};
use crate::strays::{HandOver, Stray, Strays};
use crate::traffic::DropReason;

/// What decides about datagrams, apart from the sockets they are read from.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) router: Router,
    pub(crate) flows: Flows,
    pub(crate) counts: ShardReport,
    pub(crate) orphans: Orphans,
    /// Only in transparent mode with several shards.
    pub(crate) strays: Option<Strays>,
    /// Processor time to waste on each datagram.
    pub(crate) work: Duration,
}

/// Where datagrams of a client go, and the upstream port that they are sent from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) upstream: Upstream,
    pub(crate) backend: BackendId,
}

/// Trains on their way to backends. Made once for all batches.
#[derive(Debug, Default)]
pub(crate) struct Outgoing<'a> {
    /// The destination of each of `routed`, and its place there.
    destinations: Vec<(Destination, u32)>,
    routed: Vec<Transmit<'a>>,
    /// The same in the order of sockets.
    sorted: Vec<Transmit<'a>>,
}

impl<'a> Outgoing<'a> {
    fn push(&mut self, (to, transmit): (Destination, Transmit<'a>)) {
        self.destinations.push((to, self.routed.len() as u32));
        self.routed.push(transmit);
    }

    /// Returns the trains with their destinations, as they were routed.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn trains(&self) -> impl Iterator<Item = (Destination, &Transmit<'a>)> {
        self.destinations().zip(&self.routed)
    }

    pub(crate) fn destinations(&self) -> impl Iterator<Item = Destination> {
        self.destinations.iter().map(|(to, _)| *to)
    }

    /// Orders the trains by socket, so that one call sends all of a socket. Those of one socket
    /// stay in the order that they came in.
    fn sort(&mut self) {
        let key = |(to, place): &(Destination, u32)| (to.upstream.socket, *place);
        if self.destinations.is_sorted_by_key(key) {
            std::mem::swap(&mut self.routed, &mut self.sorted);
            return;
        }
        self.destinations.sort_unstable_by_key(key);
        let places = self.destinations.iter().map(|(_, place)| *place as usize);
        let trains = places.filter_map(|place| self.routed.get(place).cloned());
        self.sorted.extend(trains);
    }

    /// Removes all, and keeps the memory for trains that are borrowed from elsewhere.
    pub(crate) fn emptied<'b>(mut self) -> Outgoing<'b> {
        self.destinations.clear();
        Outgoing {
            destinations: self.destinations,
            routed: emptied(self.routed),
            sorted: emptied(self.sorted),
        }
    }
}

impl Engine {
    /// Routes every datagram of a message that has arrived, unless another shard has its client's port.
    pub(crate) fn route_arrived<'a>(
        &mut self,
        now: Duration,
        meta: &Meta,
        payload: &'a [u8],
        outgoing: &mut Outgoing<'a>,
    ) {
        let strays = self.strays.as_ref();
        match strays.map_or(HandOver::Own, |strays| strays.hand_over(meta, payload)) {
            HandOver::Own => self.route_message(now, meta, payload, outgoing),
            HandOver::Done => {}
            HandOver::Full => {
                let count = meta.datagrams() as u64;
                self.counts.up.received += count;
                self.counts.up.drop(DropReason::QueueFull, count);
            }
        }
    }

    /// Returns the messages that other shards have handed over.
    pub(crate) fn take_strays(&self) -> Vec<Stray> {
        self.strays.as_ref().map(Strays::take).unwrap_or_default()
    }

    /// Routes every datagram of a message; those for one connection ID stay together.
    pub(crate) fn route_message<'a>(
        &mut self,
        now: Duration,
        meta: &Meta,
        payload: &'a [u8],
        outgoing: &mut Outgoing<'a>,
    ) {
        let from = Tuple {
            client: meta.remote,
            service: meta.local_ip,
        };
        let stride = meta.stride.max(1);
        self.counts.up.received += meta.datagrams() as u64;
        if payload.is_empty() {
            self.counts
                .up
                .drop(DropReason::Empty, meta.datagrams() as u64);
            return;
        }
        // The run that is being extended: its route, its first datagram, where it starts.
        let mut run: Option<(Route, Upstream, usize)> = None;
        let mut end = 0;
        for datagram in payload.chunks(stride) {
            let start = end;
            end += datagram.len();
            spin(self.work);
            if let Some((route, _, first)) = &run
                && let Some(head) = payload.get(*first..*first + stride)
                && is_same_connection(route, head, datagram)
            {
                continue;
            }
            if let Some((route, upstream, first)) = run.take() {
                let part = payload.get(first..start).unwrap_or_default();
                outgoing.push(self.outgoing(route.backend, upstream, meta, part));
            }
            match self.route(now, from, datagram) {
                Ok((route, upstream)) => run = Some((route, upstream, start)),
                Err(reason) => self.counts.up.drop(reason, 1),
            }
        }
        if let Some((route, upstream, first)) = run {
            let part = payload.get(first..).unwrap_or_default();
            outgoing.push(self.outgoing(route.backend, upstream, meta, part));
        }
    }

    fn route(
        &mut self,
        now: Duration,
        from: Tuple,
        datagram: &[u8],
    ) -> Result<(Route, Upstream), DropReason> {
        let route = self.router.route(now, from, datagram)?;
        let key = FlowKey {
            tuple: from,
            backend: route.backend,
        };
        let cid = route
            .cid
            .and_then(|(start, len)| datagram.get(start..start + len));
        let is_short = is_short(datagram);
        let known = cid.filter(|_| is_short).and_then(ConnectionId::new);
        let flow = self.flows.upstream_of(now, key, known)?;
        if let Some(cid) = cid.filter(|_| !is_short) {
            self.flows.confirm(now, &key, cid);
        }
        if route.step == RouteStep::Assigned {
            self.counts.backend(route.backend).assigned += 1;
        }
        Ok((route, flow.upstream))
    }

    fn outgoing<'a>(
        &self,
        backend: BackendId,
        upstream: Upstream,
        meta: &Meta,
        contents: &'a [u8],
    ) -> (Destination, Transmit<'a>) {
        let address = self.router.plan().backend(backend);
        // A backend that was just routed to is in the plan.
        let unspecified = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut transmit = Transmit::new(
            address.map_or(unspecified, |backend| backend.address),
            contents,
        );
        transmit.local_ip = self.flows.source_for(upstream, meta.remote.ip());
        transmit.ecn = meta.ecn;
        transmit.segment_size = Some(meta.stride);
        (Destination { upstream, backend }, transmit)
    }

    /// Follows another plan from now on.
    pub(crate) fn set_plan(&mut self, plan: Arc<Plan>) {
        let before = self.router.plan();
        self.orphans.find(before, &plan, &self.flows);
        self.router.set_plan(plan);
    }

    /// Returns the next client whose backend went down and that is to be told at `now`.
    pub(crate) fn next_orphan(&mut self, now: Duration) -> Option<Orphan> {
        self.orphans.next(now, self.router.plan())
    }

    /// Addresses `packet` to a backend that answers it, with a stateless reset, in the place of
    /// the one that the client had. Returns `None` if it has answered already.
    pub(crate) fn for_another_backend<'a>(
        &mut self,
        now: Duration,
        orphan: &Orphan,
        packet: &'a [u8],
    ) -> Option<(Destination, Transmit<'a>)> {
        let client = orphan.client;
        let backend = self.router.preferred(client)?;
        let key = FlowKey {
            tuple: client,
            backend,
        };
        if orphan.is_told() && self.flows.is_answered(&key) {
            return None;
        }
        let upstream = self.flows.upstream(now, key).ok()?.upstream;
        let mut meta = Meta::new(client.client);
        meta.stride = packet.len();
        Some(self.outgoing(backend, upstream, &meta, packet))
    }

    /// Sends what was routed, each train from its upstream port.
    pub(crate) fn send_up<'s>(
        &mut self,
        port: impl Fn(u32) -> Option<&'s SampledSocket>,
        outgoing: &mut Outgoing<'_>,
    ) {
        outgoing.sort();
        for (&(to, _), transmit) in outgoing.destinations.iter().zip(&outgoing.sorted) {
            self.counts.backend(to.backend).sent += datagrams(transmit);
        }
        let mut rest = outgoing.sorted.as_mut_slice();
        let same_socket = |a: &(Destination, u32), b: &(Destination, u32)| {
            a.0.upstream.socket == b.0.upstream.socket
        };
        for run in outgoing.destinations.chunk_by(same_socket) {
            let Some((first, transmits)) = run.first().zip(rest.split_off_mut(..run.len())) else {
                return;
            };
            match port(first.0.upstream.socket) {
                Some(port) => send(port, transmits, &mut self.counts.up),
                None => {
                    let lost = transmits.iter().map(datagrams).sum();
                    self.counts.up.drop(DropReason::NoUpstreamPort, lost);
                }
            }
        }
    }

    /// Finds the client of a backend's message. All of it has one destination address, and so
    /// one client.
    pub(crate) fn route_reply<'a>(
        &mut self,
        now: Duration,
        port: u32,
        meta: &Meta,
        payload: &'a [u8],
    ) -> Option<Transmit<'a>> {
        let count = meta.datagrams() as u64;
        self.counts.down.received += count;
        for _ in 0..count {
            spin(self.work);
        }
        let reply = self.reply_client(port, meta, payload.is_empty());
        let (backend, client) = match reply {
            Ok(found) => found,
            Err(reason) => {
                self.counts.down.drop(reason, count);
                return None;
            }
        };
        let counts = self.counts.backend(backend);
        counts.received += count;
        for datagram in payload.chunks(meta.stride.max(1)) {
            let long = datagram.first().is_some_and(|first| first & 0x80 != 0);
            if !long {
                continue;
            }
            if self.router.learn(now, backend, datagram) {
                self.counts.backend(backend).unroutable += 1;
            }
            if let Some(cid) = chosen_cid(datagram) {
                let tuple = client;
                self.flows.offer(&FlowKey { tuple, backend }, cid);
            }
        }
        let mut transmit = Transmit::new(client.client, payload);
        transmit.local_ip = client.service;
        transmit.ecn = meta.ecn;
        transmit.segment_size = Some(meta.stride);
        Some(transmit)
    }

    fn reply_client(
        &mut self,
        port: u32,
        meta: &Meta,
        empty: bool,
    ) -> Result<(BackendId, Tuple), DropReason> {
        if empty {
            return Err(DropReason::Empty);
        }
        let backend = self.router.plan().backend_at(meta.remote);
        let backend = backend.ok_or(DropReason::UnknownSender)?;
        let client = self.flows.client(backend, port, meta.local_ip)?;
        Ok((backend, client))
    }
}

/// Returns whether two datagrams of one train have short headers with the same connection ID, so
/// that the second goes where the first went.
fn is_same_connection(route: &Route, first: &[u8], second: &[u8]) -> bool {
    let decided_by_cid = match route.step {
        RouteStep::ServerId | RouteStep::ConnectionId => true,
        RouteStep::Handshake | RouteStep::Addresses | RouteStep::Assigned => false,
    };
    let Some((start, len)) = route.cid.filter(|_| decided_by_cid) else {
        return false;
    };
    let cid = first.get(start..start + len);
    is_short(first) && is_short(second) && cid.is_some() && cid == second.get(start..start + len)
}

/// Returns the connection ID that a backend chose in a datagram with a long header. That of a Version
/// Negotiation packet is the client's (RFC 8999 §6).
fn chosen_cid(datagram: &[u8]) -> Option<&[u8]> {
    match Header::parse(datagram)? {
        Header::Long { version: 0, .. } | Header::Short { .. } => None,
        Header::Long { scid, .. } => Some(scid),
    }
}

fn is_short(datagram: &[u8]) -> bool {
    matches!(Header::parse(datagram), Some(Header::Short { .. }))
}

/// Keeps the processor busy.
fn spin(work: Duration) {
    if work.is_zero() {
        return;
    }
    let start = Instant::now();
    while start.elapsed() < work {
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod states;
#[cfg(test)]
mod tests;
