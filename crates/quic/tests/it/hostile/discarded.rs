//! Packets that an end must not process (RFC 9000 §12.2, §17.2; RFC 9001 §5.7), and the packets
//! coalesced with them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use clearway_quic::connection::Forgery;
use clearway_quic::event::{DropReason, Observer, TraceEvent};
use clearway_quic::wire::PacketKind;
use clearway_quic::{Instant, Role};

use crate::hostile::pair::HostilePair;

const PING: &[u8] = &[0x01];

/// The packets that a connection has processed or dropped.
#[derive(Clone, Debug, Default)]
struct PacketLog(Arc<Mutex<Vec<PacketOutcome>>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PacketOutcome {
    Received(PacketKind),
    Dropped(Option<PacketKind>, DropReason),
}

impl PacketLog {
    /// Returns those since the last call.
    fn take(&self) -> Vec<PacketOutcome> {
        core::mem::take(&mut *self.0.lock().expect("one thread"))
    }
}

impl Observer for PacketLog {
    fn on_event(&mut self, _: Instant, event: &TraceEvent<'_>) {
        let fate = match *event {
            TraceEvent::PacketReceived { kind, .. } => PacketOutcome::Received(kind),
            TraceEvent::PacketDropped { kind, reason } => PacketOutcome::Dropped(kind, reason),
            _ => return,
        };
        self.0.lock().expect("one thread").push(fate);
    }
}

fn watch(pair: &mut HostilePair) -> PacketLog {
    let packets = PacketLog::default();
    pair.victim().set_observer(Box::new(packets.clone()));
    packets
}

/// The client's handshake is complete, and the server has not heard so: both have
/// Handshake and 1-RTT keys.
fn before_the_finished_arrives(hostile: Role, grease: bool) -> (HostilePair, PacketLog) {
    let mut pair = HostilePair::begun(hostile, |setup| {
        setup.client.grease = grease;
        setup.server.grease = grease;
    });
    pair.world.run_for(Duration::from_millis(11));
    let packets = watch(&mut pair);
    (pair, packets)
}

#[test]
fn coalesced_packet_with_other_dcid_drops_rest_of_datagram() {
    use PacketOutcome::{Dropped, Received};
    let kind = PacketKind::Handshake;
    for hostile in [Role::Client, Role::Server] {
        for other in [false, true] {
            let (mut pair, log) = before_the_finished_arrives(hostile, true);
            let mut packets = [(); 3].map(|()| pair.forge(&Forgery::new(kind, PING)));
            if other {
                // First byte, version, length: then the Destination Connection ID.
                packets[1][6] ^= 0xff;
            }
            pair.deliver(packets.concat());
            let due = if other {
                vec![Received(kind), Dropped(Some(kind), DropReason::Unexpected)]
            } else {
                vec![Received(kind); 3]
            };
            assert_eq!(log.take(), due, "from the {hostile:?}");
            pair.world.run_for(Duration::from_secs(1));
            pair.still_serves();
        }
    }
}

/// RFC 9287 §3: only an end that has sent grease_quic_bit accepts packets without the fixed bit.
#[test]
fn packet_without_fixed_bit_is_dropped_unless_greasing_was_offered() {
    use PacketOutcome::{Dropped, Received};
    let clear = |kind| Forgery {
        flip: 0x40,
        ..Forgery::new(kind, PING)
    };
    for hostile in [Role::Client, Role::Server] {
        for offered in [false, true] {
            let (mut pair, log) = before_the_finished_arrives(hostile, offered);
            let due = |kind| {
                if offered {
                    vec![Received(kind)]
                } else {
                    vec![Dropped(Some(kind), DropReason::Malformed)]
                }
            };
            pair.strike(&clear(PacketKind::Handshake));
            assert_eq!(log.take(), due(PacketKind::Handshake), "{hostile:?}");
            pair.world.run_for(Duration::from_secs(1));
            log.take();
            pair.strike(&clear(PacketKind::OneRtt));
            assert_eq!(log.take(), due(PacketKind::OneRtt), "{hostile:?}");
            pair.still_serves();
        }
    }
}

/// The 1-RTT packets that a server opens when the Finished comes, of so many that came
/// before it and of those of the client's own.
fn opened_of(ahead: usize) -> usize {
    let (mut pair, log) = before_the_finished_arrives(Role::Client, true);
    for _ in 0..ahead {
        pair.strike(&Forgery::new(PacketKind::OneRtt, PING));
    }
    let dropped = |reason| PacketOutcome::Dropped(Some(PacketKind::OneRtt), reason);
    let kept = vec![dropped(DropReason::KeysUnavailable); ahead.min(10)];
    let overload = vec![dropped(DropReason::Overload); ahead.saturating_sub(10)];
    assert_eq!(log.take(), [kept, overload].concat());
    let mut opened = Vec::new();
    pair.world.run_until(Duration::from_secs(1), |_| {
        opened.extend(log.take());
        opened.retain(|fate| *fate == PacketOutcome::Received(PacketKind::OneRtt));
        !opened.is_empty()
    });
    pair.world.run_for(Duration::from_secs(1));
    pair.still_serves();
    opened.len()
}

/// RFC 9001 §5.7: a server may keep 1-RTT packets that come before the handshake is
/// complete, of which a client can send any number.
#[test]
fn ten_undecryptable_packets_are_kept_until_keys_arrive() {
    let own = opened_of(0);
    assert!(own > 0, "the client's own come with its Finished");
    for (ahead, kept) in [(1, 1), (10, 10), (11, 10), (30, 10)] {
        assert_eq!(opened_of(ahead), own + kept, "of {ahead}");
    }
}
