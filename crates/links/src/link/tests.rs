use core::net::SocketAddr;

use proptest::prelude::*;

use super::Verdict::{Accepted, QueueFull};
use super::*;
use crate::{Ecn, QueueLimit};

fn here() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

/// A packet that carries its own number.
fn packet(number: u64, len: usize) -> Packet {
    let mut data = number.to_be_bytes().to_vec();
    data.resize(len.max(8), 0);
    Packet::new(here(), here(), data).with_ecn(Ecn::Ect0)
}

fn number(packet: &Packet) -> u64 {
    u64::from_be_bytes(packet.data[..8].try_into().unwrap())
}

fn link(config: &str) -> Link {
    Link::new(config.parse().unwrap(), 7)
}

/// Runs until nothing is left: (arrival, packet).
fn drain(link: &mut Link) -> Vec<(Time, Packet)> {
    let mut arrived = Vec::new();
    while let Some(now) = link.next_event() {
        while let Some(packet) = link.poll(now) {
            arrived.push((now, packet));
        }
    }
    arrived
}

fn send_all(
    link: &mut Link,
    now: Time,
    numbers: core::ops::Range<u64>,
    len: usize,
) -> Vec<Verdict> {
    numbers
        .map(|number| link.send(now, packet(number, len)))
        .collect()
}

fn times(arrived: &[(Time, Packet)]) -> Vec<Time> {
    arrived.iter().map(|&(at, _)| at).collect()
}

#[test]
fn a_burst_leaves_at_the_rate_and_arrives_after_the_delay() {
    // 972 + 28 bytes at 8 Mbit/s: a millisecond each.
    let mut link = link("rate=8M delay=10ms");
    let _ = send_all(&mut link, Time::from_millis(5), 0..3, 972);
    let arrived = drain(&mut link);
    assert_eq!(times(&arrived), [16, 17, 18].map(Time::from_millis));
    assert_eq!(link.stats().queueing_max, Duration::from_millis(2));
    assert_eq!(link.stats().queueing_total, Duration::from_millis(3));
}

#[test]
fn a_full_queue_drops_the_tail() {
    let mut link = link("rate=8M queue=2");
    let verdicts = send_all(&mut link, Time::ZERO, 0..5, 972);
    // One in service, two waiting.
    assert_eq!(
        verdicts,
        [Accepted, Accepted, Accepted, QueueFull, QueueFull]
    );
    let kept: Vec<_> = drain(&mut link).iter().map(|(_, p)| number(p)).collect();
    assert_eq!(kept, [0, 1, 2]);
    assert_eq!(link.stats().dropped_queue, 2);
    assert_eq!(link.stats().max_queue_packets, 2);
    assert_eq!(link.stats().max_queue_bytes, 2000);
}

#[test]
fn a_stopped_link_holds_packets_until_its_rate_comes_back() {
    let mut link = link("rate=8M,0@10ms,8M@270ms");
    let _ = send_all(&mut link, Time::from_millis(20), 0..2, 972);
    assert_eq!(link.next_event(), Some(Time::from_millis(270)));
    assert_eq!(times(&drain(&mut link)), [271, 272].map(Time::from_millis));
    let mut forever = self::link("rate=0");
    let _ = forever.send(Time::ZERO, packet(0, 100));
    assert_eq!(forever.next_event(), None);
    forever.reconfigure(Time::from_secs(1), |config| {
        config.rate = Rate::Unlimited.into();
    });
    assert_eq!(drain(&mut forever).len(), 1);
}

#[test]
fn a_packet_in_service_keeps_its_rate() {
    let mut link = link("rate=8M,80M@500us");
    let _ = send_all(&mut link, Time::ZERO, 0..2, 972);
    assert_eq!(
        times(&drain(&mut link)),
        [Time::from_micros(1000), Time::from_micros(1100)]
    );
}

