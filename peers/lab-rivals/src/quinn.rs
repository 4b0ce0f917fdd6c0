//! quinn-proto in the lab.

#[path = "family.rs"]
mod family;

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use clearway_links::Packet;
use quinn_proto as proto;
use quinn_proto::congestion::{BbrConfig as Bbr, Controller, ControllerMetrics};
use quinn_proto::{
    Connection, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig, Event, RttEstimator,
    SendStream, ServerConfig, Transmit, WriteError,
};

use self::family::{Cased, Cids, Path};
use crate::engine::MAX_SEGMENTS;
use crate::seed::Seeded;

pub(crate) use self::family::Proto as Quinn;

impl Controller for Cased {
    cased_alike!();

    fn on_sent(&mut self, now: Instant, bytes: u64, last_packet_number: u64) {
        self.probe.sent(bytes);
        self.inner.on_sent(now, bytes, last_packet_number);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        self.probe.measured(rtt.min());
        self.inner.on_ack(now, sent, bytes, app_limited, rtt);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        lost_bytes: u64,
    ) {
        self.probe.lost(lost_bytes, is_persistent_congestion);
        self.inner
            .on_congestion_event(now, sent, is_persistent_congestion, lost_bytes);
    }
}

fn generate_cids(config: &mut EndpointConfig, cids: Seeded) {
    config.cid_generator(move || Box::new(Cids(cids.clone())));
}

fn endpoint(config: Arc<EndpointConfig>, server: Option<Arc<ServerConfig>>) -> Endpoint {
    Endpoint::new(config, server, true, None)
}

fn handle(
    endpoint: &mut Endpoint,
    now: Instant,
    packet: &Packet,
    ecn: Option<EcnCodepoint>,
    data: BytesMut,
    buf: &mut Vec<u8>,
) -> Option<DatagramEvent> {
    let local = Some(packet.dst.ip());
    endpoint.handle(now, packet.src, local, ecn, data, buf)
}

fn poll_transmit(conn: &mut Connection, now: Instant, buf: &mut Vec<u8>) -> Option<Transmit> {
    conn.poll_transmit(now, MAX_SEGMENTS, buf)
}

/// Why the connection is lost, if that is what `event` says.
fn reason(event: Event) -> Option<String> {
    match event {
        Event::ConnectionLost { reason } => Some(reason.to_string()),
        // Applications of the lab look for themselves.
        Event::HandshakeDataReady
        | Event::Connected
        | Event::Stream(_)
        | Event::DatagramReceived
        | Event::DatagramsUnblocked => None,
    }
}

fn write(stream: &mut SendStream<'_>, data: &mut Bytes) -> Result<usize, WriteError> {
    let written = stream.write_chunks(core::slice::from_mut(data))?;
    Ok(written.bytes)
}

fn moved(conn: &mut Connection, _now: Instant) {
    conn.local_address_changed();
}

fn path(conn: &Connection) -> Path {
    let stats = conn.stats();
    Path {
        window: stats.path.cwnd,
        mtu: stats.path.current_mtu,
        pacing_rate: conn.congestion_state().metrics().pacing_rate,
        smoothed_rtt: stats.path.rtt,
        packets_sent: stats.path.sent_packets,
        packets_lost: stats.path.lost_packets,
        bytes_sent: stats.udp_tx.bytes,
        congestion_events: stats.path.congestion_events,
    }
}
