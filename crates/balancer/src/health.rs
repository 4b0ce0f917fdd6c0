//! Probes that tell whether a backend answers.

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use foldhash::fast::RandomState;

use crate::backend::BackendId;
use crate::header::Header;

/// Length of a probe in bytes: the smallest datagram that every server answers (RFC 9000 §6.1).
const PROBE_LEN: usize = 1_200;

/// A version that is reserved to be unknown to every server (RFC 9000 §15), so that a server
/// answers with Version Negotiation, without state and without a handshake.
const UNKNOWN_VERSION: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];

/// When a backend counts as down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Time between two probes of a backend, which is also how long an answer may take.
    pub interval: Duration,
    /// Probes in a row without an answer after which a backend is down.
    pub failures: u32,
    /// Answers in a row after which it is up again.
    pub successes: u32,
}

impl Default for HealthSettings {
    /// A backend that died is down after three seconds at most, and a lost probe or a pause of a
    /// second has no effect.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            failures: 3,
            successes: 2,
        }
    }
}

/// What the probes have found out about a backend.
#[derive(Clone, Copy, Debug)]
struct Health {
    is_up: bool,
    /// The identifier of the last probe, if it is unanswered.
    awaited: Option<u64>,
    /// Results in a row that contradict `is_up`.
    contrary: u32,
}

impl Health {
    fn record(&mut self, answered: bool, settings: &HealthSettings) -> bool {
        if answered == self.is_up {
            self.contrary = 0;
            return false;
        }
        self.contrary += 1;
        let needed = if answered {
            settings.successes
        } else {
            settings.failures
        };
        if self.contrary < needed.max(1) {
            return false;
        }
        self.is_up = answered;
        self.contrary = 0;
        true
    }
}

/// Probes backends. Those that were never probed count as up.
#[derive(Debug)]
pub(crate) struct Prober {
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    settings: HealthSettings,
    backends: HashMap<BackendId, Health>,
    identifiers: RandomState,
    sent: u64,
}

impl Prober {
    pub(crate) fn new(settings: HealthSettings) -> io::Result<Self> {
        let bind = |address: SocketAddr| {
            let socket = UdpSocket::bind(address)?;
            socket.set_nonblocking(true)?;
            io::Result::Ok(socket)
        };
        let v4 = bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        let v6 = bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))).ok();
        if v6.is_none() {
            // A host may have one family only.
            return Ok(Self::with(Some(v4?), None, settings));
        }
        Ok(Self::with(v4.ok(), v6, settings))
    }

    fn with(v4: Option<UdpSocket>, v6: Option<UdpSocket>, settings: HealthSettings) -> Self {
        Self {
            v4,
            v6,
            settings,
            backends: HashMap::new(),
            identifiers: RandomState::default(),
            sent: 0,
        }
    }

    pub(crate) fn interval(&self) -> Duration {
        self.settings.interval
    }

    pub(crate) fn is_up(&self, id: BackendId) -> bool {
        self.backends.get(&id).is_none_or(|health| health.is_up)
    }

    /// Sends a probe to each backend. Probes of the last round that were not answered have
    /// failed. Returns whether a backend is up or down that was not before.
    pub(crate) fn probe(&mut self, backends: &[(BackendId, SocketAddr)]) -> bool {
        self.backends
            .retain(|id, _| backends.iter().any(|backend| backend.0 == *id));
        let mut changed = false;
        for &(id, address) in backends {
            self.sent += 1;
            // Nobody else can guess it and answer in the backend's place.
            let identifier = self.identifiers.hash_one(self.sent);
            let health = self.backends.entry(id).or_insert(Health {
                is_up: true,
                awaited: None,
                contrary: 0,
            });
            if health.awaited.replace(identifier).is_some() {
                changed |= health.record(false, &self.settings);
            }
            let socket = if address.is_ipv4() {
                &self.v4
            } else {
                &self.v6
            };
            if let Some(socket) = socket {
                // A refusal counts like a lost probe.
                let _ = socket.send_to(&probe(identifier), address);
            }
        }
        changed
    }

    /// Reads answers. Returns whether a backend is up or down that was not before.
    pub(crate) fn receive(&mut self) -> bool {
        let mut changed = false;
        let mut buffer = [0; 2_048];
        for socket in [&self.v4, &self.v6].into_iter().flatten() {
            // Bounded, because anybody can send to this port.
            for _ in 0..1_024 {
                match socket.recv_from(&mut buffer) {
                    Ok((len, _)) => {
                        let answer = buffer.get(..len).and_then(answered);
                        let awaited = self.backends.values_mut();
                        let answering = answer.and_then(|identifier| {
                            awaited
                                .into_iter()
                                .find(|health| health.awaited == Some(identifier))
                        });
                        if let Some(health) = answering {
                            health.awaited = None;
                            changed |= health.record(true, &self.settings);
                        }
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // An ICMP error about an earlier probe.
                    Err(_) => {}
                }
            }
        }
        changed
    }
}

