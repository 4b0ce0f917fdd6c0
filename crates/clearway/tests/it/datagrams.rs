//! DATAGRAM frames over loopback.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::common::{LOOPBACK, Pair, client, pattern, server_config};
use bytes::Bytes;
use clearway::{Endpoint, SendDatagramError, TransportConfig};

#[tokio::test]
async fn datagrams_arrive_intact() {
    let pair = Pair::new().await;
    let max = pair.near.max_datagram_size().unwrap();
    assert!(max >= 1100, "{max}");
    for len in [0, 1, 500, max] {
        let sent = Bytes::from(pattern(len as u64, len));
        pair.near.send_datagram(sent.clone()).unwrap();
        let received = pair.far.read_datagram().await.unwrap();
        assert_eq!(received, sent);
        pair.far.send_datagram(received).unwrap();
        assert_eq!(pair.near.read_datagram().await.unwrap(), sent);
    }
}

#[tokio::test]
async fn oversized_datagram_is_rejected_with_the_maximum() {
    let pair = Pair::new().await;
    let error = pair.near.send_datagram(vec![0; 9000].into()).unwrap_err();
    let SendDatagramError::TooLarge { max } = error else {
        panic!("{error}");
    };
    pair.near.send_datagram(vec![0; max].into()).unwrap();
    assert_eq!(pair.far.read_datagram().await.unwrap().len(), max);
}

/// When the queue is full, `send_datagram` returns an error and `send_datagram_wait` waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn send_datagram_wait_waits_for_room_in_the_queue() {
    const COUNT: usize = 20_000;
    let pair = Pair::new().await;
    let far = pair.far.clone();
    let reader = tokio::spawn(async move {
        let mut count = 0_usize;
        loop {
            let datagram = far.read_datagram().await.unwrap();
            count += 1;
            if datagram.is_empty() {
                return count;
            }
        }
    });
    let payload = Bytes::from(vec![7; 1000]);
    for _ in 0..COUNT {
        pair.near.send_datagram_wait(payload.clone()).await.unwrap();
    }
    // Datagrams are unreliable: the last may be lost when the reader is slow.
    let ender = tokio::spawn(async move {
        loop {
            pair.near.send_datagram_wait(Bytes::new()).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    let received = reader.await.unwrap();
    ender.abort();
    assert!(received > COUNT / 100, "{received} of {COUNT}");
}

#[tokio::test]
async fn datagram_to_a_peer_without_support_is_rejected() {
    let mut transport = TransportConfig::default();
    transport.datagram_buffer = 0;
    let server = Endpoint::server(LOOPBACK, server_config().transport(transport)).unwrap();
    let pair = Pair::of(server, client()).await;
    assert_eq!(pair.near.max_datagram_size(), None);
    assert_eq!(
        pair.near.send_datagram(Bytes::new()),
        Err(SendDatagramError::Unsupported)
    );
}
