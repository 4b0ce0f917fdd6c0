//! Congestion controllers and connection-ID generators of the application.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::common::{IDENTITY, LOOPBACK, Pair, client, client_config, pattern, server_config};
use clearway::congestion::{
    Ack, Congestion, CongestionControl, Controller, ControllerFactory, Metrics, NewPath, Sent,
    Spurious, State, WindowPolicy,
};
use clearway::connection_id::{CidGenerator, ConnectionId, Rng};
use clearway::{
    BuildError, ClientConfig, CongestionController, Endpoint, Instant, Limit, Observer, TraceEvent,
};

/// The constant window, in datagrams.
const DATAGRAMS: u64 = 20;

/// A controller with a constant window.
#[derive(Debug)]
struct Constant {
    mds: u64,
    seen: Arc<Seen>,
}

/// Counts of the calls of controllers.
#[derive(Debug, Default)]
struct Seen {
    built: AtomicU64,
    acked: AtomicU64,
    most_in_flight: AtomicU64,
    mds: AtomicU64,
}

impl Controller for Constant {
    fn on_sent(&mut self, sent: &Sent) {
        let in_flight = sent.in_flight_before + sent.bytes;
        self.seen.most_in_flight.fetch_max(in_flight, Relaxed);
    }
    fn on_ack(&mut self, ack: &Ack<'_>) {
        self.seen.acked.fetch_add(ack.bytes, Relaxed);
    }
    fn on_congestion(&mut self, _: &Congestion) {}
    fn on_spurious(&mut self, _: &Spurious) {}
    fn on_limit(&mut self, _: Limit, _: Instant) {}
    fn restart_from_idle(&mut self, _: Instant) {}
    fn on_mds(&mut self, mds: u64) {
        self.mds = mds;
        self.seen.mds.store(mds, Relaxed);
    }
    fn window(&self) -> u64 {
        DATAGRAMS * self.mds
    }
    fn min_window(&self) -> u64 {
        self.window()
    }
    fn pacing_rate(&self) -> Option<u64> {
        None
    }
    fn window_policy(&self) -> WindowPolicy {
        WindowPolicy::Constant
    }
    fn state(&self) -> State {
        State::CongestionAvoidance
    }
    fn metrics(&self) -> Metrics {
        Metrics::default()
    }
    fn name(&self) -> &'static str {
        "constant"
    }
}

#[derive(Debug)]
struct ConstantFactory(Arc<Seen>);

impl ControllerFactory for ConstantFactory {
    fn build(&self, path: &NewPath) -> Box<dyn Controller> {
        self.0.built.fetch_add(1, Relaxed);
        self.0.mds.store(path.mds, Relaxed);
        Box::new(Constant {
            mds: path.mds,
            seen: self.0.clone(),
        })
    }
    fn name(&self) -> &str {
        "constant"
    }
}

#[tokio::test]
async fn custom_controller_holds_its_constant_window_over_a_transfer() {
    const SIZE: usize = 3 << 20;
    let seen = Arc::new(Seen::default());
    let control = CongestionControl::custom(ConstantFactory(seen.clone()));
    let server = Endpoint::server(LOOPBACK, server_config().congestion_control(control));
    let pair = Pair::of(server.expect("a server"), client()).await;
    let content = pattern(3, SIZE);
    let (far, sent) = (pair.far.clone(), content.clone());
    let sending = tokio::spawn(async move {
        let mut send = far.open_uni().await.expect("opens");
        send.write_all(&sent).await.expect("writes");
        send.finish().expect("finishes");
        send.finished().await.expect("arrives");
    });
    let mut recv = pair.near.accept_uni().await.expect("a stream");
    assert!(recv.read_to_end(SIZE).await.expect("reads") == content);
    sending.await.expect("sends");

    let stats = pair.far.stats();
    assert_eq!(stats.controller, "constant");
    assert_eq!(stats.window, DATAGRAMS * u64::from(stats.mtu));
    assert_eq!(stats.min_window, stats.window);
    let paths = pair.far.path_stats();
    assert_eq!(paths.len(), 1);
    assert!(paths[0].active && paths[0].window == stats.window);
    assert_eq!(pair.near.stats().controller, "cubic", "of the client's own");
    assert_eq!(seen.built.load(Relaxed), 1);
    assert!(seen.acked.load(Relaxed) > SIZE as u64);
    // Probes and packets with only ACKs may exceed the window.
    let most = seen.most_in_flight.load(Relaxed);
    let window = DATAGRAMS * seen.mds.load(Relaxed);
    assert!(
        most > window / 2 && most <= window + 8 * seen.mds.load(Relaxed),
        "{most} of {window}"
    );
}

