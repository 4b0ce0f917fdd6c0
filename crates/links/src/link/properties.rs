//! Properties of every link under any traffic.

use proptest::prelude::*;

use super::tests::{number, packet};
use super::*;
use crate::{Ecn, Rate};

/// A link as arbitrary text, a traffic pattern, and how late each poll is.
#[derive(Clone, Debug)]
struct Run {
    config: LinkConfig,
    seed: u64,
    /// Gap before each packet in microseconds, its length, poll after it?
    traffic: Vec<(u64, usize, bool)>,
    ecn: Ecn,
    /// Flows that take turns.
    ports: usize,
    /// Polls happen when they should, not only where the traffic says so.
    punctual: bool,
}

fn setting(values: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(values)
}

fn configs() -> impl Strategy<Value = LinkConfig> {
    (
        setting(&[
            "",
            "rate=10M",
            "rate=7M,1M@5ms,0@8ms,30M@12ms",
            "rate=1G",
            "trace=random:mean=7M:outage=5ms:length=50ms",
        ]),
        setting(&[
            "",
            "queue=3",
            "queue=5KB",
            "queue=9,2@10ms police=9M:8KB",
            "aqm=codel:target=1ms:interval=2ms",
            "aqm=codel:target=1ms:interval=2ms:noecn mark=3p",
            "aqm=fq_codel:target=1ms:interval=2ms:noecn:flows=3 queue=6",
            "aqm=pie:target=1ms:update=1ms:burst=1ms queue=20",
            "aqm=dualq:target=1ms:rtt=5ms:update=1ms:step queue=30KB",
        ]),
        setting(&["", "delay=5ms", "delay=5ms,1ms@4ms"]),
        setting(&["", "jitter=2ms", "jitter=2ms:unordered"]),
        setting(&[
            "",
            "reorder=20%:3ms",
            "slot=1ms-3ms:2",
            "slot=2ms reorder=9%:5ms",
        ]),
        setting(&["", "tick=1ms", "freeze=4ms-9ms"]),
        setting(&[
            "",
            "loss=30%",
            "loss=50%@1ms-6ms burst=2",
            "gilbert=10%:30%",
            "gilbert=5ms:2ms",
        ]),
        setting(&[
            "",
            "duplicate=30%",
            "corrupt=30% blackhole=3ms-5ms drop=2-4",
            "thin=3:700B",
        ]),
    )
        .prop_map(|(a, b, c, d, e, f, g, h)| {
            format!("{a} {b} {c} {d} {e} {f} {g} {h}").parse().unwrap()
        })
}

fn runs() -> impl Strategy<Value = Run> {
    let traffic = prop::collection::vec((0u64..1500, 8usize..1500, any::<bool>()), 1..80);
    let ecn = (0u8..4).prop_map(Ecn::from_bits);
    (configs(), any::<u64>(), traffic, ecn, 1usize..4).prop_map(
        |(config, seed, traffic, ecn, ports)| Run {
            config,
            seed,
            traffic,
            ecn,
            ports,
            punctual: true,
        },
    )
}

/// Feeds the traffic, polling only where the run says so, and checks at every
/// step what must always hold. Returns (scheduled arrival, packet).
fn feed(run: &Run, punctual: bool) -> (Vec<(Time, Packet)>, LinkStats) {
    feed_link(run, punctual, &mut Link::new(run.config.clone(), run.seed))
}

fn feed_link(run: &Run, punctual: bool, link: &mut Link) -> (Vec<(Time, Packet)>, LinkStats) {
    let mut arrived = Vec::new();
    let run = Run {
        punctual,
        ..run.clone()
    };
    let now = send_all(&run, Time::ZERO, link, &mut arrived);
    finish(now, link, &mut arrived);
    assert_eq!(link.in_transit_bytes(), 0);
    assert_eq!(link.in_transit(), 0);
    (arrived, *link.stats())
}

/// Sends the traffic from `now` on, and returns when that was done.
fn send_all(run: &Run, mut now: Time, link: &mut Link, arrived: &mut Vec<(Time, Packet)>) -> Time {
    for (number, &(gap, len, poll)) in run.traffic.iter().enumerate() {
        let next = now + Duration::from_micros(gap);
        if run.punctual {
            while let Some(event) = link.next_event().filter(|&event| event <= next) {
                assert!(event >= now, "an event in the past");
                now = event;
                collect(link, now, arrived);
            }
        }
        now = next;
        let mut packet = packet(number as u64, len);
        packet.ecn = run.ecn;
        packet.src.set_port((number % run.ports) as u16);
        let _ = link.send(now, packet);
        if run.punctual || poll {
            collect(link, now, arrived);
            assert!(link.next_event().is_none_or(|event| event > now));
        }
        check_balance(link);
    }
    now
}

/// Lets all that is on its way arrive.
fn finish(mut now: Time, link: &mut Link, arrived: &mut Vec<(Time, Packet)>) {
    while let Some(event) = link.next_event() {
        now = now.max(event);
        collect(link, now, arrived);
        check_balance(link);
    }
}

fn collect(link: &mut Link, now: Time, into: &mut Vec<(Time, Packet)>) {
    while let Some((at, packet)) = link.poll_timed(now) {
        assert!(at <= now, "a packet from the future");
        into.push((at, packet));
    }
}

