//! A connection in virtual time over a path that drops, duplicates, delays, modifies and truncates
//! datagrams as the input says.
//!
//! No modified packet is authentic, so only a timeout may end the connection, and what was written
//! arrives.
#![no_main]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::LazyLock;
use std::time::Duration;

use clearway_links::{Direction, Packet};
use clearway_quic::connection::ConnectionError;
use clearway_quic::stream::Directionality;
use libfuzzer_sys::fuzz_target;

use clearway_testing::{Setup, World, path};

static SETUP: LazyLock<Setup> = LazyLock::new(Setup::new);

/// Maximum number of damaged datagrams: after that, the path is clean and the connection must
/// recover.
const MAX_DAMAGE: usize = 64;

const TOTAL: usize = 40_000;

/// Maximum virtual time of a run. An ACK that is held back until the client probes counts as a
/// round trip of that length, and the idle timeout is at least three PTOs (RFC 9000 §10.1):
/// minutes.
const MAX_TIME: Duration = Duration::from_secs(3600);

#[derive(arbitrary::Arbitrary, Clone, Copy, Debug)]
enum Damage {
    Pass,
    Drop,
    Repeat,
    Later,
    Bend(u16, u8),
    Cut(u16),
    Ce,
}

type InFlight = Rc<RefCell<VecDeque<(Direction, Packet)>>>;

fuzz_target!(|input: (u8, bool, Vec<Damage>)| {
    let (seed, retry, damages) = input;
    let mut setup = SETUP.clone();
    setup.always_retry = retry;
    setup.sessions = std::sync::Arc::new(clearway_quic::crypto::ClientSessions::new(1));
    let mut world = World::new(setup, path("rate=50M delay=5ms", 1), u64::from(seed));
    let held = InFlight::default();
    world.filter = Some(filter(damages, held.clone()));
    world.connect();
    let done = transfer(&mut world, &held);
    // There may be several: a duplicated Initial may have started others.
    let forgotten = world
        .server
        .connections
        .values()
        .any(|connection| connection.error().is_some());
    for connection in world.client.connections.values() {
        match connection.error() {
            // A server that has timed out responds with this.
            Some(ConnectionError::StatelessReset) if forgotten => {}
            error => only_silence(error),
        }
    }
    for connection in world.server.connections.values() {
        only_silence(connection.error());
        assert!(connection.memory() < 4 << 20, "{}", connection.memory());
    }
    let silent = world.client.connection().error().is_some();
    assert!(
        done || silent,
        "neither done nor over after {:?}",
        world.now
    );
    assert!(world.steps < 100_000, "{} steps", world.steps);
});

fn only_silence(error: Option<&ConnectionError>) {
    match error {
        None | Some(ConnectionError::IdleTimeout) => {}
        Some(other) => panic!("{other}"),
    }
}

fn filter(damages: Vec<Damage>, held: InFlight) -> Box<dyn FnMut(Direction, &mut Packet) -> bool> {
    let mut damages = damages.into_iter().take(MAX_DAMAGE);
    Box::new(move |direction, packet| {
        match damages.next().unwrap_or(Damage::Pass) {
            Damage::Pass => {}
            Damage::Drop => return false,
            Damage::Repeat => held.borrow_mut().push_back((direction, packet.clone())),
            Damage::Later => {
                held.borrow_mut().push_back((direction, packet.clone()));
                return false;
            }
            Damage::Bend(at, bits) => {
                let at = usize::from(at) % packet.data.len();
                packet.data[at] ^= bits.max(1);
            }
            Damage::Cut(len) => packet
                .data
                .truncate(usize::from(len) % packet.data.len() + 1),
            Damage::Ce => packet.ecn = clearway_links::Ecn::Ce,
        }
        true
    })
}

/// The client sends a request, and the server responds with `TOTAL` bytes.
fn transfer(world: &mut World, held: &InFlight) -> bool {
    let (mut asked, mut serving, mut written, mut read, mut ended) = (None, None, 0, 0, false);
    let (mut turn, mut heard) = (0_u64, world.now);
    world.run_until(MAX_TIME, |world| {
        turn += 1;
        // Every fourth turn delivers a delayed datagram; a second without one delivers all.
        let silent = world.now > heard + Duration::from_secs(1);
        heard = world.now;
        let release = if silent {
            usize::MAX
        } else {
            usize::from(turn % 4 == 0)
        };
        for _ in 0..release {
            // Delivery may cause a response, which goes through the filter.
            let late = held.borrow_mut().pop_front();
            let Some((direction, packet)) = late else {
                break;
            };
            world.deliver(direction, packet);
        }
        let client = world.client.connection();
        if client.error().is_some() {
            return true;
        }
        if asked.is_none() && client.alpn().is_some() {
            asked = client.open(Directionality::Bidirectional);
            if let Some(id) = asked {
                client.write(id, b"?").expect("a fresh stream");
                client.finish(id).expect("a fresh stream");
            }
        }
        // The first connection: a duplicated Initial may start others, which are not used.
        if let Some(server) = world.server.connections.values_mut().next() {
            serving = serving.or_else(|| server.accept(Directionality::Bidirectional));
            if let Some(id) = serving {
                while written < TOTAL {
                    let piece = vec![0xa5; TOTAL - written];
                    match server.write(id, &piece) {
                        Ok(n) => written += n,
                        Err(_) => break,
                    }
                    if written == TOTAL {
                        server.finish(id).expect("all written");
                    }
                }
            }
        }
        if let Some(id) = asked {
            let client = world.client.connection();
            loop {
                match client.read_chunk(id, usize::MAX) {
                    Ok(Some(chunk)) => {
                        assert!(chunk.iter().all(|&byte| byte == 0xa5));
                        read += chunk.len();
                    }
                    Ok(None) => {
                        assert_eq!(read, TOTAL);
                        ended = true;
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
        ended
    });
    ended
}