#[tokio::test]
async fn configured_congestion_control_is_used() {
    let config = client_config().congestion_control(CongestionController::Bbr);
    let client = Endpoint::client(LOOPBACK, config).expect("a client");
    let server = Endpoint::server(LOOPBACK, server_config()).expect("a server");
    let pair = Pair::of(server, client).await;
    assert_eq!(pair.near.stats().controller, "bbr");
    assert_eq!(pair.far.stats().controller, "cubic");
}

/// Length of the connection IDs of [`Routable`].
const LEN: usize = 12;

/// Random bytes, and at the end one that names the server.
#[derive(Debug)]
struct Routable(u8);

impl CidGenerator for Routable {
    fn generate(&mut self, rng: &mut Rng) -> ConnectionId {
        let mut bytes: [u8; LEN] = rng.array();
        bytes[LEN - 1] = self.0;
        ConnectionId::new(&bytes).expect("at most 20 bytes")
    }
    fn cid_len(&self) -> usize {
        LEN
    }
}

/// Keeps the first connection ID of each connection.
#[derive(Debug)]
struct FirstId(Arc<Mutex<Vec<ConnectionId>>>);

impl Observer for FirstId {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        if let TraceEvent::Started { local_cid, .. } = event {
            self.0.lock().expect("not poisoned").push(*local_cid);
        }
    }
}

#[tokio::test]
async fn custom_connection_ids_work_with_two_shards() {
    let ids: Arc<Mutex<Vec<ConnectionId>>> = Arc::default();
    let kept = ids.clone();
    let server = Endpoint::builder(LOOPBACK)
        .server(server_config())
        .shards(2)
        .connection_ids(|| Box::new(Routable(0xa7)))
        .observe(move |_, _| Some(Box::new(FirstId(kept.clone()))))
        .build()
        .expect("a server");
    let client = client();
    for n in 0..8_u64 {
        let (near, far) = tokio::join!(
            std::future::IntoFuture::into_future(client.connect(server.local_addr(), "localhost")),
            server.accept()
        );
        let (near, far) = (
            near.expect("connects"),
            far.expect("works").expect("accepts"),
        );
        let content = pattern(n, 30_000);
        let mut send = near.open_uni().await.expect("opens");
        send.write_all(&content).await.expect("writes");
        send.finish().expect("finishes");
        let mut recv = far.accept_uni().await.expect("a stream");
        assert!(recv.read_to_end(content.len()).await.expect("reads") == content);
    }
    let ids = ids.lock().expect("not poisoned");
    assert_eq!(ids.len(), 8);
    for id in ids.iter() {
        assert_eq!((id.len(), id[LEN - 1]), (LEN, 0xa7));
    }
}

#[tokio::test]
async fn connection_ids_of_invalid_length_are_rejected() {
    #[derive(Debug)]
    struct Short(usize);
    impl CidGenerator for Short {
        fn generate(&mut self, rng: &mut Rng) -> ConnectionId {
            let bytes: [u8; 20] = rng.array();
            ConnectionId::new(&bytes[..self.0]).expect("at most 20 bytes")
        }
        fn cid_len(&self) -> usize {
            self.0
        }
    }
    let build = |shards, len| {
        Endpoint::builder(LOOPBACK)
            .server(server_config())
            .shards(shards)
            .connection_ids(move || Box::new(Short(len)))
            .build()
    };
    for (shards, len, least) in [(1, 0, 1), (1, 21, 1), (2, 7, 8)] {
        let Err(BuildError::ConnectionIdLength {
            len: told,
            least: said,
        }) = build(shards, len)
        else {
            panic!("{shards} shards with {len} bytes");
        };
        assert_eq!((told, said), (len, least));
    }
    // One shard needs no more than one byte.
    let server = build(1, 4).expect("a server");
    let client = ClientConfig::with_roots(IDENTITY.certificate_pem()).expect("roots");
    let client = Endpoint::client(LOOPBACK, client.alpn(["test"])).expect("a client");
    let pair = Pair::of(server, client).await;
    assert_eq!(pair.near.stats().counters.packets_lost, 0);
}
