//! noq-proto in the lab.

#[path = "family.rs"]
mod family;

use std::any::Any;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use clearway_links::Packet;
use noq_proto as proto;
use noq_proto::congestion::{Bbr3Config as Bbr, Controller, ControllerMetrics};
use noq_proto::{
    Connection, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, Event, FourTuple, PathId,
    RttEstimator, SendStream, ServerConfig, Transmit, WriteError,
};

use self::family::{Cased, Cids, Path};
use crate::engine::MAX_SEGMENTS;
use crate::seed::Seeded;

pub(crate) use self::family::Proto as Noq;

/// Datagrams of one transmit at most.
const SEGMENTS: NonZeroUsize = NonZeroUsize::new(MAX_SEGMENTS).expect("some datagrams");

impl Controller for Cased {
    cased_alike!();

    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.probe.sent(bytes);
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
        self.inner.on_cwnd_limited();
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.probe.measured(rtt.min());
        self.inner.on_ack(now, sent, bytes, pn, app_limited, rtt);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        self.probe.lost(lost_bytes, is_persistent_congestion);
        self.inner.on_congestion_event(
            now,
            sent,
            is_persistent_congestion,
            is_ecn,
            lost_bytes,
            largest_lost_pn,
        );
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        self.inner.on_packet_lost(lost_bytes, pn, now);
    }

    fn on_spurious_congestion_event(&mut self) {
        self.inner.on_spurious_congestion_event();
    }

    fn on_ack_frequency_update(
        &mut self,
        ack_eliciting_threshold: u64,
        requested_max_ack_delay: Duration,
    ) {
        self.inner
            .on_ack_frequency_update(ack_eliciting_threshold, requested_max_ack_delay);
    }
}

fn generate_cids(config: &mut EndpointConfig, cids: Seeded) {
    config.cid_generator(Arc::new(move || Box::new(Cids(cids.clone()))));
}

fn endpoint(config: Arc<EndpointConfig>, server: Option<Arc<ServerConfig>>) -> Endpoint {
    Endpoint::new(config, server, true)
}

fn handle(
    endpoint: &mut Endpoint,
    now: Instant,
    packet: &Packet,
    ecn: Option<EcnCodepoint>,
    data: BytesMut,
    buf: &mut Vec<u8>,
) -> Option<DatagramEvent> {
    let path = FourTuple::new(packet.src, Some(packet.dst.ip()));
    endpoint.handle(now, path, ecn, data, buf)
}

fn poll_transmit(conn: &mut Connection, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
    conn.poll_transmit(now, SEGMENTS, buf)
}

/// Why the connection is lost, if that is what `event` says.
fn reason(event: Event) -> Option<String> {
    match event {
        Event::ConnectionLost { reason } => Some(reason.to_string()),
        // Applications of the lab look for themselves.
        Event::HandshakeDataReady
        | Event::Connected
        | Event::HandshakeConfirmed
        | Event::Stream(_)
        | Event::DatagramReceived
        | Event::DatagramsUnblocked
        | Event::Path(_)
        | Event::NatTraversal(_) => None,
    }
}

fn write(stream: &mut SendStream<'_>, data: &mut Bytes) -> Result<usize, WriteError> {
    stream.write_chunks(&mut core::slice::from_mut(data))
}

fn moved(conn: &mut Connection, now: Instant) {
    conn.handle_network_change(None, now);
}

/// Without multipath there is one path, whatever its addresses.
fn path(conn: &mut Connection) -> Path {
    let path = conn.path_stats(PathId::ZERO).unwrap_or_default();
    let metrics = conn.congestion_state(PathId::ZERO).map(Controller::metrics);
    Path {
        window: path.cwnd,
        mtu: path.current_mtu,
        pacing_rate: metrics.and_then(|all| all.pacing_rate),
        smoothed_rtt: path.rtt,
        packets_sent: path.sent_packets,
        // As quinn counts, probes for the path's MTU aside.
        packets_lost: path.lost_packets.saturating_sub(path.lost_plpmtud_probes),
        bytes_sent: path.udp_tx.bytes,
        congestion_events: path.congestion_events,
    }
}
