//! The data path of a shard without sockets and clocks, for fuzzing.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use clearway_udp::Meta;

use crate::engine::{Engine, Outgoing};
use crate::orphans::{Orphans, packet_for};
use crate::plan::Plan;
use crate::report::ShardReport;
use crate::router::{Router, RouterLimits};
use crate::send::datagrams;
use crate::traffic::Traffic;
use crate::{BackendId, FlowCapacity, Flows};

/// A shard that sends nothing.
#[derive(Debug)]
pub struct DataPath {
    engine: Engine,
}

/// A train on its way to a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToBackend<'a> {
    /// The backend.
    pub backend: BackendId,
    /// The number of the upstream socket.
    pub socket: u32,
    /// The address that it is sent from.
    pub source: Option<IpAddr>,
    /// The datagrams.
    pub contents: &'a [u8],
}

impl DataPath {
    /// Creates a shard with empty tables.
    #[must_use]
    pub fn new(plan: Arc<Plan>, limits: RouterLimits, capacity: FlowCapacity) -> Self {
        Self {
            engine: Engine {
                router: Router::new(plan, limits),
                flows: Flows::new(capacity),
                counts: ShardReport::default(),
                orphans: Orphans::default(),
                strays: None,
                work: Duration::ZERO,
            },
        }
    }

    /// A message arrives at the service socket: a datagram, or datagrams of `stride` bytes.
    pub fn client_sends<'a>(
        &mut self,
        now: Duration,
        (client, service): (SocketAddr, Option<IpAddr>),
        contents: &'a [u8],
        stride: usize,
    ) -> Vec<ToBackend<'a>> {
        let meta = message(client, service, contents.len(), stride);
        let mut outgoing = Outgoing::default();
        self.engine
            .route_message(now, &meta, contents, &mut outgoing);
        let trains = outgoing.trains().map(|(to, train)| {
            self.engine.counts.up.forwarded += datagrams(train);
            ToBackend {
                backend: to.backend,
                socket: to.upstream.socket,
                source: train.local_ip,
                contents: train.contents,
            }
        });
        trains.collect()
    }

    /// A message arrives at an upstream socket. Returns the client that it goes to.
    pub fn backend_sends(
        &mut self,
        now: Duration,
        (from, to): (SocketAddr, Option<IpAddr>),
        socket: u32,
        contents: &[u8],
        stride: usize,
    ) -> Option<SocketAddr> {
        let meta = message(from, to, contents.len(), stride);
        let train = self.engine.route_reply(now, socket, &meta, contents)?;
        self.engine.counts.down.forwarded += datagrams(&train);
        Some(train.remote)
    }

    /// Follows another plan.
    pub fn set_plan(&mut self, plan: Arc<Plan>) {
        self.engine.set_plan(plan);
    }

    /// Does what is due, and returns how many backends were asked for a stateless reset.
    pub fn tick(&mut self, now: Duration) -> usize {
        let mut asked = 0;
        while let Some(orphan) = self.engine.next_orphan(now) {
            let packet = packet_for(orphan.cid);
            asked += usize::from(
                self.engine
                    .for_another_backend(now, &orphan, &packet)
                    .is_some(),
            );
            self.engine.orphans.repeat(orphan);
        }
        self.engine.flows.expire(now, 64);
        self.engine.flows.take_unused_sockets();
        asked
    }

    /// Returns the counts of both directions.
    #[must_use]
    pub fn traffic(&self) -> [Traffic; 2] {
        [self.engine.counts.up, self.engine.counts.down]
    }

    /// Returns the numbers of flows and of table entries.
    #[must_use]
    pub fn sizes(&self) -> (usize, usize) {
        (self.engine.flows.len(), self.engine.router.entries())
    }
}

fn message(from: SocketAddr, to: Option<IpAddr>, len: usize, stride: usize) -> Meta {
    let mut meta = Meta::new(from);
    (meta.local_ip, meta.len, meta.stride) = (to, len, stride.max(1));
    meta
}
