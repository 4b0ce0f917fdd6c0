//! How many packets a second one link carries on one core.
//!
//! A sender keeps the bottleneck 10 % overloaded in virtual time; buffers go
//! round, so that what is measured is the link and not the allocator. Prints a
//! line per kind of link and asserts nothing about time.

use std::time::Instant;

use clearway_links::{Ecn, Link, LinkConfig, Packet, Time};

/// Packets per kind of link.
const PACKETS: u64 = 2_000_000;

/// 1,250 bytes on the wire: 10 µs at 1 Gbit/s.
const PAYLOAD: usize = 1222;

const LINKS: [(&str, &str); 9] = [
    ("perfect", ""),
    ("drop-tail", "rate=1G delay=5ms queue=250"),
    ("death spiral", "rate=1G delay=5ms queue=250 loss=30%"),
    ("jitter", "rate=1G delay=5ms queue=250 jitter=1ms:unordered"),
    ("CoDel", "rate=1G delay=5ms aqm=codel"),
    ("FQ-CoDel", "rate=1G delay=5ms queue=1000 aqm=fq_codel"),
    ("PIE", "rate=1G delay=5ms queue=1000 aqm=pie"),
    ("DualQ", "rate=1G delay=5ms queue=1000 aqm=dualq"),
    (
        "trace",
        "trace=random:mean=1G:length=30s delay=5ms queue=1000",
    ),
];

fn main() {
    for (name, settings) in LINKS {
        let config: LinkConfig = settings.parse().expect("a link");
        let started = Instant::now();
        let delivered = carry(config);
        let rate = u128::from(PACKETS) * 1_000_000_000 / started.elapsed().as_nanos().max(1);
        println!("{name:<13}{rate:>12} packets/s  {delivered:>9} delivered  {settings}");
    }
}

/// Sends all packets, one each 9 µs; returns how many arrived.
fn carry(config: LinkConfig) -> u64 {
    let mut link = Link::new(config, 1);
    let mut spare: Vec<Vec<u8>> = Vec::new();
    for number in 0..PACKETS {
        let now = Time(number * 9_000);
        while let Some(packet) = link.poll(now) {
            spare.push(packet.data);
        }
        let data = spare.pop().unwrap_or_else(|| vec![0; PAYLOAD]);
        let src = ([10, 0, 0, 1], (number % 8) as u16).into();
        let ecn = if number % 8 < 4 {
            Ecn::Ect1
        } else {
            Ecn::NotEct
        };
        let packet = Packet::new(src, ([10, 0, 0, 2], 443).into(), data).with_ecn(ecn);
        let _ = link.send(now, packet);
    }
    link.stats().delivered
}
