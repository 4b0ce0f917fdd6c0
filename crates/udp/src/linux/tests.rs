//! Tests that need access to internals: a kernel that rejects trains, counters that wrap.

use std::net::UdpSocket;
use std::os::fd::AsFd;

use super::offload::Offload;
use super::{Backend, Kernel, sys};
use crate::{Options, RecvBatch, Transmit};

fn backend() -> Backend {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    Backend::new(socket, &Options::default(), Kernel::default()).unwrap()
}

/// A socket without checksums: the kernel rejects its trains with `EINVAL` and accepts its
/// datagrams.
fn refused() -> Backend {
    let backend = backend();
    assert!(
        backend.gso_segments() > 1,
        "this kernel has no UDP_SEGMENT to refuse"
    );
    sys::set_option(
        backend.socket.as_fd(),
        libc::SOL_SOCKET,
        libc::SO_NO_CHECK,
        1,
    )
    .unwrap();
    backend
}

fn received(socket: &Backend) -> Vec<Vec<u8>> {
    let mut batch = RecvBatch::new(32, 65_536);
    let mut all = Vec::new();
    while socket.recv(&mut batch).is_ok() {
        all.extend(batch.datagrams().map(|(_, datagram)| datagram.to_vec()));
    }
    all
}

#[test]
fn rejected_train_is_sent_in_pieces_and_remembered() {
    let (sender, receiver) = (refused(), backend());
    let train: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
    for size in [1200, 500] {
        let mut transmit = Transmit::new(receiver.std().local_addr().unwrap(), &train);
        transmit.segment_size = Some(size);
        sender.send(&mut transmit).unwrap();
        assert!(transmit.contents.is_empty());
        assert_eq!(received(&receiver).concat(), train, "segments of {size}");
        assert_eq!(sender.gso_segments(), 1);
        assert_eq!(sender.counters().gso_refusals, 1, "asked once");
    }
    assert_eq!(sender.counters().sent_datagrams, 84 + 200);
    assert_eq!(sender.counters().gso_trains, 0);
}

#[test]
fn rejected_train_among_many_loses_and_repeats_nothing() {
    let (sender, receiver) = (refused(), backend());
    let remote = receiver.std().local_addr().unwrap();
    let bytes: Vec<u8> = (0..4000u32).map(|i| (i / 16) as u8).collect();
    let mut transmits: Vec<Transmit<'_>> = bytes
        .chunks(1000)
        .enumerate()
        .map(|(index, contents)| Transmit {
            segment_size: (index == 2).then_some(300),
            ..Transmit::new(remote, contents)
        })
        .collect();
    assert_eq!(sender.send_many(&mut transmits).unwrap(), 4);
    let got = received(&receiver);
    assert_eq!(
        got.iter().map(Vec::len).collect::<Vec<_>>(),
        [1000, 1000, 300, 300, 300, 100, 1000]
    );
    assert_eq!(got.concat(), bytes);
}

#[test]
fn too_many_segments_lowers_the_segment_limit() {
    let mut sender = refused();
    sender.offload = Offload::new(128);
    let receiver = backend();
    let train = [5; 100 * 10];
    let mut transmit = Transmit::new(receiver.std().local_addr().unwrap(), &train);
    transmit.segment_size = Some(10);
    sender.send(&mut transmit).unwrap();
    assert_eq!(received(&receiver).len(), 100);
    // 128 → 64 → 1: two rejections, each remembered.
    assert_eq!(sender.counters().gso_refusals, 2);
}

#[test]
fn drop_counts_wrap_and_do_not_go_back() {
    let backend = backend();
    for (count, total) in [(5, 5), (3, 5), (5, 5), (9, 9)] {
        backend.note_drops(count);
        assert_eq!(backend.counters().receive_drops, total);
    }
    for count in [u32::MAX / 3, u32::MAX / 3 * 2, u32::MAX, 2] {
        backend.note_drops(count);
    }
    assert_eq!(backend.counters().receive_drops, u64::from(u32::MAX) + 3);
}
