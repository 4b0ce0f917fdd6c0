//! The clients: thousands of connections, each from an address of its own, on a few sockets.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clearway_quic::Instant;
use clearway_quic::connection::{ConnectOptions, Connection, Event};
use clearway_quic::endpoint::{ConnectionHandle, Endpoint};
use clearway_quic::rng::Rng;
use clearway_testing::{Setup, server_id};
use clearway_udp::{Options, RecvBatch, Socket};

use crate::host::{Application, Counts, Host, batch};

/// Sockets, each with a port.
const SOCKETS: usize = 10;

/// The first of the clients' addresses: 127.64.0.0.
const FIRST: u32 = 0x7f40_0000;

/// A round trip that takes longer counts as lost.
const SLOW: Duration = Duration::from_secs(4);

/// What has happened to the clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) confirmed: usize,
    /// Connections that ended without the handshake, and after it.
    pub(crate) failed: usize,
    pub(crate) closed: usize,
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    /// Round trips that took longer than [`SLOW`].
    pub(crate) slow: u64,
    /// Most that a round trip began later than planned.
    pub(crate) behind: Duration,
    /// Round trips by the binary logarithm of their time in microseconds, times four.
    latencies: Vec<u64>,
}

impl Tally {
    fn record(&mut self, time: Duration) {
        let micros = time.as_micros().max(1) as f64;
        let index = (micros.log2() * 4.0) as usize;
        self.latencies
            .resize(self.latencies.len().max(index + 1), 0);
        self.latencies[index] += 1;
        self.slow += u64::from(time > SLOW);
    }

    /// Returns the time below which this share of the round trips was.
    pub(crate) fn latency(&self, share: f64) -> Duration {
        let wanted = (self.answered as f64 * share) as u64;
        let mut passed = 0;
        for (index, count) in self.latencies.iter().enumerate() {
            passed += count;
            if passed > wanted {
                let micros = ((index + 1) as f64 / 4.0).exp2();
                return Duration::from_micros(micros as u64);
            }
        }
        Duration::ZERO
    }
}

/// The application of the clients.
#[derive(Default)]
struct Asking {
    tally: Tally,
    /// When each asked what is not answered yet, by handle.
    asked: Vec<Option<Instant>>,
    is_confirmed: Vec<bool>,
    confirmed: Vec<ConnectionHandle>,
}

impl Application for Asking {
    fn on_event(
        &mut self,
        now: Instant,
        handle: ConnectionHandle,
        connection: &mut Connection,
        event: Event,
    ) {
        match event {
            Event::Confirmed => {
                self.tally.confirmed += 1;
                self.is_confirmed[handle.0 as usize] = true;
                self.confirmed.push(handle);
            }
            Event::DatagramReceived => {
                while connection.recv_datagram().is_some() {
                    let asked = self.asked[handle.0 as usize].take();
                    if let Some(asked) = asked {
                        self.tally.answered += 1;
                        let time = now.as_nanos() - asked.as_nanos();
                        self.tally.record(Duration::from_nanos(time));
                    }
                }
            }
            Event::Closed(error) => {
                if self.tally.failed + self.tally.closed < 5 {
                    eprintln!("a connection has ended: {error}");
                }
                if self.is_confirmed[handle.0 as usize] {
                    self.tally.closed += 1;
                } else {
                    self.tally.failed += 1;
                }
            }
            Event::Connected
            | Event::Stream(_)
            | Event::PathChanged { .. }
            | Event::ZeroRttRejected => {}
        }
    }
}

pub(crate) struct Clients {
    host: Host,
    app: Asking,
    batch: RecvBatch,
    setup: Setup,
    to: SocketAddr,
    started: usize,
    interval: Duration,
    /// When each connection asks next.
    plan: VecDeque<(Instant, ConnectionHandle)>,
}

impl Clients {
    pub(crate) fn new(
        setup: Setup,
        to: SocketAddr,
        interval: Duration,
        seed: [u8; 32],
    ) -> io::Result<Self> {
        let mut rng = Rng::from_seed(seed);
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let sockets: Vec<Socket> = (0..SOCKETS)
            .map(|_| Socket::bind(any, &Options::default()))
            .collect::<io::Result<_>>()?;
        let endpoint = Endpoint::new(setup.client_endpoint(&mut rng), rng);
        let batch = batch(&sockets[0]);
        Ok(Self {
            host: Host::new(sockets, endpoint),
            app: Asking::default(),
            batch,
            setup,
            to,
            started: 0,
            interval,
            plan: VecDeque::new(),
        })
    }

    pub(crate) fn tally(&self) -> &Tally {
        &self.app.tally
    }

    pub(crate) fn counts(&self) -> Counts {
        self.host.counts()
    }

    pub(crate) fn open(&self) -> usize {
        self.host.len()
    }

