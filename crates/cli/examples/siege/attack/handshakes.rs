//! Handshakes by the thousand: with addresses that are never proven, with genuine
//! ones, and with 0-RTT that is played again.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clearway_quic::connection::Config;
use clearway_quic::crypto::{ClientSessions, ServerName};

use super::initial::{CID, connection_ids, hello_pieces, initial};
use super::sockets::{Sockets, Traffic};
use super::swarm::Swarm;
use super::wire::put_crypto;
use super::{Attacker, Field, http3};

/// Source addresses of a flood.
const SOURCES: usize = 200;

/// Whole ClientHellos, each as of a new client, whose answers nobody reads.
pub(crate) struct Hellos {
    server: std::net::SocketAddr,
    sockets: Sockets,
    /// The Source Connection ID that the ClientHello's parameters name.
    scid: Vec<u8>,
    /// The frames of each Initial.
    flight: Vec<Vec<u8>>,
    ids: u64,
}

impl Hellos {
    pub(crate) fn new(field: &Field) -> io::Result<Self> {
        let sockets = Sockets::bind(field.number, 0, 1)?;
        let mut model = Swarm::<()>::new(field.server, sockets, Config::default())?;
        let datagrams = model.first_flight(&[]);
        let (_, scid) = datagrams
            .first()
            .and_then(|first| connection_ids(first))
            .ok_or_else(|| io::Error::other("the ClientHello was not captured"))?;
        let flight = datagrams
            .iter()
            .filter_map(|datagram| hello_pieces(datagram))
            .map(|pieces| {
                let mut frames = Vec::new();
                for (offset, data) in pieces {
                    put_crypto(&mut frames, offset, &data);
                }
                frames
            })
            .filter(|frames| !frames.is_empty())
            .collect();
        Ok(Self {
            server: field.server,
            sockets: Sockets::bind(field.number, 1, SOURCES)?,
            scid: scid.to_vec(),
            flight,
            ids: field.unique,
        })
    }
}

impl Attacker for Hellos {
    fn turn(&mut self, packets: u64) {
        for _ in 0..packets / self.flight.len().max(1) as u64 {
            self.ids += 1;
            let dcid: [u8; CID] = self.ids.to_be_bytes();
            let socket = (self.ids % SOURCES as u64) as usize;
            for (number, frames) in (0..).zip(&self.flight) {
                let packet = initial(&dcid, &self.scid, &[], number, frames);
                self.sockets.send(socket, self.server, &packet);
            }
        }
    }

    fn traffic(&self) -> Traffic {
        self.sockets.traffic
    }

    fn note(&self) -> String {
        let sent = self.sockets.traffic.packets / self.flight.len().max(1) as u64;
        format!("{sent} ClientHellos")
    }
}

/// Handshakes that are completed, Retry and all, and then left alone.
pub(crate) struct Handshakes {
    swarm: Swarm<()>,
}

/// Handshakes under way at once.
const AT_ONCE: usize = 128;

impl Handshakes {
    pub(crate) fn new(field: &Field) -> io::Result<Self> {
        let sockets = Sockets::bind(field.number, 0, SOURCES)?;
        let mut swarm = Swarm::new(field.server, sockets, Config::default())?;
        swarm.max_handshakes = AT_ONCE;
        Ok(Self { swarm })
    }
}

impl Attacker for Handshakes {
    fn turn(&mut self, packets: u64) {
        // Each takes four packets or so.
        self.swarm.keep(AT_ONCE.min(packets.div_ceil(4) as usize));
        self.swarm.step();
        while self.swarm.established() > 0 {
            let Some(handle) = self.swarm.next_ready() else {
                return;
            };
            self.swarm.forget(handle);
        }
    }

    fn traffic(&self) -> Traffic {
        self.swarm.traffic()
    }

    fn note(&self) -> String {
        format!("{} handshakes; {}", self.swarm.completed, self.swarm.fate())
    }
}

/// First flights with 0-RTT requests, captured and sent again and again.
pub(crate) struct Replays {
    swarm: Swarm<()>,
    sessions: Arc<ClientSessions>,
    flights: Vec<Vec<Vec<u8>>>,
    from: Sockets,
    server: std::net::SocketAddr,
    next: usize,
    replays: u64,
    tried: Instant,
}

/// Flights that are captured.
const FLIGHTS: usize = 512;

/// Between two looks for a ticket.
const TRY_EVERY: Duration = Duration::from_millis(2);

impl Replays {
    pub(crate) fn new(field: &Field) -> io::Result<Self> {
        let sessions = Arc::new(ClientSessions::default());
        let sockets = Sockets::bind(field.number, 0, 8)?;
        let known = Some(sessions.clone());
        let config = Config::default();
        Ok(Self {
            swarm: Swarm::with_sessions(field.server, sockets, config, known)?,
            sessions,
            flights: Vec::new(),
            from: Sockets::bind(field.number, 8, SOURCES)?,
            server: field.server,
            next: 0,
            replays: 0,
            tried: Instant::now(),
        })
    }

    /// Makes another first flight, once a ticket is there for it.
    fn capture(&mut self) {
        if self.tried.elapsed() < TRY_EVERY {
            return;
        }
        self.tried = Instant::now();
        let Ok(name) = ServerName::try_from("localhost") else {
            return;
        };
        if self.sessions.known(&name).tickets > 0 {
            let flight = self.swarm.first_flight(&http3::get("/small"));
            self.flights.push(flight);
        } else if let Some(handle) = self.swarm.next_ready() {
            // Its tickets are used up.
            self.swarm.forget(handle);
        } else {
            self.swarm.keep(1);
        }
    }
}

impl Attacker for Replays {
    fn turn(&mut self, packets: u64) {
        self.swarm.step();
        if self.flights.len() < FLIGHTS {
            self.capture();
        }
        let before = self.from.traffic.packets;
        while !self.flights.is_empty() && self.from.traffic.packets < before + packets {
            let socket = self.next % self.from.len();
            for datagram in &self.flights[self.next % self.flights.len()] {
                self.from.send(socket, self.server, datagram);
            }
            self.next += 1;
            self.replays += 1;
        }
    }

    fn traffic(&self) -> Traffic {
        let mut traffic = self.swarm.traffic();
        traffic.packets += self.from.traffic.packets;
        traffic.bytes += self.from.traffic.bytes;
        traffic
    }

    fn note(&self) -> String {
        format!(
            "{} flights, replayed {} times",
            self.flights.len(),
            self.replays
        )
    }
}
