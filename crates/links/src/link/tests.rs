use core::net::SocketAddr;
use std::sync::{Arc, Mutex};

use super::Verdict::{Accepted, Policed, QueueFull};
use super::*;
use crate::{Ecn, PacketEvent, Rate, TapRecord};

fn here() -> SocketAddr {
    ([127, 0, 0, 1], 1).into()
}

/// A packet that carries its own number.
pub(super) fn packet(number: u64, len: usize) -> Packet {
    let mut data = number.to_be_bytes().to_vec();
    data.resize(len.max(8), 0);
    Packet::new(here(), here(), data).with_ecn(Ecn::Ect0)
}

pub(super) fn number(packet: &Packet) -> u64 {
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
fn burst_leaves_at_the_rate_and_arrives_after_the_delay() {
    // 972 + 28 bytes at 8 Mbit/s: a millisecond each.
    let mut link = link("rate=8M delay=10ms");
    let _ = send_all(&mut link, Time::from_millis(5), 0..3, 972);
    let arrived = drain(&mut link);
    assert_eq!(times(&arrived), [16, 17, 18].map(Time::from_millis));
    assert_eq!(link.stats().queueing_max, Duration::from_millis(2));
    assert_eq!(link.stats().queueing_total, Duration::from_millis(3));
}

#[test]
fn full_queue_drops_the_tail() {
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
fn stopped_link_holds_packets_until_the_rate_returns() {
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
    // Not before the change.
    assert_eq!(times(&drain(&mut forever)), [Time::from_secs(1)]);
}

#[test]
fn packet_being_serialised_keeps_its_rate() {
    let mut link = link("rate=8M,80M@500us");
    let _ = send_all(&mut link, Time::ZERO, 0..2, 972);
    assert_eq!(
        times(&drain(&mut link)),
        [Time::from_micros(1000), Time::from_micros(1100)]
    );
}

#[test]
fn shrinking_delay_does_not_reorder() {
    let mut link = link("delay=50ms,10ms@1ms");
    let _ = link.send(Time::ZERO, packet(0, 100));
    let _ = link.send(Time::from_millis(1), packet(1, 100));
    assert_eq!(times(&drain(&mut link)), [50, 50].map(Time::from_millis));
    assert_eq!(link.stats().reordered, 0);
}

#[test]
fn reordered_packets_are_overtaken() {
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
fn ticks_release_packets_together() {
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
fn clock_modes_start_windows_at_their_origin() {
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
fn drop_list_counts_packets_from_one() {
    let mut link = link("drop=2-3");
    let _ = send_all(&mut link, Time::ZERO, 1..5, 8);
    let kept: Vec<_> = drain(&mut link).iter().map(|(_, p)| number(p)).collect();
    assert_eq!(kept, [1, 4]);
    assert_eq!(link.stats().dropped_list, 2);
}

#[test]
fn deep_queue_marks_ce() {
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
fn impairments_use_independent_random_streams() {
    let lost = |config: &str| -> Vec<u64> {
        let mut link = link(config);
        let _ = send_all(&mut link, Time::ZERO, 0..200, 100);
        let mut kept: Vec<_> = drain(&mut link).iter().map(|(_, p)| number(p)).collect();
        kept.sort_unstable();
        kept
    };
    assert_eq!(lost("loss=30%"), lost("loss=30% jitter=1ms tick=1ms"));
}

#[test]
fn only_ecn_capable_packets_are_marked() {
    let mut link = link("rate=8M mark=1p");
    for (number, ecn) in [Ecn::Ect0, Ecn::Ect0, Ecn::Ect1, Ecn::NotEct, Ecn::Ce]
        .into_iter()
        .enumerate()
    {
        let _ = link.send(Time::ZERO, packet(number as u64, 972).with_ecn(ecn));
    }
    let seen: Vec<_> = drain(&mut link)
        .iter()
        .map(|(_, packet)| packet.ecn)
        .collect();
    assert_eq!(seen, [Ecn::Ect0, Ecn::Ect0, Ecn::Ce, Ecn::NotEct, Ecn::Ce]);
    assert_eq!(link.stats().ce_marked, 1);
}

#[test]
fn long_sojourn_is_marked_on_departure() {
    // 172 + 28 bytes at 8 Mbit/s: 200 µs each.
    let mut link = link("rate=8M mark=242us");
    let _ = send_all(&mut link, Time::ZERO, 0..4, 172);
    let marked = drain(&mut link)
        .iter()
        .map(|(_, packet)| packet.ecn == Ecn::Ce)
        .collect::<Vec<_>>();
    assert_eq!(marked, [false, false, true, true]);
}

#[test]
fn shrinking_queue_keeps_packets_already_queued() {
    let mut link = link("rate=8M queue=4,1@500us");
    let before = send_all(&mut link, Time::ZERO, 0..6, 972);
    assert_eq!(
        before
            .iter()
            .filter(|&&verdict| verdict == Accepted)
            .count(),
        5
    );
    let after = send_all(&mut link, Time::from_micros(600), 6..7, 972);
    assert_eq!(after, [QueueFull]);
    assert_eq!(drain(&mut link).len(), 5);
}

#[test]
fn policer_drops_and_never_delays() {
    // 10 packets of 1,000 bytes fit; then one a millisecond.
    let mut link = link("police=8M:10KB rate=80M");
    let burst = send_all(&mut link, Time::ZERO, 0..12, 972);
    assert_eq!(
        burst.iter().filter(|&&verdict| verdict == Policed).count(),
        2
    );
    let later = send_all(&mut link, Time::from_millis(1), 12..14, 972);
    assert_eq!(later, [Accepted, Policed]);
    assert_eq!(link.stats().dropped_policer, 3);
    assert_eq!(
        drain(&mut link).last().map(|&(at, _)| at),
        Some(Time::from_micros(1100))
    );
}

#[test]
fn freeze_holds_packets_and_slot_groups_them() {
    let mut frozen = link("delay=1ms freeze=10ms-30ms");
    for millis in [8, 9, 20, 29, 30] {
        let _ = frozen.send(Time::from_millis(millis), packet(millis, 100));
    }
    assert_eq!(
        times(&drain(&mut frozen)),
        [9, 30, 30, 30, 31].map(Time::from_millis)
    );
    let mut slotted = link("slot=25ms:2");
    for millis in [1, 2, 3, 26, 90] {
        let _ = slotted.send(Time::from_millis(millis), packet(millis, 100));
    }
    assert_eq!(
        times(&drain(&mut slotted)),
        [25, 25, 50, 50, 100].map(Time::from_millis)
    );
}

#[test]
fn thinning_keeps_one_small_packet_in_n() {
    let mut link = link("thin=10");
    let _ = send_all(&mut link, Time::ZERO, 0..30, 40);
    let _ = send_all(&mut link, Time::ZERO, 30..40, 1200);
    let kept: Vec<_> = drain(&mut link)
        .iter()
        .map(|(_, packet)| number(packet))
        .collect();
    assert_eq!(
        kept,
        [0, 10, 20, 29]
            .into_iter()
            .chain(30..40)
            .collect::<Vec<_>>(),
        "and the last one, which nothing follows"
    );
    assert_eq!(link.stats().dropped_thinned, 26);
}

#[test]
fn queue_management_can_change_while_packets_wait() {
    let mut link = link("rate=8M");
    let _ = send_all(&mut link, Time::ZERO, 0..400, 972);
    let kinds = [
        "aqm=codel",
        "aqm=fq_codel",
        "aqm=pie",
        "aqm=dualq",
        "aqm=none",
    ];
    for (step, kind) in (1..).zip(kinds) {
        link.reconfigure(Time::from_millis(10 * step), |config| {
            config.apply(kind).unwrap();
        });
    }
    let numbers: Vec<_> = drain(&mut link)
        .iter()
        .map(|(_, packet)| number(packet))
        .collect();
    assert_eq!(numbers, (0..400).collect::<Vec<_>>());
}

/// What a tap saw: (time, index, what).
type Log = Arc<Mutex<Vec<(Time, u64, PacketEvent)>>>;

fn tapped(config: &str) -> (Link, Log) {
    let mut link = link(config);
    let log = Log::default();
    let sink = log.clone();
    let tap = move |seen: &TapRecord<'_>| {
        sink.lock().unwrap().push((seen.at, seen.index, seen.sight));
    };
    assert!(link.set_tap(Some(Box::new(tap))).is_none());
    (link, log)
}

#[test]
fn tap_sees_every_event_of_a_packet() {
    let (mut link, log) = tapped("rate=8M delay=10ms queue=1 drop=2");
    let _ = send_all(&mut link, Time::ZERO, 0..3, 972);
    let _ = drain(&mut link);
    let millis = |millis: u64| Duration::from_millis(millis);
    let queued = |packets, bytes| PacketEvent::Queued { packets, bytes };
    let gone = |sojourn, packets, bytes| PacketEvent::Departed {
        sojourn,
        packets,
        bytes,
    };
    let delivered = PacketEvent::Delivered {
        corrupted: false,
        duplicate: false,
    };
    let life = |index| {
        let log = log.lock().unwrap();
        log.iter()
            .filter(|&&(_, of, _)| of == index)
            .map(|&(at, _, sight)| (at.0 / 1_000_000, sight))
            .collect::<Vec<_>>()
    };
    let first = [
        (0, PacketEvent::Offered),
        (0, queued(1, 1000)),
        (0, gone(millis(0), 0, 0)),
        (11, delivered),
    ];
    assert_eq!(life(0), first);
    let second = [
        (0, PacketEvent::Offered),
        (0, queued(1, 1000)),
        (1, gone(millis(1), 0, 0)),
        (12, PacketEvent::Dropped(DropCause::Listed)),
    ];
    assert_eq!(life(1), second);
    let third = [
        (0, PacketEvent::Offered),
        (0, PacketEvent::Dropped(DropCause::QueueFull)),
    ];
    assert_eq!(life(2), third);
    assert!(link.clone().set_tap(None).is_none(), "a copy has no tap");
    assert!(link.set_tap(None).is_some());
}

#[test]
fn tap_sees_marks_and_duplicates() {
    let (mut link, log) = tapped("duplicate=100% corrupt=100% mark=0us");
    let _ = link.send(Time::ZERO, packet(0, 100));
    assert_eq!(drain(&mut link).len(), 2);
    let sights: Vec<_> = log
        .lock()
        .unwrap()
        .iter()
        .map(|&(.., sight)| sight)
        .collect();
    assert_eq!(sights[2], PacketEvent::Marked);
    let copy = |corrupted, duplicate| PacketEvent::Delivered {
        corrupted,
        duplicate,
    };
    assert_eq!(sights[4..], [copy(true, false), copy(false, true)]);
}

/// A digest of all arrivals over every stage: changes if a decision does.
#[test]
fn decision_digest_is_platform_independent() {
    let digest = |settings: &str| {
        let mut link = link(settings);
        let mut digest = 0xcbf2_9ce4_8422_2325u64;
        let mut fold = |word: u64| digest = (digest ^ word).wrapping_mul(0x0100_0000_01b3);
        for number in 0..3000 {
            let now = Time::from_micros(number * 700);
            while let Some((at, packet)) = link.poll_timed(now) {
                [at.0, self::number(&packet), u64::from(packet.ecn.bits())]
                    .into_iter()
                    .for_each(&mut fold);
            }
            let mut packet = packet(number, 40 + (number as usize * 37) % 1400);
            packet.src.set_port((number % 5) as u16);
            packet.ecn = Ecn::from_bits((number % 4) as u8);
            let _ = link.send(now, packet);
        }
        digest
    };
    let rough = "jitter=2ms slot=3ms-7ms reorder=2%:20ms freeze=300ms-350ms tick=1ms loss=2% \
                 burst=3 gilbert=1%:20%:60%:1% thin=3 duplicate=1% corrupt=1%";
    let digests = [
        format!("rate=6M,9M@1s queue=50 police=8M:50KB {rough}"),
        format!("rate=6M aqm=codel delay=5ms,40ms@1s {rough}"),
        format!("rate=6M queue=64KB aqm=fq_codel {rough}"),
        format!("rate=6M aqm=pie {rough}"),
        format!("rate=6M aqm=dualq {rough}"),
        format!("trace=random:mean=6M:length=2s mark=5ms {rough}"),
    ]
    .map(|settings| digest(&settings));
    assert_eq!(digests, DIGESTS, "{digests:#018x?}");
}

const DIGESTS: [u64; 6] = [
    0xcf6f_b6b4_2907_31c3,
    0x2ba4_bc44_eefa_4b90,
    0x49a7_9bb2_7dfb_5b4d,
    0x3805_29a6_2aaf_9041,
    0x2434_9106_29d9_7654,
    0xe7c2_73d6_d6eb_189a,
];
