//! Work is passed to the application in slices, so that both ends work at the same time.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use clearway::{Endpoint, RecvStream, SendStream};
use tokio::task::JoinSet;

use crate::common::Pair;

/// Streams that are open at once, and the slice that belongs to them: a third.
const STREAMS: usize = 60;
const SLICE: usize = STREAMS / 3;

/// The turns that the event loop of a client has had.
fn turns(endpoint: &Endpoint) -> u64 {
    endpoint.counters().iter().map(|shard| shard.turns).sum()
}

async fn ask(pair: &Pair) -> RecvStream {
    let (mut send, recv) = pair.near.open_bi().await.unwrap();
    send.write_all(b"request").await.unwrap();
    send.finish().unwrap();
    recv
}

async fn answer((mut send, mut recv): (SendStream, RecvStream)) {
    assert_eq!(recv.read_to_end(7).await.unwrap(), b"request");
    send.write_all(b"response").await.unwrap();
    send.finish().unwrap();
}

/// The requests arrive in one datagram or two. Without slices, all of them would be accepted
/// before the first is answered.
#[tokio::test]
async fn streams_are_accepted_in_slices_between_which_tasks_answer() {
    let pair = Pair::on_caller_runtime().await;
    let mut responses = Vec::new();
    for _ in 0..STREAMS {
        responses.push(ask(&pair).await);
    }
    let answered = Arc::new(AtomicUsize::new(0));
    let mut most_unanswered = 0;
    let mut tasks = JoinSet::new();
    for accepted in 0..STREAMS {
        let streams = pair.far.accept_bi().await.unwrap();
        most_unanswered = most_unanswered.max(accepted - answered.load(Relaxed));
        let answered = answered.clone();
        tasks.spawn(async move {
            answer(streams).await;
            answered.fetch_add(1, Relaxed);
        });
    }
    tasks.join_all().await;
    for mut response in responses {
        assert_eq!(response.read_to_end(8).await.unwrap(), b"response");
    }
    assert!(most_unanswered <= SLICE, "{most_unanswered} of {STREAMS}");
}

/// The responses arrive together. Without slices, all tasks would be woken in one turn of the
/// event loop.
#[tokio::test]
async fn readers_are_woken_in_slices_between_which_the_event_loop_sends() {
    let pair = Pair::on_caller_runtime().await;
    let mut readers = JoinSet::new();
    for _ in 0..STREAMS {
        let mut response = ask(&pair).await;
        let client = pair.client.clone();
        readers.spawn(async move {
            assert_eq!(response.read_to_end(8).await.unwrap(), b"response");
            turns(&client)
        });
    }
    let mut requests = Vec::new();
    for _ in 0..STREAMS {
        requests.push(pair.far.accept_bi().await.unwrap());
    }
    // No other task runs between these responses: nothing in them waits.
    for streams in requests {
        answer(streams).await;
    }
    let turns: BTreeSet<u64> = readers.join_all().await.into_iter().collect();
    assert!(turns.len() >= STREAMS / SLICE, "turns: {turns:?}");
}
