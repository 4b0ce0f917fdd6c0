//! Floods of DATAGRAM frames that are not read, hundreds in a packet (RFC 9221 §5), and honest traffic
//! that looks similar.

use clearway_quic::Role;
use clearway_quic::wire::Frame;
use clearway_quic::wire::frame::kind;

use crate::hostile::pair::{HostilePair, bytes, raw};
use crate::hostile::work::{charged, flood};

/// Small unread messages, each of which pushes out an older one.
#[test]
fn flood_of_small_dropped_datagrams_closes_connection() {
    for data in [&b""[..], b"x", &[7; 127]] {
        let message = Frame::Datagram(data);
        let mut pair = HostilePair::new(Role::Client);
        pair.bound(4 << 20);
        flood(pair, kind::DATAGRAM, |w, _| message.encode(w));
    }
}

/// Large ones push small ones out of a queue that holds few bytes.
#[test]
fn small_datagrams_dropped_for_large_ones_are_charged() {
    let mut pair = HostilePair::with(Role::Client, |setup| setup.server.datagram_buffer = 1_100);
    let before = charged(&mut pair);
    pair.say(&raw(|w| {
        (0..100).for_each(|_| Frame::Datagram(b"x").encode(w));
    }));
    assert_eq!(charged(&mut pair), before, "there was room");
    pair.say(&bytes(&Frame::Datagram(&[0; 1_050])));
    assert_eq!(charged(&mut pair), before + 50);
    pair.still_serves();
}

/// Messages of any size that the application takes in time.
#[test]
fn datagrams_that_are_read_are_not_charged() {
    let mut pair = HostilePair::new(Role::Client);
    let before = charged(&mut pair);
    for _ in 0..1_000 {
        pair.say(&raw(|w| {
            (0..300).for_each(|_| Frame::Datagram(b"x").encode(w));
        }));
        let mut read = 0;
        while pair.victim().recv_datagram().is_some() {
            read += 1;
        }
        assert_eq!(read, 300);
    }
    assert_eq!(charged(&mut pair), before);
    pair.still_serves();
}

/// A sender of media that nobody listens to: few of its messages fit into a packet.
#[test]
fn large_datagrams_that_are_dropped_are_not_charged() {
    let mut pair = HostilePair::new(Role::Client);
    pair.bound(4 << 20);
    let before = charged(&mut pair);
    for _ in 0..60_000 {
        pair.say(&bytes(&Frame::Datagram(&[0; 1_050])));
    }
    assert_eq!(charged(&mut pair), before);
    pair.still_serves();
}
