//! Injects every errno into every system call of a running server: a transfer finishes, unless
//! the errno means that the descriptor is unusable; then the connection ends with that cause.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use clearway::udp::testing::{Call, Faults};
use clearway::udp::{Options, Socket};
use clearway::{Connection, ConnectionError, Endpoint, EndpointBuilder};

use crate::common::{LOOPBACK, Pair, client, pattern, server_config};

/// Linux's errnos.
const ERRNOS: RangeInclusive<i32> = 1..=133;

/// The errnos after which no call can succeed.
const BROKEN_SEND: [i32; 4] = [libc::EBADF, libc::EPIPE, libc::ENOSYS, libc::ENOTSOCK];
const BROKEN_RECV: [i32; 3] = [libc::EBADF, libc::ENOSYS, libc::ENOTSOCK];
const BROKEN_READ: [i32; 2] = [libc::EBADF, libc::ENOTSOCK];

/// Several trains' worth, each way.
const SIZE: usize = 100_000;

fn faulty_server(faults: &Faults) -> Endpoint {
    let socket = Socket::bind_with_faults(LOOPBACK, &Options::default(), faults.clone());
    EndpointBuilder::on_datagram_socket(Arc::new(socket.unwrap()))
        .server(server_config())
        .build()
        .unwrap()
}

async fn echo(connection: Connection) {
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        if tokio::io::copy(&mut recv, &mut send).await.is_ok() {
            send.finish().ok();
        }
    }
}

/// A client, its connection to an echo server, and the faults of that server's socket.
struct World {
    faults: Faults,
    pair: Pair,
}

impl World {
    async fn new() -> Self {
        let faults = Faults::new();
        let pair = Pair::of(faulty_server(&faults), client()).await;
        tokio::spawn(echo(pair.far.clone()));
        Self { faults, pair }
    }

    /// Sends bytes to the server and gets them back.
    async fn transfer(&self, seed: u64) {
        let (mut send, mut recv) = self.pair.near.open_bi().await.unwrap();
        let content = pattern(seed, SIZE);
        let sent = content.clone();
        let sending = tokio::spawn(async move {
            send.write_all(&sent).await.unwrap();
            send.finish().unwrap();
        });
        assert!(recv.read_to_end(SIZE).await.unwrap() == content);
        sending.await.unwrap();
    }

    /// How the server's side of the connection ended.
    async fn broken(&self) -> ConnectionError {
        while self.pair.far.close_reason().is_none() {
            self.pair.near.ping();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.pair.far.closed().await
    }
}

fn assert_socket_error(error: &ConnectionError, errno: i32) {
    let said = error.to_string();
    let cause = std::io::Error::from_raw_os_error(errno).to_string();
    assert!(
        said.contains("socket") && said.contains(&cause),
        "{errno}: {said}"
    );
}

/// Transfers while faults that `plan` makes are met; an errno in `broken` ends the connection
/// with that cause.
async fn transfers(
    errnos: impl Iterator<Item = i32>,
    call: Call,
    broken: &[i32],
    plan: impl Fn(&Faults, i32),
) {
    let mut world = World::new().await;
    for errno in errnos {
        let before = world.faults.injected(call);
        plan(&world.faults, errno);
        // The error queue is read only after an error.
        let meet_error = || {
            if call == Call::ReadErrors {
                world.faults.next(Call::SendMessage, libc::ECONNREFUSED, 1);
            }
        };
        meet_error();
        if broken.contains(&errno) {
            assert_socket_error(&world.broken().await, errno);
            world = World::new().await;
            continue;
        }
        let mut transfers = 0;
        while world.faults.injected(call) == before {
            meet_error();
            world.transfer(errno as u64).await;
            transfers += 1;
            assert!(transfers < 100, "{errno} is never met");
        }
        world.faults.stop();
    }
}

#[tokio::test]
async fn transfer_survives_any_error_of_one_send() {
    let plan = |faults: &Faults, errno| faults.next(Call::SendMessage, errno, 1);
    transfers(ERRNOS, Call::SendMessage, &BROKEN_SEND, plan).await;
}

#[tokio::test]
async fn transfer_survives_any_error_of_one_receive() {
    let plan = |faults: &Faults, errno| faults.next(Call::ReceiveMessages, errno, 1);
    transfers(ERRNOS, Call::ReceiveMessages, &BROKEN_RECV, plan).await;
}

#[tokio::test]
async fn transfer_survives_any_error_of_eight_sends_in_a_row() {
    let plan = |faults: &Faults, errno| faults.next(Call::SendMessage, errno, 8);
    transfers(ERRNOS, Call::SendMessage, &BROKEN_SEND, plan).await;
}

#[tokio::test]
async fn transfer_survives_any_error_of_forty_receives_in_a_row() {
    // A receive that says "nothing waits" against the truth is believed until the next datagram:
    // the kernel does not lie there, and the client's retransmissions would have to end it.
    let plan = |faults: &Faults, errno| {
        let times = if errno == libc::EAGAIN { 1 } else { 40 };
        faults.next(Call::ReceiveMessages, errno, times);
    };
    transfers(ERRNOS, Call::ReceiveMessages, &BROKEN_RECV, plan).await;
}

#[tokio::test]
async fn transfer_survives_any_error_of_every_fifth_send() {
    let plan = |faults: &Faults, errno| faults.every(Call::SendMessage, errno, 5);
    transfers(ERRNOS, Call::SendMessage, &BROKEN_SEND, plan).await;
}

#[tokio::test]
async fn transfer_survives_any_error_of_every_other_receive() {
    let errnos = ERRNOS.filter(|errno| *errno != libc::EAGAIN);
    let plan = |faults: &Faults, errno| faults.every(Call::ReceiveMessages, errno, 2);
    transfers(errnos, Call::ReceiveMessages, &BROKEN_RECV, plan).await;
}

#[tokio::test]
async fn transfer_survives_any_error_of_the_error_queue() {
    for times in [1, usize::MAX] {
        let plan = |faults: &Faults, errno| faults.next(Call::ReadErrors, errno, times);
        transfers(ERRNOS, Call::ReadErrors, &BROKEN_READ, plan).await;
    }
}

#[tokio::test]
async fn permanent_receive_error_ends_the_connection_with_its_cause() {
    let world = World::new().await;
    world.faults.always(Call::ReceiveMessages, libc::EFAULT);
    // Time enough for the loop to have called again and again, and for ten seconds of the
    // socket's clock.
    world.pair.near.ping();
    while world.faults.injected(Call::ReceiveMessages) < 64 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    world.faults.skip(Duration::from_secs(10));
    assert_socket_error(&world.broken().await, libc::EFAULT);
}

#[tokio::test]
async fn refused_train_is_retried_without_a_writable_event() {
    let world = World::new().await;
    world.transfer(1).await;
    // Both sides are idle: no datagram wakes the server.
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.faults.next(Call::SendMessage, libc::EAGAIN, 5);
    let mut send = world.pair.far.open_uni().await.unwrap();
    send.write_all(b"news").await.unwrap();
    send.finish().unwrap();
    let mut recv = world.pair.near.accept_uni().await.unwrap();
    assert_eq!(recv.read_to_end(10).await.unwrap(), b"news");
}
