//! Both halves of a stream, as the production type for streams runs them, beside a
//! [`model`] that knows RFC 9000 §2 to §4 and nothing of the code: which state each
//! half is in after each event, what a read or write answers, which frames may leave
//! and with which error a frame of the peer's ends the connection. What of it all was new
//! data is reckoned by [`arrivals`].
//!
//! | world | peer | explores |
//! |---|---|---|
//! | `honest` | the same production type | losses, repetitions, reordering; that everything ends |
//! | `hostile` | forges every frame | gaps, overlaps, contradictions, limits |

mod arrivals;
mod honest;
mod hostile;
mod model;

use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::testing::{StreamContent, Streams};
use clearway_quic::wire::Writer;

use clearway_testing::explore::{Bounds, ExpectClean, explore_by_replay};

const RTT: Duration = Duration::from_millis(100);

/// A packet's frames, and what its sender remembers of them.
#[derive(Clone, Debug)]
struct Packet {
    bytes: Vec<u8>,
    contents: Vec<StreamContent>,
    /// Its sender takes it for lost.
    lost: bool,
}

/// What `from` has to send, if anything.
fn fill(from: &mut Streams) -> Option<Packet> {
    packet(|w, contents| {
        from.fill(w, Instant::ZERO, RTT, &mut |content| contents.push(content));
    })
}

/// What may ride in a packet that leaves for another reason, such as an ACK.
fn ride(from: &mut Streams) -> Option<Packet> {
    packet(|w, contents| {
        from.fill_urgent_credit(w, Instant::ZERO, RTT, &mut |content| contents.push(content));
    })
}

fn packet(write: impl FnOnce(&mut Writer<'_>, &mut Vec<StreamContent>)) -> Option<Packet> {
    let mut bytes = vec![0; 1_200];
    let mut w = Writer::new(&mut bytes);
    let mut contents = Vec::new();
    write(&mut w, &mut contents);
    assert!(!w.overflowed());
    let len = w.written();
    assert_eq!(len == 0, contents.is_empty(), "frames and their record");
    bytes.truncate(len);
    (len > 0).then_some(Packet {
        bytes,
        contents,
        lost: false,
    })
}

/// The byte at `offset` of every stream.
fn byte(offset: u64) -> u8 {
    b'a' + offset as u8
}

/// The bytes `from..to` of every stream.
fn content(from: u64, to: u64) -> Vec<u8> {
    (from..to).map(byte).collect()
}

#[test]
fn stream_between_honest_ends_is_delivered_and_retired_despite_loss() {
    let bounds = Bounds::to_depth(if cfg!(debug_assertions) { 8 } else { 9 });
    explore_by_replay("a stream", honest::Pair::new, bounds).expect_clean();
}

#[test]
fn any_frames_of_hostile_peer_change_stream_states_as_in_rfc() {
    let bounds = Bounds::to_depth(if cfg!(debug_assertions) { 5 } else { 6 });
    let start = || hostile::Victim::new(hostile::Limits::Open);
    explore_by_replay("a stream of a hostile peer", start, bounds).expect_clean();
}

#[test]
fn any_frames_of_hostile_peer_with_little_credit_change_stream_states_as_in_rfc() {
    let bounds = Bounds::to_depth(if cfg!(debug_assertions) { 5 } else { 6 });
    let start = || hostile::Victim::new(hostile::Limits::Tight);
    explore_by_replay(
        "a stream of a hostile peer that grants little",
        start,
        bounds,
    )
    .expect_clean();
}