/// A long header of an unknown version, whose source connection ID is the identifier.
fn probe(identifier: u64) -> [u8; PROBE_LEN] {
    let mut packet = [0; PROBE_LEN];
    let id = identifier.to_be_bytes();
    let fields: [&[u8]; 6] = [&[0xc0], &UNKNOWN_VERSION, &[8], &id, &[8], &id];
    let mut places = packet.iter_mut();
    for byte in fields.into_iter().flatten() {
        if let Some(place) = places.next() {
            *place = *byte;
        }
    }
    packet
}

/// Returns the identifier in a Version Negotiation packet (RFC 8999 §6).
fn answered(datagram: &[u8]) -> Option<u64> {
    match Header::parse(datagram)? {
        Header::Long {
            version: 0, dcid, ..
        } => Some(u64::from_be_bytes(dcid.try_into().ok()?)),
        Header::Long { .. } | Header::Short { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: BackendId = BackendId(1);

    fn settings() -> HealthSettings {
        HealthSettings {
            interval: Duration::from_secs(1),
            failures: 3,
            successes: 2,
        }
    }

    /// A server on loopback that answers if asked to.
    struct Answering(UdpSocket);

    impl Answering {
        fn new() -> (Self, SocketAddr) {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket
                .set_read_timeout(Some(Duration::from_secs(20)))
                .unwrap();
            let address = socket.local_addr().unwrap();
            (Self(socket), address)
        }

        fn answer(&self, identifier: impl FnOnce(&[u8]) -> Vec<u8>) {
            let mut buffer = [0; 2_048];
            let (len, from) = self.0.recv_from(&mut buffer).unwrap();
            assert_eq!(len, PROBE_LEN);
            let Some(Header::Long { scid, .. }) = Header::parse(&buffer[..len]) else {
                panic!("a probe has a long header");
            };
            let id = identifier(scid);
            let mut packet = vec![0x80, 0, 0, 0, 0, id.len() as u8];
            packet.extend(&id);
            packet.extend([0, 0, 0, 0, 1]);
            self.0.send_to(&packet, from).unwrap();
        }
    }

    fn receive(prober: &mut Prober) -> bool {
        // The answer was sent before; loopback delivers at once.
        std::thread::yield_now();
        prober.receive()
    }

    #[test]
    fn backend_without_answers_is_down_until_it_answers_again() {
        let (server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        let backends = [(ID, address)];
        for round in 0..4 {
            let changed = prober.probe(&backends);
            assert_eq!(changed, round == 3);
            assert_eq!(prober.is_up(ID), round < 3);
        }
        for _ in 0..3 {
            server.answer(|_| vec![9; 8]);
        }
        server.answer(<[u8]>::to_vec);
        assert!(!receive(&mut prober), "one answer is not enough");
        assert!(!prober.is_up(ID));
        prober.probe(&backends);
        server.answer(<[u8]>::to_vec);
        assert!(receive(&mut prober));
        assert!(prober.is_up(ID));
    }

    #[test]
    fn answer_with_wrong_identifier_is_ignored() {
        let (server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        for _ in 0..4 {
            prober.probe(&[(ID, address)]);
            server.answer(|_| vec![1; 8]);
            receive(&mut prober);
        }
        assert!(!prober.is_up(ID));
    }

    #[test]
    fn removed_backend_is_forgotten() {
        let (_server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        for _ in 0..4 {
            prober.probe(&[(ID, address)]);
        }
        assert!(!prober.is_up(ID));
        prober.probe(&[]);
        assert!(prober.is_up(ID));
    }
}