#[test]
fn a_shrinking_delay_does_not_reorder() {
    let mut link = link("delay=50ms,10ms@1ms");
    let _ = link.send(Time::ZERO, packet(0, 100));
    let _ = link.send(Time::from_millis(1), packet(1, 100));
    assert_eq!(times(&drain(&mut link)), [50, 50].map(Time::from_millis));
    assert_eq!(link.stats().reordered, 0);
}

#[test]
fn delayed_packets_are_overtaken() {
    let mut link = link("delay=10ms reorder=30%:5ms");
    for number in 0..1000 {
        let _ = link.send(Time::from_millis(number), packet(number, 100));
    }
    let arrived = drain(&mut link);
    assert_eq!(arrived.len(), 1000);
    let late = arrived
        .iter()
        .filter(|(at, packet)| *at == Time::from_millis(number(packet) + 15))
        .count();
    assert!((230..370).contains(&late), "{late}");
    assert!(link.stats().reordered > 150);
}

#[test]
fn ticks_gather_packets() {
    let mut link = link("delay=100us tick=1ms");
    for number in 0..4 {
        let _ = link.send(Time::from_micros(number * 400), packet(number, 100));
    }
    assert_eq!(
        times(&drain(&mut link)),
        [1, 1, 1, 2].map(Time::from_millis)
    );
}

#[test]
fn duplicates_follow_their_original() {
    let mut link = link("duplicate=100%");
    let _ = link.send(Time::ZERO, packet(5, 100));
    assert_eq!(link.poll(Time::ZERO), Some(packet(5, 100)));
    assert_eq!(link.next_event(), Some(Time::ZERO));
    assert_eq!(link.in_transit_bytes(), 100);
    assert_eq!(link.poll(Time::ZERO), Some(packet(5, 100)));
    assert_eq!(link.poll(Time::ZERO), None);
    assert_eq!(link.in_transit_bytes(), 0);
}

#[test]
fn the_three_clocks() {
    let survivors = |clock: &str, start: Option<Time>| -> Vec<u64> {
        let mut link = link(&format!("clock={clock} blackhole=1s-3s"));
        if let Some(start) = start {
            link.start_windows_at(start);
        }
        (2..9)
            .filter(|&number| {
                let now = Time::from_secs(number);
                let _ = link.send(now, packet(number, 8));
                link.poll(now).is_some()
            })
            .collect()
    };
    assert_eq!(survivors("absolute", None), [3, 4, 5, 6, 7, 8]);
    assert_eq!(survivors("first-packet", None), [2, 5, 6, 7, 8]);
    assert_eq!(survivors("explicit", None), [2, 3, 4, 5, 6, 7, 8]);
    let start = Some(Time::from_secs(5));
    assert_eq!(survivors("explicit", start), [2, 3, 4, 5, 8]);
}

#[test]
fn listed_packets_are_counted_from_one() {
    let mut link = link("drop=2-3");
    let _ = send_all(&mut link, Time::ZERO, 1..5, 8);
    let kept: Vec<_> = drain(&mut link).iter().map(|(_, p)| number(p)).collect();
    assert_eq!(kept, [1, 4]);
    assert_eq!(link.stats().dropped_list, 2);
}

#[test]
fn a_deep_queue_marks() {
    let mut link = link("rate=8M mark=2p");
    let _ = send_all(&mut link, Time::ZERO, 0..5, 972);
    let marked: Vec<_> = drain(&mut link)
        .iter()
        .filter(|(_, packet)| packet.ecn == Ecn::Ce)
        .map(|(_, packet)| number(packet))
        .collect();
    assert_eq!(marked, [3, 4]);
    assert_eq!(link.stats().ce_marked, 2);
}

#[test]
fn one_impairment_leaves_the_draws_of_another_alone() {
    let lost = |config: &str| -> Vec<u64> {
        let mut link = link(config);
        let _ = send_all(&mut link, Time::ZERO, 0..200, 100);
        let mut kept: Vec<_> = drain(&mut link).iter().map(|(_, p)| number(p)).collect();
        kept.sort_unstable();
        kept
    };
    assert_eq!(lost("loss=30%"), lost("loss=30% jitter=1ms tick=1ms"));
}

