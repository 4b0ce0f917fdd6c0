//! A light server: it echoes every DATAGRAM message.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_balancer::config::Source;
use clearway_quic::Instant;
use clearway_quic::cid::quic_lb::{self, Config, ServerId};
use clearway_quic::connection::{Connection, Event};
use clearway_quic::endpoint::{ConnectionHandle, Endpoint};
use clearway_quic::rng::Rng;
use clearway_testing::Setup;
use clearway_udp::{Options, Socket};

use crate::arguments::Arguments;
use crate::host::{Application, Counts, Host, batch};
use crate::process::{Answers, seed, setup};

/// The connection IDs of all servers: encrypted, with a server ID of one byte.
pub(crate) fn encoding() -> Config {
    let config = Config::new(0, 1, 7).unwrap();
    config.with_key(b"a key for a test").unwrap()
}

pub(crate) fn server_id(number: u8) -> ServerId {
    ServerId::new(&[number]).unwrap()
}

/// Sends back what arrives.
#[derive(Default)]
struct Echo {
    confirmed: u64,
    echoed: u64,
}

impl Application for Echo {
    fn on_event(
        &mut self,
        _: Instant,
        _: ConnectionHandle,
        connection: &mut Connection,
        event: Event,
    ) {
        match event {
            Event::Confirmed => self.confirmed += 1,
            Event::DatagramReceived => {
                while let Some(message) = connection.recv_datagram() {
                    self.echoed += u64::from(connection.send_datagram(message).is_ok());
                }
            }
            Event::Connected
            | Event::Stream(_)
            | Event::PathChanged { .. }
            | Event::ZeroRttRejected
            | Event::Closed(_) => {}
        }
    }
}

/// Serves until the standard input ends.
pub(crate) fn run(arguments: &Arguments, number: u8) -> io::Result<()> {
    let mut rng = Rng::from_seed(seed());
    let socket = Socket::bind("127.0.0.1:0".parse().unwrap(), &Options::default())?;
    let address = socket.local_addr()?;
    let mut host = Host::new(
        vec![socket],
        Endpoint::new(
            configured(arguments, number, &mut rng).server_endpoint(),
            rng,
        ),
    );
    let mut batch = batch(&host.sockets[0]);
    let mut echo = Echo::default();
    let (stop, report) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let answers = Answers::start(&address.to_string(), &stop, Arc::<Mutex<_>>::clone(&report));
    let mut next = std::time::Instant::now();
    while !stop.load(Relaxed) {
        host.turn(&mut echo, &mut batch, Duration::from_millis(20))?;
        if next.elapsed() > Duration::from_millis(20) {
            next = std::time::Instant::now();
            *report.lock().unwrap() = describe(&host, &echo);
        }
    }
    *report.lock().unwrap() = describe(&host, &echo);
    answers.end();
    Ok(())
}

fn configured(arguments: &Arguments, number: u8, rng: &mut Rng) -> Setup {
    let mut setup = setup(arguments);
    let server = quic_lb::Server::unconfigured(None);
    let encoding = encoding();
    server
        .configure(&encoding, server_id(number), [], rng)
        .unwrap();
    setup.load_balancer = Some(Arc::new(server));
    setup.limits.connections = 10_000_000;
    setup.limits.connections_per_source = arguments.per_source;
    if arguments.is_trusted {
        let balancer: Source = "127.0.0.0/8".parse().unwrap();
        setup.limits.trusted = vec![balancer.0];
    }
    setup
}

fn describe(host: &Host, echo: &Echo) -> Vec<(&'static str, u64)> {
    let Counts {
        sent,
        received,
        overflowed,
        unsent,
    } = host.counts();
    let of = host.endpoint.counters();
    vec![
        ("sent", sent),
        ("received", received),
        ("overflowed", overflowed),
        ("unsent", unsent),
        ("open", host.len() as u64),
        ("confirmed", echo.confirmed),
        ("echoed", echo.echoed),
        ("retries", of.retries),
        ("refused", of.refused + of.refusals_withheld),
    ]
}
