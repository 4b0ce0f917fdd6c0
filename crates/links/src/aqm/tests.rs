//! Each kind of queue management under senders that don't listen.

use core::time::Duration;
use std::sync::{Arc, Mutex};

use super::*;
use crate::{DropCause, Ecn, Link, LinkStats, Packet, PacketEvent, TapRecord, Time};

/// Sends packets of `payload` bytes every `gap`, from `from` until `until`.
#[derive(Clone, Copy)]
struct Sender {
    port: u16,
    ecn: Ecn,
    payload: usize,
    gap: Duration,
    from: Duration,
    until: Duration,
}

/// 1,250 bytes on the wire: a millisecond at 10 Mbit/s.
const PAYLOAD: usize = 1222;

impl Sender {
    fn new(port: u16, ecn: Ecn, gap_micros: u64, secs: u64) -> Self {
        Self {
            port,
            ecn,
            payload: PAYLOAD,
            gap: Duration::from_micros(gap_micros),
            from: Duration::ZERO,
            until: Duration::from_secs(secs),
        }
    }

    fn times(self) -> impl Iterator<Item = (Duration, Self)> {
        core::iter::successors(Some(self.from), move |at| Some(*at + self.gap))
            .take_while(move |at| *at < self.until)
            .map(move |at| (at, self))
    }
}

/// What the tap saw of one packet.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Time,
    port: u16,
    wire_bytes: u32,
    sight: PacketEvent,
}

struct Run {
    seen: Vec<Seen>,
    stats: LinkStats,
}

fn run(config: &str, senders: &[Sender]) -> Run {
    let mut link = Link::new(config.parse().unwrap(), 7);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = seen.clone();
    link.set_tap(Some(Box::new(move |sighting: &TapRecord<'_>| {
        log.lock().unwrap().push(Seen {
            at: sighting.at,
            port: sighting.packet.src.port(),
            wire_bytes: sighting.wire_bytes,
            sight: sighting.sight,
        });
    })));
    let mut sends: Vec<_> = senders.iter().flat_map(|sender| sender.times()).collect();
    sends.sort_by_key(|&(at, sender)| (at, sender.port));
    for (at, sender) in sends {
        let now = Time::ZERO + at;
        while link.poll(now).is_some() {}
        let src = ([10, 0, 0, 1], sender.port).into();
        let dst = ([10, 0, 0, 2], 443).into();
        let packet = Packet::new(src, dst, vec![0; sender.payload]).with_ecn(sender.ecn);
        let _ = link.send(now, packet);
    }
    link.set_tap(None);
    let seen = Arc::into_inner(seen).unwrap().into_inner().unwrap();
    Run {
        seen,
        stats: *link.stats(),
    }
}

impl Run {
    fn times(&self, sight: PacketEvent) -> Vec<Time> {
        let hits = self.seen.iter().filter(|seen| seen.sight == sight);
        hits.map(|seen| seen.at).collect()
    }

    fn drops(&self) -> Vec<Time> {
        self.times(PacketEvent::Dropped(DropCause::Aqm))
    }

    fn count(&self, port: u16, after: Time, wanted: impl Fn(PacketEvent) -> bool) -> usize {
        self.seen
            .iter()
            .filter(|seen| seen.port == port && seen.at >= after && wanted(seen.sight))
            .count()
    }

    /// (time, wait, bytes left behind) of the packets of `port` that went.
    fn departures(&self, port: u16) -> Vec<(Time, Duration, u64)> {
        self.seen
            .iter()
            .filter(|seen| seen.port == port)
            .filter_map(|seen| match seen.sight {
                PacketEvent::Departed { sojourn, bytes, .. } => Some((seen.at, sojourn, bytes)),
                PacketEvent::Offered
                | PacketEvent::Queued { .. }
                | PacketEvent::Marked
                | PacketEvent::Dropped(_)
                | PacketEvent::Delivered { .. } => None,
            })
            .collect()
    }

    fn departed_bytes(&self, port: u16) -> u64 {
        self.seen
            .iter()
            .filter(|seen| seen.port == port && matches!(seen.sight, PacketEvent::Departed { .. }))
            .map(|seen| u64::from(seen.wire_bytes))
            .sum()
    }
}

