//! Probes that tell whether a backend answers.

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher as _;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use clearway_udp::{Options, RecvBatch, RecvError, Socket, Transmit};
use foldhash::fast::RandomState;

use crate::backend::BackendId;
use crate::header::Header;
use crate::receive::discard_errors;
use crate::silence::{Exchanged, Silence};

/// Length of a probe in bytes: the smallest datagram that every server answers (RFC 9000 §6.1).
const PROBE_LEN: usize = 1_200;

/// A version that is reserved to be unknown to every server (RFC 9000 §15), so that a server
/// answers with Version Negotiation, without state and without a handshake.
const UNKNOWN_VERSION: [u8; 4] = [0x1a, 0x2a, 0x3a, 0x4a];

/// Messages that one receive call fills.
const SLOTS: usize = 32;

/// Receive calls in a row for one socket.
const ROUNDS: usize = 32;

/// When a backend counts as down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HealthSettings {
    /// Time between two probes of a backend. One that has not sent anything for half of this time,
    /// although it was sent something, is probed three times as often.
    pub interval: Duration,
    /// Probes in a row without an answer before the next one, after which a backend is down.
    pub failures: u32,
    /// Answers in a row after which it is up again.
    pub successes: u32,
}

impl Default for HealthSettings {
    /// A backend that died is down after four seconds at most, and after two if clients send it
    /// something all the time. A lost probe or a pause of a second has no effect.
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
    /// The identifier of the probes that are unanswered.
    awaited: Option<u64>,
    /// Results in a row that contradict `is_up`.
    contrary: u32,
    /// When the last probe was sent.
    probed: Option<Duration>,
    silence: Silence,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            is_up: true,
            awaited: None,
            contrary: 0,
            probed: None,
            silence: Silence::default(),
        }
    }
}

impl Health {
    /// Returns whether a probe is due at `now`.
    fn is_due(&self, now: Duration, settings: &HealthSettings) -> bool {
        let silent = self.silence.has_lasted(now, settings.interval / 2);
        let every = match self.is_up && silent {
            true => settings.interval / 3,
            false => settings.interval,
        };
        self.probed.is_none_or(|probed| now >= probed + every)
    }

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
    v4: Option<Socket>,
    v6: Option<Socket>,
    batch: RecvBatch,
    settings: HealthSettings,
    backends: HashMap<BackendId, Health>,
    identifiers: RandomState,
    sent: u64,
}

