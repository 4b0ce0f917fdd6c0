//! Which clients the kernel gives to which shard.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clearway_udp::{RecvBatch, Socket, Transmit};
use rustix::process::Pid;

use crate::CLIENTS;
use crate::generator::{bind, datagram};
use crate::threads::Used;

/// How long a datagram is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a thread takes to sleep again.
const SETTLE: Duration = Duration::from_micros(500);

/// Datagrams by which it is found out which thread has a client.
const QUESTIONS: u32 = 20;

/// Opens [`CLIENTS`] clients for each of a balancer's shards, in the order of their threads. The
/// kernel spreads clients over the shards by a hash of their ports. What it did shows in the port from
/// which a client's datagrams arrive at the server, for each shard has its own, and in the thread that
/// wakes for them. Returns how many datagrams were sent to find out, too.
pub(crate) fn clients_by_shard(
    balancer: SocketAddr,
    server: &Socket,
    shards: &[Pid],
) -> (Vec<Vec<Socket>>, u32) {
    let mut sent = 0;
    let mut by_port: HashMap<u16, Vec<Socket>> = HashMap::new();
    while by_port.len() < shards.len() || by_port.values().any(|clients| clients.len() < CLIENTS) {
        let client = bind();
        let port = forwarded_from(&client, balancer, server);
        sent += 1;
        let clients = by_port.entry(port).or_default();
        if clients.len() < CLIENTS {
            clients.push(client);
        }
    }
    let mut by_shard: Vec<Vec<Socket>> = shards.iter().map(|_| Vec::new()).collect();
    for clients in by_port.into_values() {
        let before: Vec<Used> = shards.iter().map(|thread| Used::by(*thread)).collect();
        for _ in 0..QUESTIONS {
            forwarded_from(&clients[0], balancer, server);
            sleep(SETTLE);
        }
        let wakes = |shard: &usize| Used::by(shards[*shard]).wakes - before[*shard].wakes;
        let shard = (0..shards.len()).max_by_key(wakes).unwrap();
        sent += QUESTIONS;
        by_shard[shard] = clients;
    }
    assert!(by_shard.iter().all(|clients| clients.len() == CLIENTS));
    (by_shard, sent)
}

/// Sends a datagram by way of the balancer. Returns the port from which it arrives.
fn forwarded_from(client: &Socket, balancer: SocketAddr, server: &Socket) -> u16 {
    let datagram = datagram(0, 0);
    client
        .send(&mut Transmit::new(balancer, &datagram))
        .unwrap();
    let mut batch = RecvBatch::for_socket(server, 1);
    let sent = Instant::now();
    while sent.elapsed() < PATIENCE {
        if server.recv(&mut batch).is_ok()
            && let Some((meta, _)) = batch.messages().next()
        {
            return meta.remote.port();
        }
        sleep(SETTLE / 10);
    }
    panic!("a datagram did not arrive");
}
