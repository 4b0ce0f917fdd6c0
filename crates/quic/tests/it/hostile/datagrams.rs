//! DATAGRAM frames that nobody reads, packed hundreds to a packet (RFC 9221 §5), and
//! those that are not to be mistaken for them.

use clearway_quic::Role;
use clearway_quic::wire::Frame;
use clearway_quic::wire::frame::kind;

use crate::hostile::duel::{Duel, bytes, raw};
use crate::hostile::work::{charged, flood};

/// Small messages that nobody reads, which make each other room.
#[test]
fn flood_of_small_datagrams_that_are_dropped_ends_the_connection() {
    for data in [&b""[..], b"x", &[7; 127]] {
        let message = Frame::Datagram(data);
        let mut duel = Duel::new(Role::Client);
        duel.bound(4 << 20);
        flood(duel, kind::DATAGRAM, |w, _| message.encode(w));
    }
}

/// Large ones push small ones out of a queue that holds few bytes.
#[test]
fn small_datagrams_dropped_for_large_ones_are_charged() {
    let mut duel = Duel::with(Role::Client, |setup| setup.server.datagram_buffer = 1_100);
    let before = charged(&mut duel);
    duel.say(&raw(|w| {
        (0..100).for_each(|_| Frame::Datagram(b"x").encode(w));
    }));
    assert_eq!(charged(&mut duel), before, "there was room");
    duel.say(&bytes(&Frame::Datagram(&[0; 1_050])));
    assert_eq!(charged(&mut duel), before + 50);
    duel.still_serves();
}

/// Messages of any size that the application takes in time.
#[test]
fn datagrams_that_are_read_are_free() {
    let mut duel = Duel::new(Role::Client);
    let before = charged(&mut duel);
    for _ in 0..1_000 {
        duel.say(&raw(|w| {
            (0..300).for_each(|_| Frame::Datagram(b"x").encode(w));
        }));
        let mut read = 0;
        while duel.victim().recv_datagram().is_some() {
            read += 1;
        }
        assert_eq!(read, 300);
    }
    assert_eq!(charged(&mut duel), before);
    duel.still_serves();
}

/// A sender of media that nobody listens to: few of its messages fit into a packet.
#[test]
fn large_datagrams_that_are_dropped_are_free() {
    let mut duel = Duel::new(Role::Client);
    duel.bound(4 << 20);
    let before = charged(&mut duel);
    for _ in 0..60_000 {
        duel.say(&bytes(&Frame::Datagram(&[0; 1_050])));
    }
    assert_eq!(charged(&mut duel), before);
    duel.still_serves();
}
