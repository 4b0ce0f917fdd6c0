//! The `clearway tunnel` command.

use core::net::SocketAddr;
use core::sync::atomic::{AtomicU64, Ordering};
use std::io::{self, Write as _};
use std::sync::Arc;

use bytes::Bytes;
use clearway::QlogDir;
use clearway::http::connect_udp::UdpTunnelMode;
use serde::Serialize;
use tokio::net::UdpSocket;
use tokio::task::JoinSet;

use super::Args;
use super::flow::{self, Shared, Totals};
use super::flows::{Flows, Passed};
use crate::failure::{Failure, Kind};
use crate::get;
use crate::interrupt::unless_interrupted;
use crate::output::{print, print_json};
use crate::qlog;
use crate::tokens;

/// The longest UDP packet.
const MAX_PACKET: usize = 65_535;

/// Passes packets on until a signal arrives, which ends it with success.
///
/// # Errors
/// If the local address cannot be bound, or there is no connection to the proxy.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let qlog = args.qlog.open("tunnel")?;
    let outcome = runtime.block_on(tunnel(args, qlog.as_ref()));
    qlog::finish(qlog);
    outcome
}

async fn tunnel(args: &Args, qlog: Option<&QlogDir>) -> Result<(), Failure> {
    let config = args.trust.client_config()?;
    let token = args
        .proxy_token
        .as_deref()
        .map(|file| tokens::read("--proxy-token", file));
    let token = token.transpose()?.and_then(|all| all.into_iter().next());
    let client = get::client(&config, qlog, None)?;
    let socket = UdpSocket::bind(args.local).await.map_err(|error| {
        let what = format!("cannot receive packets on {}", args.local);
        Failure::caused(Kind::Address, what, &error)
    })?;
    // So that a wrong proxy is noticed now, and not with the first packet.
    let connected = unless_interrupted(client.connect(&args.proxy)).await?;
    connected.map_err(|error| get::failure(&args.proxy, &error))?;
    announce(args, socket.local_addr()?)?;
    let shared = Arc::new(Shared {
        client,
        proxy: args.proxy.clone(),
        target: args.to.clone(),
        token,
        mode: match args.capsules {
            true => UdpTunnelMode::Capsules,
            false => UdpTunnelMode::Datagrams,
        },
        idle: args.idle.0,
        socket,
        totals: Totals::default(),
    });
    let ended = unless_interrupted(pass_packets(&shared)).await;
    shared.client.close().await;
    report(args, &shared.totals)?;
    match ended {
        Ok(result) => result.map_err(|error| {
            let what = format!("cannot receive packets on {}", args.local);
            Failure::caused(Kind::Address, what, &error)
        }),
        // A signal is how it is meant to end.
        Err(failure) if failure.kind == Kind::Interrupted => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Reads the local socket for ever.
async fn pass_packets(shared: &Arc<Shared>) -> io::Result<()> {
    let mut flows = Flows::default();
    let mut tasks = JoinSet::new();
    let mut buffer = vec![0; MAX_PACKET];
    loop {
        let (len, program) = match shared.socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // An ICMP error about a packet to a program that has gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(error),
        };
        let packet = Bytes::copy_from_slice(buffer.get(..len).unwrap_or_default());
        match flows.pass(program, packet) {
            Passed::Queued => {}
            Passed::New(packets) => {
                tasks.spawn(flow::run(shared.clone(), program, packets));
            }
            Passed::Dropped => shared.totals.drop_one(),
        }
        while tasks.try_join_next().is_some() {}
    }
}

/// The local address, for scripts.
#[derive(Serialize)]
struct Listening {
    event: &'static str,
    address: SocketAddr,
    target: String,
}

fn announce(args: &Args, address: SocketAddr) -> Result<(), Failure> {
    if args.json {
        return print_json(&Listening {
            event: "listening",
            address,
            target: args.to.to_string(),
        });
    }
    let (proxy, target) = (&args.proxy, &args.to);
    print(|out| writeln!(out, "listening on {address}"))?;
    say!("tunnel: packets to {address} go through {proxy} to {target}");
    Ok(())
}

/// What passed, for scripts.
#[derive(Serialize)]
struct Closed {
    event: &'static str,
    flows: u64,
    failed: u64,
    sent: u64,
    received: u64,
    dropped: u64,
}

fn report(args: &Args, totals: &Totals) -> Result<(), Failure> {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let closed = Closed {
        event: "closed",
        flows: get(&totals.flows),
        failed: get(&totals.failed),
        sent: get(&totals.sent),
        received: get(&totals.received),
        dropped: get(&totals.dropped),
    };
    if args.json {
        return print_json(&closed);
    }
    say!(
        "tunnel: {} packets sent, {} received, {} dropped, by {} programs",
        closed.sent,
        closed.received,
        closed.dropped,
        closed.flows
    );
    Ok(())
}