/// A link as arbitrary text, a traffic pattern, and how late each poll is.
#[derive(Clone, Debug)]
struct Run {
    config: LinkConfig,
    seed: u64,
    /// Gap before each packet in microseconds, its length, poll after it?
    traffic: Vec<(u64, usize, bool)>,
}

fn setting(values: &'static [&'static str]) -> impl Strategy<Value = &'static str> {
    prop::sample::select(values)
}

fn configs() -> impl Strategy<Value = LinkConfig> {
    (
        setting(&["", "rate=10M", "rate=7M,1M@5ms,0@8ms,30M@12ms", "rate=1G"]),
        setting(&["", "queue=3", "queue=5KB", "queue=0"]),
        setting(&["", "delay=5ms", "delay=5ms,1ms@4ms"]),
        setting(&["", "jitter=2ms", "jitter=2ms:unordered"]),
        setting(&["", "reorder=20%:3ms"]),
        setting(&["", "tick=1ms"]),
        setting(&[
            "",
            "loss=30%",
            "loss=50%@1ms-6ms burst=2",
            "gilbert=10%:30%",
        ]),
        setting(&[
            "",
            "duplicate=30%",
            "corrupt=30% blackhole=3ms-5ms drop=2-4",
        ]),
    )
        .prop_map(|(a, b, c, d, e, f, g, h)| {
            format!("{a} {b} {c} {d} {e} {f} {g} {h}").parse().unwrap()
        })
}

fn runs() -> impl Strategy<Value = Run> {
    let traffic = prop::collection::vec((0u64..1500, 8usize..1500, any::<bool>()), 1..80);
    (configs(), any::<u64>(), traffic).prop_map(|(config, seed, traffic)| Run {
        config,
        seed,
        traffic,
    })
}

/// Feeds the traffic, polling only where the run says so, and checks at every
/// step what must always hold. Returns (scheduled arrival, packet).
fn feed(run: &Run, punctual: bool) -> (Vec<(Time, Packet)>, LinkStats) {
    let mut link = Link::new(run.config.clone(), run.seed);
    let mut arrived = Vec::new();
    let mut now = Time::ZERO;
    for (number, &(gap, len, poll)) in run.traffic.iter().enumerate() {
        let next = now + Duration::from_micros(gap);
        if punctual {
            while let Some(event) = link.next_event().filter(|&event| event <= next) {
                assert!(event >= now, "an event in the past");
                now = event;
                collect(&mut link, now, &mut arrived);
            }
        }
        now = next;
        let _ = link.send(now, packet(number as u64, len));
        if punctual || poll {
            collect(&mut link, now, &mut arrived);
            assert!(link.next_event().is_none_or(|event| event > now));
        }
        check_balance(&link);
    }
    while let Some(event) = link.next_event() {
        now = now.max(event);
        collect(&mut link, now, &mut arrived);
        check_balance(&link);
    }
    assert_eq!(link.in_transit_bytes(), 0);
    (arrived, *link.stats())
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
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Conservation, no event in the past, arrivals in order of time; and a
    /// caller that polls late sees the same packets at the same times.
    #[test]
    fn lateness_changes_nothing(run in runs()) {
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
    fn seeds_decide(run in runs(), other: u64) {
        prop_assert_eq!(feed(&run, true), feed(&run, true));
        let calm = Run { config: "rate=10M delay=5ms queue=5".parse().unwrap(), ..run };
        let reseeded = Run { seed: other, ..calm.clone() };
        prop_assert_eq!(feed(&calm, true), feed(&reseeded, true));
    }

    /// Without reordering packets arrive in the order in which they left.
    #[test]
    fn order_is_kept(run in runs()) {
        let mut run = run;
        run.config.reorder = crate::Reorder::default();
        run.config.jitter.keeps_order = true;
        run.config.corrupt = crate::Probability::NEVER;
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
            queue: QueueLimit::Packets(20),
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
}
