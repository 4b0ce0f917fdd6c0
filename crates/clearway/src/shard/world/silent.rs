//! Probes of clients that are not heard of after their handshakes wait while others are served.

use std::time::Duration;

use super::app::App;
use super::peer::Peer;
use super::{SERVER, Scope, Shard, client_config};
use crate::connection::Stage;
use crate::shard::Clock;

/// Clients that abandon their handshakes.
const SILENT: usize = 40;

/// What each read of the clock takes: about as long as the work between two of them.
const STEP: Duration = Duration::from_micros(20);

/// After this, all of them have a probe to send.
const PROBES_DUE: Duration = Duration::from_secs(3);

/// Stream data in a turn that shows a download.
const BULK: u64 = 1 << 20;

impl Shard {
    /// Creates a shard with clients that have acknowledged nothing since their handshakes, with whose
    /// ends they sent some stream data, as browsers do, and to which a probe is due now. The first
    /// client is another one.
    fn with_probes_due() -> Self {
        let mut shard = Self::new(&Scope::new(1, |_| true));
        for _ in 0..SILENT {
            let n = u8::try_from(shard.connections()).expect("few");
            let peer = Peer::new(n, shard.now, SERVER, client_config());
            shard.peers.push(peer);
            shard.receive_all(1);
            let now = shard.now;
            shard.peers[1].receive_all(now, SERVER);
            shard.peers[1].write();
            shard.receive_all(1);
            shard.peers.truncate(1);
            let accepted = shard.endpoint_shared.next_accepted();
            let app = App::new(accepted.expect("a handshake completes"));
            shard.apps.push(app);
            shard.settle();
            let app = shard.apps.last_mut().expect("pushed");
            app.read();
            app.poll().expect("woken");
            // What was read is noticed with the next turn, not with that of a probe.
            app.connection.as_ref().expect("open").shared().mark_dirty();
            shard.settle();
        }
        assert_eq!(shard.probed(1), 0);
        shard.time_passes(PROBES_DUE);
        shard
    }

    /// Lets the loop take one turn, in which the clock goes on.
    pub(super) fn take_turn(&mut self) -> bool {
        Clock::set(self.now);
        Clock::set_step(STEP);
        let more = self.driver.as_mut().expect("runs").turn();
        Clock::set_step(Duration::ZERO);
        self.now = Clock::manual().now();
        self.socket.queues().sent.clear();
        more.expect("the loop goes on")
    }

    /// Tells the loop that somebody downloads now.
    pub(super) fn download(&mut self) {
        let driver = self.driver.as_mut().expect("runs");
        driver.shard.handshake_pace.on_transfer(self.now, BULK);
    }

    fn time_passes(&mut self, time: Duration) {
        self.now += time;
        Clock::set(self.now);
    }

    /// Returns how many connections have had so many probe timeouts.
    fn probed(&self, times: u64) -> usize {
        let driver = self.driver.as_ref().expect("runs");
        let entries = driver.shard.table.values();
        let probed = entries.filter(|entry| {
            let probes = entry.shared.with_state(Stage::Call, |state| {
                state.quic.stats(self.now).counters.ptos >= times
            });
            probes.expect("alive")
        });
        probed.count()
    }
}

#[test]
fn probes_of_silent_clients_are_sent_one_at_a_time_beside_a_download() {
    let mut shard = Shard::with_probes_due();
    let began = shard.now;
    let mut turns = 0_u32;
    while shard.probed(1) < SILENT {
        let before = shard.probed(1);
        shard.download();
        // If nothing is to be done, the alarm wakes the loop.
        if !shard.take_turn() {
            shard.time_passes(STEP);
        }
        turns += 1;
        assert!(shard.probed(1) <= before + 1, "in turn {turns}");
        assert!(turns < 10_000, "{} have been sent", shard.probed(1));
    }
    let took = shard.now - began;
    // Three times what it takes to handle a timeout, and to send the probe.
    let least = (STEP * 12) * SILENT as u32;
    assert!(took >= least, "{took:?}: pauses are too short");
}

/// Nor do clients that wait and are turned away keep them from being sent.
#[test]
fn probes_of_silent_clients_take_turns_with_clients_that_are_turned_away() {
    let mut shard = Shard::with_probes_due();
    let mut turns = 0_u32;
    shard.driver.as_mut().expect("runs").shard.refuse_clients();
    while shard.probed(1) < SILENT {
        shard.download();
        shard.add_newcomer((turns % 200) as u8, None);
        shard.take_turn();
        turns += 1;
        assert!(turns < 10_000, "{} have been sent", shard.probed(1));
    }
}

#[test]
fn probes_of_silent_clients_are_sent_soon_if_nobody_is_served() {
    let mut shard = Shard::with_probes_due();
    let mut turns = 0;
    while shard.probed(1) < SILENT {
        let before = shard.probed(1);
        let more = shard.take_turn();
        assert!(
            more || shard.probed(1) == SILENT,
            "{} in turn {turns}",
            shard.probed(1)
        );
        assert!(shard.probed(1) <= before + 16, "in turn {turns}");
        turns += 1;
    }
    assert_eq!(turns, 3);
    // The next ones come at twice the time.
    shard.time_passes(PROBES_DUE * 2);
    while shard.take_turn() {}
    assert_eq!(shard.probed(2), SILENT);
}

#[test]
fn loop_wakes_for_probes_that_wait() {
    let mut shard = Shard::with_probes_due();
    shard.download();
    while shard.take_turn() {
        shard.download();
    }
    let left = SILENT - shard.probed(1);
    assert!(left > 0, "none had to wait");
    let driver = shard.driver.as_ref().expect("runs");
    let resume_at = driver.shard.timeouts_resume_at().expect("they wait");
    assert!(resume_at > shard.now);
    shard.settle();
    assert_eq!(shard.alarm().map(|at| at <= resume_at), Some(true));
    shard.wait(Duration::from_secs(1));
    assert_eq!(shard.probed(1), SILENT);
}
