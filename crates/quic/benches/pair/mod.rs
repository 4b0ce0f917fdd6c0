//! Two connections joined by memory, and an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clearway_quic::Instant;
use clearway_quic::ack::ReceivedEcn;
use clearway_quic::cid::generator::RandomGenerator;
use clearway_quic::connection::{Config, ConnectOptions, Connection, RecvMeta};
use clearway_quic::crypto::{
    ClientCrypto, Identity, ReplayFilter, ResetKey, ServerCrypto, TokenKey,
};
use clearway_quic::endpoint::{DatagramEvent, Endpoint, EndpointConfig, Limits, ServerConfig};
use clearway_quic::rng::Rng;
use clearway_recovery::congestion::Algorithm;

/// Counts what is allocated.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// Allocations so far.
pub(crate) fn allocations() -> u64 {
    ALLOCATIONS.load(Ordering::Relaxed)
}

// SAFETY: every call is passed on to the system's allocator unchanged.
#[expect(unsafe_code, reason = "the allocator's trait is unsafe")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Two ends joined by memory; a millisecond passes every so many trains.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) client: Connection,
    pub(crate) server: Connection,
    train: Vec<u8>,
    pub(crate) packets: u64,
}

/// Round trip of the wire that is not there.
const ONE_WAY: u64 = 20_000;

impl Pair {
    /// Both ends with these settings, after the handshake.
    pub(crate) fn new(change: impl FnOnce(&mut Config)) -> Self {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).expect("a key");
        let cert = rcgen::CertificateParams::new(vec!["localhost".into()])
            .and_then(|parameters| parameters.self_signed(&key))
            .expect("a certificate");
        let identity = Identity::from_pem(cert.pem().as_bytes(), key.serialize_pem().as_bytes());
        let server = ServerCrypto::new(identity.expect("an identity")).build();
        let client = ClientCrypto::dangerous_accept_any_certificate().build();
        let mut rng = Rng::from_seed([1; 32]);
        // A window that fits the caches, as on a real path of this length.
        let mut transport = Config::default();
        transport.controller = Algorithm::Fixed(512 << 10).into();
        change(&mut transport);
        let transport = Arc::new(transport);
        let mut dialer = Endpoint::new(
            EndpointConfig::client(transport.clone(), &mut rng),
            rng.child("client"),
        );
        let mut listener = Endpoint::new(
            EndpointConfig {
                transport,
                server: Some(ServerConfig {
                    crypto: server.expect("server settings"),
                    token_key: Arc::new(TokenKey::new(&[2; 32])),
                    replay: Arc::new(ReplayFilter::new(16).into()),
                    always_retry: false,
                    limits: Limits::default(),
                    preferred_address: None,
                }),
                reset_key: Arc::new(ResetKey::new(&[3; 32])),
                generator: Arc::new(|| Box::new(RandomGenerator::new(8))),
            },
            rng.child("server"),
        );
        let now = Instant::from_nanos(1);
        let connect = ConnectOptions {
            remote: ([10, 0, 0, 2], 443).into(),
            local_ip: None,
            server_name: "localhost".try_into().expect("a name"),
            crypto: client.expect("client settings"),
            sessions: None,
        };
        let (_, mut client) = dialer.connect(now, connect).expect("connects");
        let mut train = vec![0; 65_536];
        let from = received([10, 0, 0, 1]);
        let mut server = None;
        while let Some(sent) = client.transmit(now, &mut train, 64) {
            let segment = sent.segment.unwrap_or(sent.len);
            for datagram in train[..sent.len].chunks_mut(segment) {
                if server.is_none() {
                    let arrival = listener.receive(now, 0, from, datagram, &mut Vec::new());
                    let DatagramEvent::Incoming(incoming) = arrival else {
                        panic!("{arrival:?}");
                    };
                    server = Some(listener.accept(now, *incoming).expect("accepts").1);
                }
                if let Some(server) = &mut server {
                    server.receive(now, from, datagram);
                }
            }
        }
        let mut pair = Self {
            now,
            client,
            server: server.expect("a server"),
            train,
            packets: 0,
        };
        while !(pair.client.is_confirmed() && pair.server.is_confirmed()) {
            pair.turn(true);
            pair.turn(false);
        }
        pair
    }

    /// One end sends all it may to the other. False: it had nothing.
    pub(crate) fn turn(&mut self, from_server: bool) -> bool {
        self.now += std::time::Duration::from_nanos(ONE_WAY);
        let (sender, receiver, address) = if from_server {
            (&mut self.server, &mut self.client, [10, 0, 0, 2])
        } else {
            (&mut self.client, &mut self.server, [10, 0, 0, 1])
        };
        if sender.next_timeout().is_some_and(|at| at <= self.now) {
            sender.handle_timeout(self.now);
        }
        let mut any = false;
        while let Some(sent) = sender.transmit(self.now, &mut self.train, 64) {
            any = true;
            let segment = sent.segment.unwrap_or(sent.len);
            for datagram in self.train[..sent.len].chunks_mut(segment) {
                self.packets += 1;
                let from = RecvMeta {
                    remote: (address, if from_server { 443 } else { 5000 }).into(),
                    ..received(address)
                };
                receiver.receive(self.now, from, datagram);
            }
        }
        any
    }
}

fn received(address: [u8; 4]) -> RecvMeta {
    RecvMeta {
        remote: (address, 5000).into(),
        local_ip: None,
        ecn: ReceivedEcn::NotEct,
    }
}
