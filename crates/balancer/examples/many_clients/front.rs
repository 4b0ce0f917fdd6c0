//! The balancer, in a process of its own.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_balancer::config::Source;
use clearway_balancer::{BackendSettings, BackendState, Balancer, Settings, Status, config};

use crate::arguments::Arguments;
use crate::backend::{encoding, server_id};
use crate::process::{Answers, Report};

/// Balances over the backends at `addresses`, separated by commas, until the standard input ends.
pub(crate) fn run(arguments: &Arguments, addresses: &str) -> io::Result<()> {
    // In practice it has a machine for itself. Without the right to it, it goes on as it is.
    let _ = rustix::process::nice(-10);
    let mut settings = Settings::new("127.0.0.1:0".parse().unwrap());
    settings.backends = (1..)
        .zip(addresses.split(','))
        .map(|(number, address)| backend(number, address.parse().unwrap()))
        .collect();
    settings.quic_lb = vec![encoding()];
    (settings.shards, settings.mode) = (arguments.shards, arguments.mode);
    settings.work = arguments.work;
    // Probes would be counted by the backends, and not by the balancer.
    settings.health = None;
    let sources: Source = arguments.sources.parse().unwrap();
    settings.sources = config::sources(&[sources]).unwrap();
    // Room for all clients in each table, with a fifth to spare.
    let room = arguments.clients + arguments.clients / 5;
    settings.flows = settings.flows.max(room);
    settings.limits.entries = settings.limits.entries.max(room);
    // Longer than it takes to connect all of them.
    settings.limits.idle = Duration::from_secs(600);
    let balancer = Balancer::start(&settings).map_err(io::Error::other)?;
    let (stop, report) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let address = balancer.local_addr().to_string();
    let answers = Answers::start(&address, &stop, Arc::<Mutex<_>>::clone(&report));
    while !stop.load(Relaxed) {
        assert!(balancer.is_running());
        *report.lock().unwrap() = describe(&balancer.status());
        std::thread::sleep(Duration::from_millis(50));
    }
    *report.lock().unwrap() = describe(&balancer.stop()?);
    answers.end();
    Ok(())
}

fn backend(number: u8, address: SocketAddr) -> BackendSettings {
    BackendSettings {
        name: format!("backend {number}"),
        address,
        weight: 1,
        state: BackendState::Active,
        server_ids: vec![(0, server_id(number))],
    }
}

fn describe(status: &Status) -> Report {
    for (direction, traffic) in [("clients", &status.up), ("backends", &status.down)] {
        assert!(traffic.is_conserved(), "from {direction}: {traffic:?}");
    }
    vec![
        ("up_received", status.up.received),
        ("up_forwarded", status.up.forwarded),
        ("up_dropped", status.up.dropped()),
        ("up_overflowed", status.up_overflowed),
        ("down_received", status.down.received),
        ("down_forwarded", status.down.forwarded),
        ("down_dropped", status.down.dropped()),
        ("down_overflowed", status.down_overflowed),
        ("flows", status.flows as u64),
        ("sockets", status.sockets as u64),
    ]
}
