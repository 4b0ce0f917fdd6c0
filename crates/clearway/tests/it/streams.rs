//! Streams over loopback.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use crate::common::{Pair, pattern};
use bytes::Bytes;
use clearway::{Connection, Priority, ReadError, ReadToEndError, WriteError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn stream_data_is_echoed() {
    let pair = Pair::new().await;
    assert_eq!(pair.near.alpn().as_deref(), Some(&b"test"[..]));
    assert_eq!(pair.far.alpn().as_deref(), Some(&b"test"[..]));
    assert_eq!(pair.far.server_name().as_deref(), Some("localhost"));
    assert_eq!(pair.far.remote_address(), pair.client.local_addr());
    let far = pair.far.clone();
    let echo = tokio::spawn(async move {
        let (mut send, mut recv) = far.accept_bi().await.unwrap();
        let copied = tokio::io::copy(&mut recv, &mut send).await.unwrap();
        send.finish().unwrap();
        send.finished().await.unwrap();
        copied
    });
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    send.write_all(b"hello").await.unwrap();
    send.finish().unwrap();
    assert_eq!(recv.read_to_end(100).await.unwrap(), b"hello");
    assert_eq!(
        recv.read(&mut [0; 9]).await,
        Ok(None),
        "the end stays the end"
    );
    assert_eq!(echo.await.unwrap(), 5);
}

/// Echoes the content of each stream twice.
async fn double(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        tokio::spawn(async move {
            let content = recv.read_to_end(1 << 20).await.unwrap();
            send.write_all(&content).await.unwrap();
            send.write_chunk(Bytes::from(content)).await.unwrap();
            send.finish().unwrap();
        });
    }
}

