//! The packets of one local program.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use clearway::http::connect_udp::{Target, UdpTunnel, UdpTunnelCounters, UdpTunnelMode};
use clearway::http::{Client, Error, OpenTunnelError};
use http::Uri;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, sleep_until};

/// What all flows share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) proxy: Uri,
    pub(super) target: Target,
    pub(super) token: Option<String>,
    pub(super) mode: UdpTunnelMode,
    pub(super) idle: Duration,
    pub(super) socket: UdpSocket,
    pub(super) totals: Totals,
}

/// What passed, over all flows.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) flows: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) dropped: AtomicU64,
}

impl Totals {
    pub(super) fn drop_one(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn add(&self, counters: UdpTunnelCounters) {
        self.sent.fetch_add(counters.sent, Ordering::Relaxed);
        self.received
            .fetch_add(counters.received, Ordering::Relaxed);
        let dropped = [
            counters.too_large,
            counters.blocked,
            counters.unknown_context,
        ];
        self.dropped
            .fetch_add(dropped.iter().sum(), Ordering::Relaxed);
    }
}

/// Passes a program's packets on until it is idle, or the tunnel ends.
pub(super) async fn run(shared: Arc<Shared>, program: SocketAddr, mut packets: Receiver<Bytes>) {
    let token = shared.token.as_deref();
    let opening = UdpTunnel::connect(
        &shared.client,
        &shared.proxy,
        &shared.target,
        token,
        shared.mode,
    );
    let mut tunnel = match opening.await {
        Ok(tunnel) => tunnel,
        Err(error) => {
            shared.totals.failed.fetch_add(1, Ordering::Relaxed);
            say!("tunnel: {program}: {}", explain(&error));
            return;
        }
    };
    shared.totals.flows.fetch_add(1, Ordering::Relaxed);
    let mut last = Instant::now();
    let mut reported = UdpTunnelCounters::default();
    loop {
        tokio::select! {
            packet = packets.recv() => {
                let sent = packet.map(|packet| tunnel.send(&packet));
                let Some(Ok(())) = sent else { break };
                last = Instant::now();
            }
            payload = tunnel.recv() => {
                let Ok(Some(payload)) = payload else { break };
                // A packet that cannot be sent is lost, as it would be in the network.
                let _ = shared.socket.try_send_to(&payload, program);
                last = Instant::now();
            }
            () = sleep_until(last + shared.idle) => break,
        }
        let counters = tunnel.counters();
        shared.totals.add(difference(counters, reported));
        reported = counters;
    }
    tunnel.finish();
}

fn difference(now: UdpTunnelCounters, before: UdpTunnelCounters) -> UdpTunnelCounters {
    let mut difference = now;
    difference.sent -= before.sent;
    difference.received -= before.received;
    difference.too_large -= before.too_large;
    difference.blocked -= before.blocked;
    difference.unknown_context -= before.unknown_context;
    difference
}

/// What the proxy said.
fn explain(error: &OpenTunnelError) -> String {
    match error {
        OpenTunnelError::Refused(response) => {
            let reason = response.headers().get("proxy-status");
            let reason = reason.and_then(|value| value.to_str().ok());
            let reason = reason.unwrap_or("no reason given");
            format!("the proxy refused: {} ({reason})", response.status())
        }
        OpenTunnelError::Failed(Error::Unsendable(error)) => {
            format!("the proxy has no tunnels: {error}")
        }
        other => other.to_string(),
    }
}