/// RFC 8289 §5.3: signals come interval / √n apart, each at the first
/// departure after it is due.
fn assert_square_root_spacing(signals: &[Time], interval: Duration) {
    assert!(signals.len() > 20, "{}", signals.len());
    let mut due = signals[0];
    for (count, &at) in (1u32..).zip(&signals[1..]) {
        due += interval.div_f64(f64::from(count).sqrt());
        let late = at.checked_since(due);
        // An integer root is up to a nanosecond short each time.
        let early = due.checked_since(at).unwrap_or_default();
        assert!(
            early <= Duration::from_nanos(u64::from(count)),
            "{count}: {early:?}"
        );
        assert!(
            late.unwrap_or_default() <= Duration::from_millis(1),
            "{count}: {late:?}"
        );
    }
}

#[test]
fn codel_drops_at_square_root_spacing_after_an_interval_above_target() {
    let flood = Sender::new(1, Ecn::NotEct, 800, 3);
    let run = run("rate=10M aqm=codel", &[flood]);
    let drops = run.drops();
    assert_square_root_spacing(&drops, Duration::from_millis(100));
    let above = run
        .departures(1)
        .into_iter()
        .find(|&(_, wait, left)| wait >= Duration::from_millis(5) && left > 1250)
        .map(|(at, ..)| at)
        .unwrap();
    let first = drops[0] - above;
    assert!(first >= Duration::from_millis(100), "{first:?}");
    assert!(first <= Duration::from_millis(101), "{first:?}");
}

#[test]
fn codel_marks_ecn_capable_packets() {
    let flood = Sender::new(1, Ecn::Ect0, 900, 3);
    let run = run("rate=10M aqm=codel", &[flood]);
    assert_eq!(run.stats.dropped(), 0);
    let marks = run.times(PacketEvent::Marked);
    assert_square_root_spacing(&marks, Duration::from_millis(100));
    let deaf = self::run("rate=10M aqm=codel:noecn", &[flood]);
    assert_eq!(deaf.stats.ce_marked, 0);
    assert!(deaf.stats.dropped_aqm > 20);
}

#[test]
fn codel_does_not_drop_when_the_queue_drains_in_time() {
    let calm = Sender::new(1, Ecn::NotEct, 1100, 2);
    // A burst of 40 ms that is gone after half a second.
    let burst = Sender {
        until: Duration::from_micros(400),
        ..Sender::new(2, Ecn::NotEct, 10, 1)
    };
    let run = run("rate=10M aqm=codel:interval=600ms", &[calm, burst]);
    assert!(run.stats.queueing_max >= Duration::from_millis(35));
    assert_eq!(run.stats.dropped(), 0);
}

#[test]
fn codel_resumes_at_the_previous_drop_rate() {
    let first = Sender::new(1, Ecn::NotEct, 800, 3);
    let again = Sender {
        from: Duration::from_millis(3600),
        ..Sender::new(1, Ecn::NotEct, 800, 5)
    };
    let run = run("rate=10M aqm=codel", &[first, again]);
    let drops = run.drops();
    let restart = drops.partition_point(|&at| at < Time::from_millis(3600));
    let gap = drops[restart + 1] - drops[restart];
    assert!(restart > 20);
    assert!(gap < Duration::from_millis(40), "{gap:?}");
}

#[test]
fn fq_codel_isolates_sparse_flow_from_flood() {
    let flood = Sender::new(1, Ecn::NotEct, 500, 4);
    let sparse = Sender {
        payload: 100,
        ..Sender::new(2, Ecn::NotEct, 10_000, 4)
    };
    let isolated = run("rate=10M queue=200 aqm=fq_codel", &[flood, sparse]);
    let worst = |run: &Run| run.departures(2).iter().map(|&(_, wait, _)| wait).max();
    // At worst the packet in service and one turn of the other flow.
    assert!(
        worst(&isolated) <= Some(Duration::from_millis(3)),
        "{:?}",
        worst(&isolated)
    );
    assert_eq!(isolated.departures(2).len(), 400);
    assert!(isolated.stats.dropped_queue > 0 && isolated.stats.dropped_aqm > 0);
    let together = run("rate=10M queue=200 aqm=codel", &[flood, sparse]);
    assert!(worst(&together) > Some(Duration::from_millis(50)));
}

#[test]
fn fq_codel_shares_by_bytes_not_packets() {
    let large = Sender::new(1, Ecn::NotEct, 500, 4);
    let small = Sender {
        payload: 284,
        ..Sender::new(2, Ecn::NotEct, 125, 4)
    };
    let run = run("rate=10M queue=1000 aqm=fq_codel", &[large, small]);
    let (large, small) = (run.departed_bytes(1), run.departed_bytes(2));
    assert!(large + small > 4_990_000, "{large} + {small}");
    assert!(large.abs_diff(small) <= 2 * 1514, "{large} {small}");
}