/// Five times as many as the peer allows at once, so that opening waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_concurrent_streams_are_echoed() {
    let pair = Pair::new().await;
    tokio::spawn(double(pair.far.clone()));
    let tasks: Vec<_> = (0..500)
        .map(|n| {
            let near = pair.near.clone();
            tokio::spawn(async move {
                let content = pattern(n, 10 + n as usize * 7);
                let (mut send, mut recv) = near.open_bi().await.unwrap();
                send.write_all(&content).await.unwrap();
                send.finish().unwrap();
                let answer = recv.read_to_end(1 << 20).await.unwrap();
                assert!(
                    answer == [&content[..], &content[..]].concat(),
                    "stream {n}"
                );
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// When streams become available, a hundred waiting tasks write into a few datagrams, not each
/// into its own.
#[tokio::test]
async fn tasks_that_waited_for_a_stream_share_datagrams() {
    const LIMIT: usize = 100;
    let pair = Pair::on_caller_runtime().await;
    let (mut open, mut accepted) = (Vec::new(), Vec::new());
    for _ in 0..LIMIT {
        let (mut send, recv) = pair.near.open_bi().await.unwrap();
        send.write_all(b"x").await.unwrap();
        send.finish().unwrap();
        open.push(recv);
    }
    for _ in 0..LIMIT {
        accepted.push(pair.far.accept_bi().await.unwrap());
    }
    let waiting: Vec<_> = (0..LIMIT)
        .map(|_| {
            let near = pair.near.clone();
            tokio::spawn(async move {
                let (mut send, _recv) = near.open_bi().await.unwrap();
                send.write_all(b"y").await.unwrap();
                send.finish().unwrap();
            })
        })
        .collect();
    // All of them have reached the limit.
    tokio::task::yield_now().await;
    let before = pair.near.stats().counters.datagrams_sent;
    for (mut send, mut recv) in accepted {
        assert_eq!(recv.read_to_end(9).await.unwrap(), b"x");
        send.finish().unwrap();
    }
    for mut recv in open {
        assert_eq!(recv.read_to_end(9).await.unwrap(), b"");
    }
    for task in waiting {
        task.await.unwrap();
    }
    let sent = pair.near.stats().counters.datagrams_sent - before;
    assert!(sent <= LIMIT as u64 / 4, "{sent} datagrams");
}

async fn pour(connection: Connection, seed: u64, len: usize) {
    let mut send = connection.open_uni().await.unwrap();
    send.write_chunk(Bytes::from(pattern(seed, len)))
        .await
        .unwrap();
    send.finish().unwrap();
    send.finished().await.unwrap();
}

async fn drink(connection: Connection, seed: u64, len: usize) {
    let mut recv = connection.accept_uni().await.unwrap();
    let content = recv.read_to_end(len).await.unwrap();
    assert!(content == pattern(seed, len));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_transfers_run_in_both_directions_at_once() {
    const LEN: usize = 20 << 20;
    let pair = Pair::new().await;
    let tasks = [
        tokio::spawn(pour(pair.near.clone(), 1, LEN)),
        tokio::spawn(pour(pair.far.clone(), 2, LEN)),
        tokio::spawn(drink(pair.near.clone(), 2, LEN)),
        tokio::spawn(drink(pair.far.clone(), 1, LEN)),
    ];
    for task in tasks {
        task.await.unwrap();
    }
}

/// Flow control holds back a writer when the reader is slow, and both I/O traits work.
#[tokio::test]
async fn async_read_and_write_with_back_pressure() {
    const LEN: usize = 4 << 20;
    let pair = Pair::new().await;
    let (mut send, _) = pair.near.open_bi().await.unwrap();
    let writer = tokio::spawn(async move {
        let content = pattern(3, LEN);
        AsyncWriteExt::write_all(&mut send, &content).await.unwrap();
        send.shutdown().await.unwrap();
        send.shutdown().await.unwrap();
        assert_eq!(
            AsyncWriteExt::write(&mut send, b"x")
                .await
                .unwrap_err()
                .kind(),
            std::io::ErrorKind::BrokenPipe
        );
        send.finished().await.unwrap();
    });
    let (_, mut recv) = pair.far.accept_bi().await.unwrap();
    let mut content = Vec::new();
    let mut piece = [0; 4000];
    loop {
        match AsyncReadExt::read(&mut recv, &mut piece).await.unwrap() {
            0 => break,
            read => content.extend_from_slice(&piece[..read]),
        }
        tokio::task::yield_now().await;
    }
    assert!(content == pattern(3, LEN));
    writer.await.unwrap();
}

#[tokio::test]
async fn unfinished_send_stream_is_reset_on_drop() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"half a mess").await.unwrap();
    let mut recv = pair.far.accept_uni().await.unwrap();
    drop(send);
    let error = recv.read_to_end(100).await.unwrap_err();
    assert_eq!(error, ReadToEndError::Read(ReadError::Reset(0)));
    // The error stays.
    assert_eq!(recv.read_chunk(1).await, Err(ReadError::Reset(0)));
}

#[tokio::test]
async fn finished_send_stream_is_delivered_after_drop() {
    let pair = Pair::new().await;
    let content = pattern(4, 300_000);
    let mut send = pair.near.open_uni().await.unwrap();
    let recv = pair.far.accept_uni();
    let sending = async {
        send.write_all(&content).await.unwrap();
        send.finish().unwrap();
        drop(send);
    };
    let (received, ()) = tokio::join!(
        async { recv.await.unwrap().read_to_end(1 << 20).await.unwrap() },
        sending
    );
    assert!(received == content);
}

#[tokio::test]
async fn reset_code_reaches_the_reader() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let mut recv = pair.far.accept_uni().await.unwrap();
    send.reset(77).unwrap();
    assert_eq!(send.write(b"y").await, Err(WriteError::Closed));
    assert_eq!(send.finish(), Err(WriteError::Closed));
    assert_eq!(send.finished().await, Err(WriteError::Closed));
    let error = recv.read_to_end(100).await.unwrap_err();
    assert_eq!(error, ReadToEndError::Read(ReadError::Reset(77)));
}

#[tokio::test]
async fn stop_code_reaches_the_writer() {
    let pair = Pair::new().await;
    let (mut send, mut recv) = pair.near.open_bi().await.unwrap();
    send.write_all(b"do you want this?").await.unwrap();
    let (far_send, mut far_recv) = pair.far.accept_bi().await.unwrap();
    far_recv.stop(5);
    assert_eq!(far_recv.read_chunk(1).await, Err(ReadError::Stopped));
    assert_eq!(send.stopped().await, Ok(Some(5)));
    assert_eq!(send.write(b"?").await, Err(WriteError::Stopped(5)));
    assert_eq!(send.finish(), Err(WriteError::Stopped(5)));
    // Dropping the other half unread stops it with code 0.
    recv.stop(6);
    assert_eq!(far_send.stopped().await, Ok(Some(6)));
}

#[tokio::test]
async fn dropped_receive_stream_stops_the_writer() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(b"x").await.unwrap();
    let recv = pair.far.accept_uni().await.unwrap();
    let blocked = tokio::spawn(async move {
        let endless = vec![0; 1 << 16];
        loop {
            if let Err(error) = send.write_all(&endless).await {
                return error;
            }
        }
    });
    drop(recv);
    assert_eq!(blocked.await.unwrap(), WriteError::Stopped(0));
}

#[tokio::test]
async fn read_to_end_beyond_its_limit_is_rejected() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.write_all(&[7; 100]).await.unwrap();
    send.finish().unwrap();
    let mut recv = pair.far.accept_uni().await.unwrap();
    let error = recv.read_to_end(99).await.unwrap_err();
    assert_eq!(error, ReadToEndError::TooLong(99));
}

#[tokio::test]
async fn read_exact_past_the_end_reports_the_bytes_read() {
    let pair = Pair::new().await;
    let mut send = pair.near.open_uni().await.unwrap();
    send.set_priority(Priority {
        urgency: 0,
        incremental: false,
    });
    send.write_all(b"abcde").await.unwrap();
    send.finish().unwrap();
    let mut recv = pair.far.accept_uni().await.unwrap();
    let mut three = [0; 3];
    recv.read_exact(&mut three).await.unwrap();
    assert_eq!(&three, b"abc");
    assert_eq!(
        recv.read_exact(&mut three).await,
        Err(clearway::ReadExactError::FinishedEarly(2))
    );
}
