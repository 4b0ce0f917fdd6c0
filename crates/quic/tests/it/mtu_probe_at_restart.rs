//! A connection that begins to send again with an MTU probe: its controller is told all the same that it was
//! idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clearway_links::Packet;
use clearway_quic::Instant;
use clearway_quic::stream::Directionality;
use clearway_recovery::congestion::{CongestionControl, ControllerFactory, NewPath};
use clearway_recovery::controller::{
    Ack, Congestion, Controller, Metrics, Sent, Spurious, State, WindowPolicy,
};
use clearway_recovery::limit::Limit;
use clearway_testing::{Setup, World, path};

/// The largest datagram that the path carries.
const PATH_MTU: usize = 1_300;

/// A window of twenty datagrams that counts restarts.
#[derive(Debug)]
struct CountsRestarts {
    mds: u64,
    restarts: Arc<AtomicU64>,
}

impl Controller for CountsRestarts {
    fn on_sent(&mut self, _: &Sent) {}
    fn on_ack(&mut self, _: &Ack<'_>) {}
    fn on_congestion(&mut self, _: &Congestion) {}
    fn on_spurious(&mut self, _: &Spurious) {}
    fn on_limit(&mut self, _: Limit, _: Instant) {}
    fn restart_from_idle(&mut self, _: Instant) {
        self.restarts.fetch_add(1, Relaxed);
    }
    fn on_mds(&mut self, mds: u64) {
        self.mds = mds;
    }
    fn window(&self) -> u64 {
        20 * self.mds
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
        "counts-restarts"
    }
}

#[derive(Debug)]
struct Factory(Arc<AtomicU64>);

impl ControllerFactory for Factory {
    fn build(&self, path: &NewPath) -> Box<dyn Controller> {
        Box::new(CountsRestarts {
            mds: path.mds,
            restarts: self.0.clone(),
        })
    }
    fn name(&self) -> &str {
        "counts-restarts"
    }
}

/// The MTU is searched again 600 s after a search (RFC 8899 §5.1.1), and the probe goes before data.
#[test]
fn mtu_probe_before_data_does_not_hide_the_restart_from_idle() {
    let restarts = Arc::new(AtomicU64::new(0));
    let mut setup = Setup::new();
    setup.server.controller = CongestionControl::custom(Factory(restarts.clone()));
    setup.server.idle_timeout = Duration::from_secs(3_600);
    setup.client.idle_timeout = Duration::from_secs(3_600);
    let mut world = World::new(setup, path("rate=20M delay=10ms queue=1000", 1), 1);
    let probes = Arc::new(AtomicU64::new(0));
    let seen = probes.clone();
    world.filter = Some(Box::new(move |_, packet: &mut Packet| {
        let fits = packet.data.len() <= PATH_MTU;
        seen.fetch_add((!fits).into(), Relaxed);
        fits
    }));
    world.handshake();
    let restarts_of_a_train = |world: &mut World| {
        let before = restarts.load(Relaxed);
        let server = world.server.connection();
        let id = server
            .open(Directionality::Unidirectional)
            .expect("a stream");
        assert!(server.write(id, &[1; 5_000]).is_ok());
        world.run_for(Duration::from_secs(5));
        restarts.load(Relaxed) - before
    };
    restarts_of_a_train(&mut world);
    world.run_for(Duration::from_secs(10));
    assert_eq!(restarts_of_a_train(&mut world), 1, "without a probe");
    let searched = probes.load(Relaxed);
    let found = world.run_until(Duration::from_secs(700), |_| {
        probes.load(Relaxed) > searched
    });
    assert!(found, "the search begins again");
    assert_eq!(restarts_of_a_train(&mut world), 1, "with a probe in flight");
}