#[test]
fn fq_codel_drops_from_the_longest_flow_when_full() {
    let fat = Sender::new(1, Ecn::NotEct, 250, 1);
    let thin = Sender::new(2, Ecn::NotEct, 2500, 1);
    let run = run("rate=10M queue=50 aqm=fq_codel", &[fat, thin]);
    let full = PacketEvent::Dropped(DropCause::QueueFull);
    assert!(run.count(1, Time::ZERO, |sight| sight == full) > 1000);
    assert_eq!(run.count(2, Time::ZERO, |sight| sight == full), 0);
    assert_eq!(run.stats.max_queue_packets, 50);
}

#[test]
fn pie_converges_to_the_target_delay() {
    let flood = Sender::new(1, Ecn::NotEct, 833, 60);
    let run = run("rate=10M aqm=pie", &[flood]);
    let late = Time::from_secs(30);
    let offered = run.count(1, late, |sight| sight == PacketEvent::Offered);
    let dropped = run.count(1, late, |sight| {
        sight == PacketEvent::Dropped(DropCause::Aqm)
    });
    // A sixth has to go.
    let permille = dropped * 1000 / offered;
    assert!((160..=174).contains(&permille), "{permille}");
    let waits: Vec<_> = run
        .departures(1)
        .into_iter()
        .filter(|&(at, ..)| at >= late)
        .map(|(_, wait, _)| wait)
        .collect();
    let mean = waits.iter().sum::<Duration>() / waits.len() as u32;
    let target = Duration::from_millis(15);
    assert!(mean.abs_diff(target) < Duration::from_millis(3), "{mean:?}");
}

#[test]
fn pie_passes_first_burst_and_marks_before_dropping() {
    let flood = Sender::new(1, Ecn::Ect0, 950, 10);
    let run = run("rate=10M aqm=pie", &[flood]);
    let (marks, drops) = (run.times(PacketEvent::Marked), run.drops());
    assert!(marks[0] >= Time::from_millis(150), "{:?}", marks[0]);
    // Nobody slows down, so beyond a probability of a tenth it drops.
    assert!(marks[0] < drops[0] && marks.len() > 10 && drops.len() > 10);
    let deaf = self::run("rate=10M aqm=pie:noecn", &[flood]);
    assert_eq!(deaf.stats.ce_marked, 0);
}

#[test]
fn pie_resets_when_the_queue_empties() {
    let flood = Sender::new(1, Ecn::NotEct, 833, 20);
    let calm = Sender {
        from: Duration::from_secs(30),
        ..Sender::new(1, Ecn::NotEct, 1100, 40)
    };
    let run = run("rate=10M aqm=pie", &[flood, calm]);
    assert!(run.drops().len() > 1000);
    assert!(run.drops().iter().all(|&at| at < Time::from_secs(21)));
}

#[test]
fn dualq_couples_classic_and_l4s_signals() {
    let classic = Sender::new(1, Ecn::NotEct, 909, 60);
    let scalable = Sender::new(2, Ecn::Ect1, 10_000, 60);
    let run = run("rate=10M aqm=dualq", &[classic, scalable]);
    let late = Time::from_secs(20);
    let share = |port, sight: PacketEvent| {
        let hits = run.count(port, late, |seen| seen == sight) as f64;
        hits / run.count(port, late, |seen| seen == PacketEvent::Offered) as f64
    };
    let drops = share(1, PacketEvent::Dropped(DropCause::Aqm));
    let marks = share(2, PacketEvent::Marked);
    // RFC 9332 §2.1: p_C = (p_CL / k)², here k = 2.
    let expected = 2.0 * drops.sqrt();
    assert!((0.15..0.25).contains(&drops), "{drops}");
    assert!((marks - expected).abs() < 0.04, "{marks} {expected}");
    let settled = run.departures(2).into_iter().filter(|&(at, ..)| at >= late);
    let wait = settled.map(|(_, wait, _)| wait).max();
    assert!(wait <= Some(Duration::from_millis(1)), "{wait:?}");
}