impl Prober {
    pub(crate) fn new(settings: HealthSettings) -> io::Result<Self> {
        // With "don't fragment": a forged ICMP error could otherwise have the system send probes in
        // fragments, which many networks drop, and so bring a backend down.
        let options = Options {
            gro: false,
            ..Options::default()
        };
        let v4 = Socket::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)), &options);
        let v6 = Socket::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)), &options);
        // A host may have one family only.
        let (v4, v6) = match (v4, v6) {
            (Err(error), Err(_)) => return Err(error),
            (v4, v6) => (v4.ok(), v6.ok()),
        };
        Ok(Self {
            v4,
            v6,
            batch: RecvBatch::new(SLOTS, 2 * PROBE_LEN),
            settings,
            backends: HashMap::new(),
            identifiers: RandomState::default(),
            sent: 0,
        })
    }

    pub(crate) fn is_up(&self, id: BackendId) -> bool {
        self.backends.get(&id).is_none_or(|health| health.is_up)
    }

    /// Sends a probe to each backend to which one is due. Former probes that were not answered have
    /// failed. Returns whether a backend is up or down that was not before.
    pub(crate) fn probe(
        &mut self,
        now: Duration,
        backends: &[(BackendId, SocketAddr)],
        exchanged: impl Fn(BackendId) -> Exchanged,
    ) -> bool {
        let mut changed = false;
        for &(id, address) in backends {
            let health = self.backends.entry(id).or_default();
            health.silence.look(now, exchanged(id));
            if !health.is_due(now, &self.settings) {
                continue;
            }
            health.probed = Some(now);
            if health.awaited.is_some() {
                changed |= health.record(false, &self.settings);
            }
            self.sent += 1;
            let new = self.identifiers.hash_one(self.sent);
            // Nobody else can guess it and answer in the backend's place. It stays the same until it
            // is answered, so that an answer may take longer than the time between two probes.
            let identifier = *health.awaited.get_or_insert(new);
            let socket = match address.is_ipv4() {
                true => &self.v4,
                false => &self.v6,
            };
            if let Some(socket) = socket {
                // What cannot be sent is a lost probe.
                let _ = socket.send(&mut Transmit::new(address, &probe(identifier)));
            }
        }
        if self.backends.len() > backends.len() {
            let configured: HashSet<BackendId> = backends.iter().map(|(id, _)| *id).collect();
            self.backends.retain(|id, _| configured.contains(id));
        }
        changed
    }

    /// Reads answers. Returns whether a backend is up or down that was not before.
    pub(crate) fn receive(&mut self) -> bool {
        let mut changed = false;
        for socket in [&self.v4, &self.v6].into_iter().flatten() {
            // What ICMP says about probes is no answer: anybody can forge it.
            let _ = discard_errors(socket);
            // Bounded, because anybody can send to this port.
            for _ in 0..ROUNDS {
                match socket.recv(&mut self.batch) {
                    Ok(_) => {}
                    Err(RecvError::WouldBlock) => break,
                    Err(RecvError::Unavailable(_) | RecvError::Broken(_)) => break,
                }
                for (_, datagram) in self.batch.datagrams() {
                    let awaited = self.backends.values_mut();
                    let answering = answered(datagram).and_then(|identifier| {
                        awaited
                            .into_iter()
                            .find(|health| health.awaited == Some(identifier))
                    });
                    if let Some(health) = answering {
                        health.awaited = None;
                        changed |= health.record(true, &self.settings);
                    }
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
    use std::net::UdpSocket;

    use clearway_udp::testing::{Forger, IcmpMessage};

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

    /// Sends the probe that is due after so many intervals, with nothing sent by clients.
    fn probe_at(prober: &mut Prober, round: u32, backends: &[(BackendId, SocketAddr)]) -> bool {
        let now = settings().interval * (round + 1);
        prober.probe(now, backends, |_| Exchanged::default())
    }

    #[test]
    fn backend_without_answers_is_down_until_it_answers_again() {
        let (server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        let backends = [(ID, address)];
        for round in 0..4 {
            let changed = probe_at(&mut prober, round, &backends);
            assert_eq!(changed, round == 3);
            assert_eq!(prober.is_up(ID), round < 3);
        }
        for _ in 0..3 {
            server.answer(|_| vec![9; 8]);
        }
        server.answer(<[u8]>::to_vec);
        assert!(!receive(&mut prober), "one answer is not enough");
        assert!(!prober.is_up(ID));
        probe_at(&mut prober, 4, &backends);
        server.answer(<[u8]>::to_vec);
        assert!(receive(&mut prober));
        assert!(prober.is_up(ID));
    }

    #[test]
    fn answer_with_wrong_identifier_is_ignored() {
        let (server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        for round in 0..4 {
            probe_at(&mut prober, round, &[(ID, address)]);
            server.answer(|_| vec![1; 8]);
            receive(&mut prober);
        }
        assert!(!prober.is_up(ID));
    }

    #[test]
    fn answer_that_takes_longer_than_an_interval_counts() {
        let (server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        for round in 0..20 {
            probe_at(&mut prober, round, &[(ID, address)]);
            if round > 0 {
                // To the probe before.
                server.answer(<[u8]>::to_vec);
                receive(&mut prober);
            }
            assert!(prober.is_up(ID), "{round}");
        }
    }

    #[test]
    fn removed_backend_is_forgotten() {
        let (_server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        for round in 0..4 {
            probe_at(&mut prober, round, &[(ID, address)]);
        }
        assert!(!prober.is_up(ID));
        probe_at(&mut prober, 5, &[]);
        assert!(prober.is_up(ID));
    }

    /// Looks every 20 ms while clients send to the backend, which answers probes or not, and clients
    /// or not. Returns how many probes there were in two seconds, and when it was down.
    fn under_load(answers_probes: bool, answers_clients: bool) -> (u64, Option<Duration>) {
        let (server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        let start = Duration::from_secs(100);
        for tick in 0..100 {
            let now = start + Duration::from_millis(20 * tick);
            let before = prober.sent;
            let exchanged = |_| Exchanged {
                sent: tick,
                received: if answers_clients { tick } else { 0 },
            };
            prober.probe(now, &[(ID, address)], exchanged);
            if !prober.is_up(ID) {
                return (prober.sent, Some(now - start));
            }
            if answers_probes && prober.sent > before {
                server.answer(<[u8]>::to_vec);
                receive(&mut prober);
            }
        }
        (prober.sent, None)
    }

    #[test]
    fn silent_backend_with_clients_is_down_earlier() {
        // Silent from 20 ms on; probes at 0, 520, 860 and 1,200 ms.
        let (probes, down) = under_load(false, false);
        assert_eq!(down, Some(Duration::from_millis(1_200)));
        assert_eq!(probes, 4);
    }

    #[test]
    fn silent_backend_that_answers_probes_stays_up() {
        // What clients send is nothing that a server answers.
        assert_eq!(under_load(true, false), (6, None));
    }

    #[test]
    fn backend_that_answers_clients_is_probed_at_the_usual_rate() {
        assert_eq!(under_load(true, true), (2, None));
    }

    #[test]
    fn datagrams_from_a_backend_do_not_keep_it_up() {
        // Anybody can forge them: probes have to be answered.
        let (server, address) = Answering::new();
        let mut prober = Prober::new(settings()).unwrap();
        for round in 0..4 {
            let exchanged = |_| Exchanged {
                sent: round,
                received: round,
            };
            let now = settings().interval * (round as u32 + 1);
            prober.probe(now, &[(ID, address)], exchanged);
        }
        assert!(!prober.is_up(ID));
        drop(server);
    }

    #[test]
    fn probes_are_not_fragmented() {
        let prober = Prober::new(settings()).unwrap();
        for socket in [&prober.v4, &prober.v6].into_iter().flatten() {
            assert!(socket.report().dont_fragment);
        }
    }

    /// Everything that ICMP can say about a probe, in the name of a network that nobody checks.
    #[test]
    fn icmp_errors_about_probes_change_nothing() {
        // An address of its own: the host remembers what it was told of the path's MTU.
        let socket = UdpSocket::bind("127.9.8.1:0").unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let (address, server) = (socket.local_addr().unwrap(), Answering(socket));
        let mut prober = Prober::new(settings()).unwrap();
        let port = prober.v4.as_ref().unwrap().local_addr().unwrap().port();
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let Ok(forger) = Forger::new(local, address) else {
            eprintln!("skipped: forging ICMP needs a raw socket (CAP_NET_RAW)");
            return;
        };
        for (round, message) in (0..).zip(IcmpMessage::all(local.ip())) {
            forger.send(message, &[0xc0; 64]).unwrap();
            probe_at(&mut prober, round, &[(ID, address)]);
            forger.send(message, &[0xc0; 64]).unwrap();
            server.answer(<[u8]>::to_vec);
            assert!(!receive(&mut prober));
            assert!(prober.backends[&ID].awaited.is_none(), "{message:?}");
            assert_eq!(prober.backends[&ID].contrary, 0, "{message:?}");
        }
    }
}
