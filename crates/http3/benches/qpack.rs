//! Measures encoding and decoding of a header section, in ns and allocations.
//!
//! ```sh
//! cargo bench -p clearway-http3 --bench qpack            # 1,000,000 rounds
//! cargo bench -p clearway-http3 --bench qpack -- 20000   # this many rounds
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use clearway_http3::qpack::{Decoded, Decoder, Encoder, FieldRef};

/// How many batches the rounds are split into.
const BATCHES: u64 = 20;

/// An allocator that counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
#[expect(unsafe_code, reason = "the allocator's trait is unsafe")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise about `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise about both is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const TOKEN: &[u8] = b"Bearer 3f9a1c77d2e84b06a5c1";

/// A request of a browser.
const REQUEST: [FieldRef<'static>; 10] = [
    FieldRef::new(b":method", b"GET"),
    FieldRef::new(b":scheme", b"https"),
    FieldRef::new(b":authority", b"www.example.com"),
    FieldRef::new(b":path", b"/articles/2026/quic.html?page=2"),
    FieldRef::new(
        b"user-agent",
        b"Mozilla/5.0 (X11; Linux x86_64; rv:138.0) Gecko/20100101",
    ),
    FieldRef::new(
        b"accept",
        b"text/html,application/xhtml+xml,application/xml;q=0.9",
    ),
    FieldRef::new(b"accept-language", b"en-US,en;q=0.7,de;q=0.3"),
    FieldRef::new(b"accept-encoding", b"gzip, deflate, br"),
    FieldRef {
        name: b"authorization",
        value: TOKEN,
        sensitive: true,
    },
    FieldRef::new(b"x-request-id", b"1b4e28ba-2fa1-11d2-883f-0016d3cca427"),
];

/// A minimal request and response.
const SMALL: [FieldRef<'static>; 4] = [
    FieldRef::new(b":method", b"GET"),
    FieldRef::new(b":scheme", b"https"),
    FieldRef::new(b":authority", b"localhost"),
    FieldRef::new(b":path", b"/"),
];
const RESPONSE: [FieldRef<'static>; 3] = [
    FieldRef::new(b":status", b"200"),
    FieldRef::new(b"content-length", b"1024"),
    FieldRef::new(b"content-type", b"application/octet-stream"),
];

/// Prints the fastest of the batches, because other load on the machine only adds time.
fn measure(what: &str, rounds: u64, mut round: impl FnMut()) {
    let mut fastest = f64::INFINITY;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..rounds / BATCHES {
            round();
        }
        let each = begin.elapsed().as_nanos() as f64 / (rounds / BATCHES) as f64;
        fastest = fastest.min(each);
    }
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    println!(
        "{what:<44} {fastest:8.1} ns {:7.2} allocations",
        allocations as f64 / rounds as f64
    );
}

/// An encoder and a decoder after a few acknowledged requests, and one more section.
fn settled(capacity: u64, fields: &[FieldRef<'static>]) -> (Encoder, Decoder, Bytes) {
    let mut encoder = Encoder::new(4096);
    encoder.set_peer_limits(capacity, 16).expect("the first");
    let mut decoder = Decoder::new(capacity, 16);
    let mut section = Vec::new();
    for stream in 0..4 {
        section.clear();
        encoder.encode(4 * stream, fields.iter().copied(), &mut section);
        decoder
            .on_encoder_stream(&encoder.instructions().split())
            .expect("our own");
        let decoded = decoder.decode(4 * stream, section.clone().into(), 1 << 16);
        assert!(matches!(decoded, Ok(Decoded::Fields(_))));
        encoder
            .on_decoder_stream(&decoder.instructions().split())
            .expect("our own");
    }
    section.clear();
    encoder.encode(64, fields.iter().copied(), &mut section);
    let _ = decoder.decode(64, section.clone().into(), 1 << 16);
    encoder
        .on_decoder_stream(&decoder.instructions().split())
        .expect("our own");
    (encoder, decoder, section.into())
}

fn both_ways(what: &str, capacity: u64, fields: &[FieldRef<'static>], rounds: u64) {
    let (mut encoder, mut decoder, section) = settled(capacity, fields);
    println!(
        "-- {what}, table of {capacity} bytes: {} bytes",
        section.len()
    );
    let (mut out, mut acknowledgment) = (Vec::with_capacity(1024), Vec::new());
    if section[0] != 0 {
        // The section refers to the dynamic table, so it is acknowledged: stream 64.
        acknowledgment.push(0x80 | 64);
    }
    measure("encode (and process the acknowledgment)", rounds, || {
        out.clear();
        encoder.encode(64, black_box(fields).iter().copied(), &mut out);
        encoder
            .on_decoder_stream(&acknowledgment)
            .expect("one section waits for it");
    });
    measure("decode", rounds, || {
        let decoded = decoder.decode(64, black_box(section.clone()), 1 << 16);
        drop(black_box(decoded.expect("our own")));
        decoder.instructions().clear();
    });
}

fn main() {
    let rounds = std::env::args()
        .skip(1)
        .find_map(|arg| arg.parse().ok())
        .unwrap_or(1_000_000);
    for capacity in [4096, 0] {
        both_ways("request with 10 fields", capacity, &REQUEST, rounds);
        both_ways("request with 4 fields", capacity, &SMALL, rounds);
        both_ways("response with 3 fields", capacity, &RESPONSE, rounds);
    }
}