    /// Connects until there were `count` connections, with at most `at_once` handshakes at a time.
    pub(crate) fn connect(&mut self, count: usize, at_once: usize) -> io::Result<()> {
        let done = |tally: &Tally| tally.confirmed + tally.failed;
        let mut said = std::time::Instant::now();
        while done(&self.app.tally) < count {
            let ended = done(&self.app.tally);
            while self.started < count && self.started - ended < at_once {
                self.begin();
            }
            self.turn(Duration::from_millis(10))?;
            if said.elapsed() > Duration::from_secs(10) {
                said = std::time::Instant::now();
                eprintln!("{} of {count} connected", self.app.tally.confirmed);
            }
        }
        Ok(())
    }

    fn begin(&mut self) {
        let address = Ipv4Addr::from(FIRST + (self.started / SOCKETS) as u32);
        let options = ConnectOptions {
            remote: self.to,
            local_ip: Some(IpAddr::V4(address)),
            server_name: server_id().name,
            crypto: self.setup.client_crypto.clone(),
            sessions: None,
        };
        let now = self.host.now();
        let (handle, connection) = self.host.endpoint.connect(now, options).unwrap();
        let index = handle.0 as usize;
        let len = self.app.asked.len().max(index + 1);
        self.app.asked.resize(len, None);
        self.app.is_confirmed.resize(len, false);
        let socket = self.started % SOCKETS;
        self.started += 1;
        self.host.add(&mut self.app, handle, connection, socket);
    }

    /// Waits without asking.
    pub(crate) fn rest(&mut self, time: Duration) -> io::Result<()> {
        let end = std::time::Instant::now() + time;
        while std::time::Instant::now() < end {
            self.turn(Duration::from_millis(10))?;
        }
        Ok(())
    }

    /// Has each connection ask every interval, for `time`; `progress` is called every ten seconds.
    pub(crate) fn ask(
        &mut self,
        time: Duration,
        mut progress: impl FnMut(&Self),
    ) -> io::Result<()> {
        let now = self.host.now();
        let count = self.app.confirmed.len().max(1) as u64;
        let step = self.interval.as_nanos() as u64;
        self.plan = (0..)
            .zip(&self.app.confirmed)
            .map(|(n, &handle)| (now + Duration::from_nanos(step * n / count), handle))
            .collect();
        let end = now + time;
        let mut said = now;
        // One and a half times what is planned, so that what was held up is made up for slowly.
        let gap = Duration::from_nanos(step * 2 / count / 3);
        let mut turned = now;
        while self.host.now() < end {
            let now = self.host.now();
            let next = self.plan.front().map_or(self.interval, |(at, _)| {
                Duration::from_nanos(at.as_nanos().saturating_sub(now.as_nanos()))
            });
            // Woken at most every millisecond: then there is a batch to send.
            self.turn(next.max(Duration::from_millis(1)))?;
            let passed = self.host.now().as_nanos() - turned.as_nanos();
            turned = self.host.now();
            self.ask_those_due(passed / gap.as_nanos().max(1) as u64 + 1);
            if self.host.now() >= said + Duration::from_secs(10) {
                said = self.host.now();
                progress(self);
            }
        }
        Ok(())
    }

    /// Begins the round trips that are due, `most` at most.
    fn ask_those_due(&mut self, most: u64) {
        let now = self.host.now();
        // What arrives meanwhile must not wait for all that are due.
        for _ in 0..most.min(256) {
            let Some(&(at, handle)) = self.plan.front().filter(|(at, _)| *at <= now) else {
                break;
            };
            self.plan.pop_front();
            self.plan.push_back((at + self.interval, handle));
            let late = Duration::from_nanos(now.as_nanos() - at.as_nanos());
            self.app.tally.behind = self.app.tally.behind.max(late);
            let place = &mut self.app.asked[handle.0 as usize];
            // Lost, if the last one is not answered yet.
            *place = Some(now);
            self.app.tally.asked += 1;
            self.host.with(&mut self.app, handle, |connection| {
                let question = Bytes::from_static(b"are you there?");
                if connection.send_datagram(question).is_err() {
                    eprintln!("a message cannot be sent");
                }
            });
        }
    }

    fn turn(&mut self, patience: Duration) -> io::Result<()> {
        self.host.turn(&mut self.app, &mut self.batch, patience)
    }

    /// Returns how many addresses have been used.
    pub(crate) fn addresses(&self) -> usize {
        self.started
    }
}

/// The setup is shared by all connections.
pub(crate) fn light(mut setup: Setup) -> Setup {
    setup.client.datagram_buffer = 4_096;
    let crypto = Arc::make_mut(&mut setup.client_crypto);
    // Every handshake verifies the certificate.
    crypto.resumption = rustls::client::Resumption::disabled();
    setup
}