#[test]
fn dualq_marks_l4s_queue_by_step_and_by_ramp() {
    let flood = Sender::new(1, Ecn::Ect1, 900, 1);
    // Before the base probability rises: only the queue's own marking.
    let early = Time::from_millis(100);
    let marks = |config: &str| -> Vec<(Duration, bool)> {
        let run = run(config, &[flood]);
        let marked = run.times(PacketEvent::Marked);
        run.departures(1)
            .into_iter()
            .filter(|&(at, _, left)| at < early && left > 0)
            .map(|(at, wait, _)| (wait, marked.contains(&at)))
            .collect()
    };
    let threshold = Duration::from_millis(2);
    let step = marks("rate=10M aqm=dualq:threshold=2ms:step");
    assert!(step.iter().any(|&(_, marked)| marked));
    assert!(
        step.iter()
            .all(|&(wait, marked)| marked == (wait >= threshold))
    );
    let ramp = marks("rate=10M aqm=dualq:threshold=2ms:ramp=6ms");
    let top = Duration::from_millis(8);
    assert!(
        ramp.iter()
            .filter(|&&(wait, _)| wait < threshold)
            .all(|&(_, marked)| !marked)
    );
    assert!(
        ramp.iter()
            .filter(|&&(wait, _)| wait >= top)
            .all(|&(_, marked)| marked)
    );
    let between = ramp
        .iter()
        .filter(|&&(wait, _)| wait >= threshold && wait < top);
    let (some, most) = (
        between.clone().count(),
        between.filter(|&&(_, marked)| marked).count(),
    );
    // On a steady climb the mean probability is a half.
    assert!(most * 3 > some && most * 3 < some * 2, "{most} of {some}");
}

#[test]
fn dualq_drops_even_scalable_senders_that_overload_it() {
    let flood = Sender::new(1, Ecn::Ect1, 700, 20);
    let run = run("rate=10M aqm=dualq", &[flood]);
    assert!(run.stats.dropped_aqm > 1000);
    let late = run
        .departures(1)
        .into_iter()
        .filter(|&(at, ..)| at > Time::from_secs(10));
    let worst = late.map(|(_, wait, _)| wait).max().unwrap();
    assert!(worst < Duration::from_millis(60), "{worst:?}");
}

#[test]
fn dualq_does_not_starve_the_classic_queue() {
    let classic = Sender::new(1, Ecn::Ect0, 5000, 5);
    let flood = Sender::new(2, Ecn::Ect1, 500, 5);
    let run = run("rate=10M aqm=dualq", &[classic, flood]);
    let worst = run
        .departures(1)
        .into_iter()
        .map(|(_, wait, _)| wait)
        .max()
        .unwrap();
    // Half of all has to go, and the coupling takes it from both alike.
    assert!(run.departures(1).len() > 400, "{}", run.departures(1).len());
    // The L4S queue's wait and the shift.
    assert!(worst < Duration::from_millis(500), "{worst:?}");
}

#[test]
fn specs_round_trip() {
    for text in [
        "none",
        "codel",
        "codel:target=20ms:interval=200ms:noecn",
        "fq_codel",
        "fq_codel:target=10ms:noecn:flows=16:quantum=300",
        "pie",
        "pie:target=20ms:update=10ms:burst=100ms:noecn",
        "dualq",
        "dualq:target=20ms:rtt=50ms:update=10ms:coupling=3:threshold=1ms:step:shift=30ms",
        "dualq:ramp=1ms",
    ] {
        assert_eq!(text.parse::<Aqm>().unwrap().to_string(), text);
    }
    assert_eq!(
        "codel:target=5ms".parse::<Aqm>().unwrap().to_string(),
        "codel"
    );
}

#[test]
fn error_names_the_option() {
    let message = |text: &str| text.parse::<Aqm>().unwrap_err().to_string();
    assert!(message("").contains("value is empty"));
    assert!(
        message("red")
            .starts_with("invalid queue management \"red\": unknown name; expected none;")
    );
    assert!(
        message("codel:limit=5").starts_with("invalid queue management \"limit\": unknown option")
    );
    assert!(message("codel:target").contains("\"target\": missing value"));
    assert!(message("codel:target=0s").contains("\"0s\": must be greater than zero"));
    assert!(message("pie:update=0ms").contains("\"0ms\": must be greater than zero"));
    assert!(message("pie:target=5").contains("missing unit"));
    assert!(message("pie:target=101s").contains("target must be at most 100s"));
    assert!(message("pie:noecn=1").contains("option \"noecn\" takes no value"));
    assert!(message("fq_codel:flows=0").contains("flows must be a number from 1 to 65536"));
    assert!(message("dualq:coupling=x").contains("coupling must be a number from 1 to 1024"));
    assert!(message("none:target=1ms").contains("unknown option"));
}
