//! Many tiny streams between two connections in one process, no sockets: what a
//! stream costs the transport alone, and whether that depends on how many there
//! are.
//!
//! ```sh
//! cargo bench -p clearway-quic --bench streams                    # 1,000 to 100,000
//! cargo bench -p clearway-quic --bench streams -- 100000 65535    # streams, parallel
//! ```

mod allocations;

use std::time::Instant as Clock;

use clearway_quic::Role;
use clearway_quic::connection::{Connection, Event};
use clearway_quic::stream::{Directionality, ReadError, StreamEvent, StreamId};
use clearway_testing::DirectPair;

/// Reads what there is; true at the end of the stream.
fn ends(connection: &mut Connection, id: StreamId) -> bool {
    loop {
        match connection.read(id, &mut [0; 64]) {
            Ok(Some(_)) => {}
            Ok(None) => return true,
            Err(ReadError::Blocked) => return false,
            Err(error) => panic!("{error:?}"),
        }
    }
}

fn say(connection: &mut Connection, id: StreamId) {
    connection.write(id, b"x").expect("room for a byte");
    connection.finish(id).expect("open");
}

/// The server answers each request that has ended with a byte.
fn serve(server: &mut Connection) {
    while let Some(event) = server.poll_event() {
        match event {
            Event::Stream(StreamEvent::Readable(id)) if ends(server, id) => say(server, id),
            Event::Stream(StreamEvent::Opened(directionality)) => {
                while server.accept(directionality).is_some() {}
            }
            _ => {}
        }
    }
}

/// `total` requests of a byte, `parallel` at a time.
fn requests(pair: &mut DirectPair, total: u64, parallel: u64) {
    let (mut asked, mut answered) = (0, 0);
    while answered < total {
        while asked < total && asked - answered < parallel {
            let Some(id) = pair.client.open(Directionality::Bidirectional) else {
                break;
            };
            say(&mut pair.client, id);
            asked += 1;
        }
        pair.send_from(Role::Client);
        serve(&mut pair.server);
        pair.send_from(Role::Server);
        while let Some(event) = pair.client.poll_event() {
            if let Event::Stream(StreamEvent::Readable(id)) = event {
                answered += u64::from(ends(&mut pair.client, id));
            }
        }
    }
}

fn measure(total: u64, parallel: u64) {
    let mut pair = DirectPair::new(|config| config.streams.max_bidi_streams = parallel);
    pair.packets = 0;
    let (before, begin) = (allocations::count(), Clock::now());
    requests(&mut pair, total, parallel);
    let nanos = begin.elapsed().as_nanos() as f64;
    let allocations = allocations::count() - before;
    println!(
        "{total} streams, {parallel} at a time: {:.0} ns, {:.2} allocations, {:.3} packets a stream, both ends together",
        nanos / total as f64,
        allocations as f64 / total as f64,
        pair.packets as f64 / total as f64,
    );
}

fn main() {
    let given: Vec<u64> = std::env::args()
        .filter_map(|arg| arg.parse().ok())
        .collect();
    match given[..] {
        [total, parallel] => measure(total, parallel),
        _ => {
            for (total, parallel) in [
                (1_000, 1_000),
                (10_000, 100),
                (10_000, 10_000),
                (100_000, 100),
                (100_000, 65_535),
            ] {
                measure(total, parallel);
            }
        }
    }
}
