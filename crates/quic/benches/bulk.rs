//! One stream in bulk between two connections in one process, no sockets: what
//! a packet costs the transport alone.
//!
//! ```sh
//! cargo bench -p clearway-quic --bench bulk            # ns and allocations
//! cargo bench -p clearway-quic --bench bulk -- 64      # so many MiB
//! valgrind --tool=callgrind target/release/deps/bulk-* 64   # instructions
//! ```

mod allocations;

use std::time::Instant as Clock;

use bytes::Bytes;
use clearway_quic::Role;
use clearway_quic::stream::{Directionality, ReadError, WriteError};
use clearway_testing::DirectPair;

/// The server sends `total` bytes; the client reads them all.
fn bulk(pair: &mut DirectPair, total: u64) {
    let block = Bytes::from(vec![7; 1 << 20]);
    let id = pair
        .client
        .open(Directionality::Bidirectional)
        .expect("a stream");
    pair.client.write(id, b"go").expect("writes");
    while pair.server.accept(Directionality::Bidirectional).is_none() {
        pair.send_from(Role::Client);
    }
    let (mut written, mut read) = (0, 0);
    while read < total {
        while written < total {
            match pair.server.write_chunk(id, &mut block.clone()) {
                Ok(n) => written += n as u64,
                Err(WriteError::Blocked) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        while pair.server.poll_event().is_some() {}
        pair.send_from(Role::Server);
        loop {
            match pair.client.read_chunk(id, usize::MAX) {
                Ok(Some(chunk)) => read += chunk.len() as u64,
                Err(ReadError::Blocked) | Ok(None) => break,
                Err(error) => panic!("{error:?}"),
            }
        }
        while pair.client.poll_event().is_some() {}
        pair.send_from(Role::Client);
    }
}

fn main() {
    let mib: u64 = std::env::args()
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1024);
    let mut pair = DirectPair::new(|_| {});
    bulk(&mut pair, 32 << 20);
    pair.packets = 0;
    let (before, begin) = (allocations::count(), Clock::now());
    bulk(&mut pair, mib << 20);
    let nanos = begin.elapsed().as_nanos() as f64;
    let allocations = allocations::count() - before;
    let packets = pair.packets as f64;
    println!(
        "{mib} MiB in {packets} packets: {:.0} ns a packet both ends together, {:.2} Gbit/s, {:.4} allocations a packet; window {} bytes, mtu {}",
        nanos / packets,
        (mib << 20) as f64 * 8.0 / nanos,
        allocations as f64 / packets,
        pair.server.stats(pair.now).window,
        pair.server.stats(pair.now).mtu,
    );
}
