//! Clients whose first datagram waits.

use clearway_quic::ack::ReceivedEcn;
use clearway_quic::connection::RecvMeta;
use clearway_quic::endpoint::{DatagramEvent, Source};

use super::peer::Peer;
use super::{SERVER, Shard, client_config};
use crate::shard::strays::QueuedDatagram;

impl Shard {
    /// Queues a client that wants to begin, with the first datagram of its ClientHello.
    pub(super) fn add_newcomer(&mut self, number: u8, source: Option<Source>) {
        let now = self.now;
        let mut peer = Peer::new(number, now, SERVER, client_config());
        let datagrams = peer.flush(now);
        let datagram = datagrams.into_iter().next().expect("a ClientHello");
        let from = RecvMeta {
            remote: peer.address,
            local_ip: None,
            ecn: ReceivedEcn::NotEct,
        };
        let mut response = Vec::new();
        let event = self
            .link
            .endpoint()
            .receive(now, 0, from, &datagram, &mut response);
        let DatagramEvent::Incoming(incoming) = event else {
            panic!("{event:?} instead of a new client");
        };
        let dcid = incoming.destination_cid();
        let pending_clients = &mut self.driver.as_mut().expect("runs").shard.pending_clients;
        let datagram = QueuedDatagram { from, datagram };
        let dropped = pending_clients.push(now, source, dcid, incoming.postpone(), datagram);
        assert!(dropped.is_none(), "few wait");
    }
}