fn check_balance(link: &Link) {
    let stats = link.stats();
    assert_eq!(
        stats.sent + stats.duplicated,
        stats.delivered + stats.dropped() + link.in_transit() as u64
    );
    let causes = DropCause::ALL.map(|cause| stats.dropped_by(cause));
    assert_eq!(causes.iter().sum::<u64>(), stats.dropped());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Conservation, no event in the past, arrivals in order of time; and a
    /// caller that polls late sees the same packets at the same times.
    #[test]
    fn late_polling_does_not_change_decisions(run in runs()) {
        let (on_time, stats) = feed(&run, true);
        let (late, late_stats) = feed(&run, false);
        prop_assert!(on_time.is_sorted_by_key(|&(at, _)| at));
        prop_assert_eq!(&on_time, &late);
        prop_assert_eq!(stats, late_stats);
        prop_assert_eq!(stats.delivered as usize, on_time.len());
    }

    /// The same seed decides the same, another seed does not matter where
    /// nothing is random.
    #[test]
    fn same_seed_gives_same_decisions(run in runs(), other: u64) {
        prop_assert_eq!(feed(&run, true), feed(&run, true));
        let calm = Run { config: "rate=10M delay=5ms queue=5".parse().unwrap(), ..run };
        let reseeded = Run { seed: other, ..calm.clone() };
        prop_assert_eq!(feed(&calm, true), feed(&reseeded, true));
    }

    /// Without reordering packets arrive in the order in which they left.
    #[test]
    fn fifo_order_is_preserved(run in runs()) {
        let mut run = run;
        run.config.reorder = crate::Reorder::default();
        run.config.jitter.keeps_order = true;
        run.config.corrupt = crate::Probability::NEVER;
        // Flow queueing keeps the order within a flow only.
        run.ports = 1;
        let (arrived, stats) = feed(&run, true);
        prop_assert!(arrived.is_sorted_by_key(|(_, packet)| number(packet)));
        prop_assert_eq!(stats.reordered, 0);
    }

    /// Over any interval at most rate × interval bits arrive, and one packet.
    #[test]
    fn the_rate_is_never_exceeded(run in runs(), rate in 1_000u64..10_000_000_000) {
        let config = LinkConfig {
            rate: Rate::from_bits(rate).into(),
            delay: crate::Span::from_millis(3).into(),
            queue: QueueLimit::Packets(20).into(),
            ..LinkConfig::default()
        };
        let (arrived, _) = feed(&Run { config, ..run }, true);
        for first in 0..arrived.len() {
            let mut bits = 0u128;
            for (at, packet) in &arrived[first + 1..] {
                bits += (packet.data.len() as u128 + 28) * 8;
                // Rounded up by less than a nanosecond at the near end.
                let nanos = (*at - arrived[first].0).as_nanos() + 1;
                prop_assert!(bits * 1_000_000_000 <= nanos * u128::from(rate));
            }
        }
    }

    /// A tap changes nothing, and what it sees adds up to the counters: each
    /// packet is offered once and has as many ends as copies.
    #[test]
    fn taps_agree_with_the_counters(run in runs()) {
        use crate::{PacketEvent, TapRecord};
        use std::collections::BTreeMap;
        use std::sync::{Arc, Mutex};

        let (arrived, stats) = feed(&run, true);
        let lives: Arc<Mutex<BTreeMap<u64, Vec<PacketEvent>>>> = Arc::default();
        let log = lives.clone();
        let tap = move |seen: &TapRecord<'_>| {
            log.lock().unwrap().entry(seen.index).or_default().push(seen.sight);
        };
        let mut link = Link::new(run.config.clone(), run.seed);
        link.set_tap(Some(Box::new(tap)));
        let (watched, watched_stats) = feed_link(&run, true, &mut link);
        prop_assert_eq!(arrived, watched);
        prop_assert_eq!(stats, watched_stats);
        let lives = lives.lock().unwrap();
        let count = |wanted: fn(&PacketEvent) -> bool| {
            lives.values().flatten().filter(|&sight| wanted(sight)).count() as u64
        };
        prop_assert_eq!(lives.len() as u64, stats.sent);
        prop_assert_eq!(count(|sight| matches!(sight, PacketEvent::Delivered { .. })), stats.delivered);
        prop_assert_eq!(count(|sight| matches!(sight, PacketEvent::Dropped(_))), stats.dropped());
        prop_assert_eq!(count(|&sight| sight == PacketEvent::Marked), stats.ce_marked);
        prop_assert_eq!(
            count(|sight| matches!(sight, PacketEvent::Departed { .. })),
            stats.sojourn.count()
        );
        for life in lives.values() {
            prop_assert_eq!(life[0], PacketEvent::Offered);
            prop_assert!(!life[1..].contains(&PacketEvent::Offered));
            let dropped = life.iter().position(|sight| matches!(sight, PacketEvent::Dropped(_)));
            prop_assert!(dropped.is_none_or(|at| at + 1 == life.len()));
        }
    }

    /// A link may turn into any other while packets wait and fly: nothing is
    /// lost without a cause, and nothing arrives in the past.
    #[test]
    fn reconfiguration_loses_no_packet(run in runs(), other in configs(), at in 0usize..80) {
        let (before, after) = run.traffic.split_at(at.min(run.traffic.len()));
        let part = |traffic: &[(u64, usize, bool)]| Run {
            traffic: traffic.to_vec(),
            ..run.clone()
        };
        let mut link = Link::new(run.config.clone(), run.seed);
        let mut arrived = Vec::new();
        let now = send_all(&part(before), Time::ZERO, &mut link, &mut arrived);
        link.reconfigure(now, |config| *config = other);
        check_balance(&link);
        prop_assert!(link.next_event().is_none_or(|event| event > now || link.queue_len() > 0));
        let now = send_all(&part(after), now, &mut link, &mut arrived);
        finish(now, &mut link, &mut arrived);
        prop_assert_eq!(link.in_transit(), 0);
        prop_assert_eq!(link.stats().delivered as usize, arrived.len());
        prop_assert!(arrived.is_sorted_by_key(|&(at, _)| at));
    }
}
