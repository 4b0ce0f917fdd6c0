//! The reader of Chrome's netlog: arbitrary text, and sessions of arbitrary events. It terminates,
//! and what it derives is consistent.
#![no_main]

use std::fmt::Write as _;

use arbitrary::{Arbitrary, Unstructured};
use clearway_trace::capture::{KeyLog, Reader, is_capture};
use clearway_trace::{Examiner, Sink as _};
use libfuzzer_sys::fuzz_target;

/// Names of event types, after `QUIC_SESSION_`.
const NAMES: &[&str] = &[
    "PACKET_SENT",
    "PACKET_RECEIVED",
    "UNAUTHENTICATED_PACKET_HEADER_RECEIVED",
    "PACKET_LOST",
    "CLOSED",
    "CONNECTION_CLOSE_FRAME_SENT",
    "STREAM_FRAME_SENT",
    "STREAM_FRAME_RECEIVED",
    "ACK_FRAME_SENT",
    "ACK_FRAME_RECEIVED",
    "CRYPTO_FRAME_SENT",
    "WINDOW_UPDATE_FRAME_RECEIVED",
    "BLOCKED_FRAME_SENT",
    "RST_STREAM_FRAME_SENT",
    "MAX_STREAMS_FRAME_RECEIVED",
    "PADDING_FRAME_SENT",
    "PING_FRAME_SENT",
    "HANDSHAKE_DONE_FRAME_RECEIVED",
    "NEW_CONNECTION_ID_FRAME_RECEIVED",
    "SOMETHING_FRAME_SENT",
    "SOMETHING_ELSE",
];
/// Parameters that are numbers.
const NUMBERS: &[&str] = &[
    "packet_number",
    "size",
    "sent_time_us",
    "stream_id",
    "offset",
    "length",
    "data_length",
    "byte_offset",
    "largest_observed",
    "smallest_observed",
    "delta_time_largest_observed_us",
    "stream_count",
    "quic_error",
    "quic_wire_error",
    "num_padding_bytes",
    "CE",
    "ECT0",
    "ECT1",
];

#[derive(Arbitrary, Debug)]
enum Input {
    /// What follows the constants.
    Events(Vec<u8>),
    Session(Vec<Logged>),
}

#[derive(Arbitrary, Debug)]
struct Logged {
    name: u8,
    source: bool,
    /// Milliseconds after the one before.
    after: i8,
    numbers: Vec<(u8, Number)>,
    missing: Vec<u16>,
    long: bool,
}

#[derive(Arbitrary, Debug)]
enum Number {
    Small(u8),
    Large(u64),
    Negative(i64),
    Text(u32),
}

fuzz_target!(|data: &[u8]| {
    if is_capture(data) {
        examine(data);
        return;
    }
    match Input::arbitrary(&mut Unstructured::new(data)) {
        Ok(Input::Events(events)) => examine(&[constants().as_bytes(), &events].concat()),
        Ok(Input::Session(events)) => examine(session(&events).as_bytes()),
        Err(_) => {}
    }
});

fn constants() -> String {
    let mut text = "{\"constants\":{\"logEventTypes\":{\"QUIC_SESSION\":99".to_owned();
    for (number, name) in NAMES.iter().enumerate() {
        let _ = write!(text, ",\"QUIC_SESSION_{name}\":{number}");
    }
    text.push_str("}},\n\"events\": [\n");
    text
}

fn session(events: &[Logged]) -> String {
    let (mut text, mut now) = (constants(), 1_000_i64);
    for (at, event) in events.iter().take(200).enumerate() {
        now += i64::from(event.after);
        let comma = if at > 0 { ",\n" } else { "" };
        let kind = usize::from(event.name) % NAMES.len();
        let source = u8::from(event.source);
        let missing = &event.missing;
        let _ = write!(
            text,
            "{comma}{{\"type\":{kind},\"source\":{{\"id\":{source}}},\"time\":\"{now}\",\
             \"params\":{{\"missing_packets\":{missing:?},\"fin\":{}",
            event.long,
        );
        if event.long {
            text.push_str(",\"long_header_type\":\"INITIAL\"");
        }
        for (name, number) in &event.numbers {
            let name = NUMBERS[usize::from(*name) % NUMBERS.len()];
            let _ = match number {
                Number::Small(value) => write!(text, ",\"{name}\":{value}"),
                Number::Large(value) => write!(text, ",\"{name}\":{value}"),
                Number::Negative(value) => write!(text, ",\"{name}\":{value}"),
                Number::Text(value) => write!(text, ",\"{name}\":\"{value}\""),
            };
        }
        text.push_str("}}");
    }
    text.push_str("]}");
    text
}

/// Reads a log to its end and examines what is in it.
fn examine(text: &[u8]) {
    let Ok(mut reader) = Reader::new(text, KeyLog::default()) else {
        return;
    };
    let mut ends: Vec<(Examiner, u64)> = Vec::new();
    while let Some(next) = reader.next() {
        let Ok(captured) = next else { continue };
        while ends.len() < reader.traces().len() {
            ends.push((Examiner::new(Some(reader.traces()[ends.len()].role)), 0));
        }
        let (examiner, last) = &mut ends[captured.trace];
        assert!(
            captured.event.time >= *last,
            "events of a netlog are in order"
        );
        *last = captured.event.time;
        examiner.event(&captured.event);
    }
    let problems = reader.problems();
    assert!(
        problems
            .first_bad_record
            .is_none_or(|at| at <= text.len() as u64)
    );
    for (examiner, last) in ends {
        let examined = examiner.finish();
        assert!(
            examined
                .findings
                .iter()
                .all(|it| it.t0 <= it.t1 && it.t1 <= last)
        );
        let spent: u64 = examined
            .breakdown
            .shares()
            .iter()
            .map(|(_, spent)| spent)
            .sum();
        assert_eq!(spent, examined.breakdown.life());
    }
}
