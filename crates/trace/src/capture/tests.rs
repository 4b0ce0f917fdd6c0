//! Capture files: both byte orders, both formats, and every way in which they can be damaged.

use super::file::{CaptureFile, CapturedFrame, FileError, Record};
use super::{KeyLog, Reader, is_capture};

fn u16_of(value: u16, big: bool) -> [u8; 2] {
    if big {
        value.to_be_bytes()
    } else {
        value.to_le_bytes()
    }
}

fn u32_of(value: u32, big: bool) -> [u8; 4] {
    if big {
        value.to_be_bytes()
    } else {
        value.to_le_bytes()
    }
}

fn block(out: &mut Vec<u8>, big: bool, kind: u32, body: &[u8]) {
    let len = (body.len().next_multiple_of(4) + 12) as u32;
    out.extend(u32_of(kind, big));
    out.extend(u32_of(len, big));
    out.extend_from_slice(body);
    out.resize(out.len().next_multiple_of(4), 0);
    out.extend(u32_of(len, big));
}

/// A section with secrets and one packet at 1.5 s, in units of 2^-10 s.
fn pcapng(big: bool) -> Vec<u8> {
    let words = |words: &[u32]| {
        words
            .iter()
            .flat_map(|it| u32_of(*it, big))
            .collect::<Vec<_>>()
    };
    let mut out = Vec::new();
    let mut section = words(&[0x1a2b_3c4d]);
    section.extend(u16_of(1, big));
    section.extend([0; 10]);
    block(&mut out, big, 0x0a0d_0d0a, &section);
    let mut interface = u16_of(101, big).to_vec();
    interface.extend([0; 6]);
    // Resolution, then the end of the options.
    interface.extend(u16_of(9, big));
    interface.extend(u16_of(1, big));
    interface.extend([0x8a, 0, 0, 0, 0, 0, 0, 0]);
    block(&mut out, big, 1, &interface);
    let mut secrets = words(&[0x544c_534b, 5]);
    secrets.extend(b"A B C");
    block(&mut out, big, 10, &secrets);
    // A block that says nothing here.
    block(&mut out, big, 5, &[0; 12]);
    let mut packet = words(&[0, 0, 1536, 3, 9]);
    packet.extend(b"abc");
    block(&mut out, big, 6, &packet);
    out
}

fn pcap(big: bool, nanos: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let magic = if nanos { 0xa1b2_3c4d } else { 0xa1b2_c3d4 };
    out.extend(u32_of(magic, big));
    out.extend([0; 12]);
    out.extend(u32_of(65_535, big));
    out.extend(u32_of(101, big));
    let fraction = if nanos { 500_000_000 } else { 500_000 };
    for word in [1, fraction, 3, 9] {
        out.extend(u32_of(word, big));
    }
    out.extend(b"abc");
    out
}

fn records(file: &[u8]) -> (Vec<Record>, Option<FileError>) {
    let mut records = Vec::new();
    let mut reader = match CaptureFile::new(file) {
        Ok(reader) => reader,
        Err(error) => return (records, Some(error)),
    };
    loop {
        match reader.next() {
            Ok(Some(record)) => records.push(record),
            Ok(None) => return (records, None),
            Err(error) => return (records, Some(error)),
        }
    }
}

fn packet() -> Record {
    Record::Frame(CapturedFrame {
        time: 1_500_000_000,
        link_type: 101,
        data: b"abc".to_vec(),
        cut: true,
    })
}

#[test]
fn pcapng_is_read_in_both_byte_orders() {
    for big in [false, true] {
        let (records, error) = records(&pcapng(big));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(records, [Record::Secrets(b"A B C".to_vec()), packet()]);
    }
}

#[test]
fn section_after_a_section_has_its_own_byte_order_and_interfaces() {
    let file = [pcapng(false), pcapng(true)].concat();
    let (records, error) = records(&file);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(records.len(), 4);
    assert_eq!(records.last(), Some(&packet()));
}

#[test]
fn pcap_is_read_in_both_byte_orders_and_resolutions() {
    for (big, nanos) in [(false, false), (false, true), (true, false), (true, true)] {
        let file = pcap(big, nanos);
        assert!(is_capture(&file));
        let (records, error) = records(&file);
        assert!(error.is_none(), "{error:?}");
        assert_eq!(records, [packet()], "{big} {nanos}");
    }
}

#[test]
fn truncation_at_any_byte_is_reported_with_the_offset_of_the_block() {
    for file in [pcapng(false), pcapng(true), pcap(false, false)] {
        let mut whole = 0;
        for len in 0..file.len() {
            match records(&file[..len]) {
                (_, None) => whole += 1,
                (
                    _,
                    Some(FileError::Truncated {
                        offset,
                        expected,
                        found,
                        ..
                    }),
                ) => {
                    assert_eq!(offset + found, len as u64, "{len}");
                    assert!(found < expected, "{len}");
                }
                (_, Some(FileError::NotCapture { .. })) => assert!(len < 4, "{len}"),
                (_, Some(other)) => panic!("{len}: {other}"),
            }
        }
        // Between blocks a file may end.
        assert!(whole <= 4, "{whole}");
    }
}

#[test]
fn impossible_lengths_are_reported_and_cost_no_memory() {
    let mut file = pcapng(false);
    file[4..8].copy_from_slice(&0xffff_fff0_u32.to_le_bytes());
    let (_, error) = records(&file);
    assert_eq!(
        error.expect("an error").to_string(),
        "the capture is corrupt at offset 4: expected the length of a block, found 4294967280"
    );
    let mut file = pcapng(false);
    let second = 28;
    file[second + 4] = 9;
    let (_, error) = records(&file);
    let error = error.expect("an error").to_string();
    assert!(
        error.starts_with("the capture is corrupt at offset 32"),
        "{error}"
    );
    let mut file = pcapng(false);
    let last = file.len() - 4;
    file[last] ^= 4;
    let (found, error) = records(&file);
    assert_eq!(found.len(), 1, "what came before is still read");
    let error = error.expect("an error").to_string();
    let at = format!("at offset {last}: expected the block's length again");
    assert!(error.contains(&at), "{error}");
}

#[test]
fn every_changed_byte_is_survived() {
    for file in [pcapng(false), pcap(true, true)] {
        for at in 0..file.len() {
            for bits in [1, 0x80, 0xff] {
                let mut file = file.clone();
                file[at] ^= bits;
                let _ = records(&file);
                if let Ok(reader) = Reader::new(file.as_slice(), KeyLog::default()) {
                    assert!(reader.count() < 10);
                }
            }
        }
    }
}

#[test]
fn other_files_are_not_captures() {
    for begin in [&b""[..], b"{}", b"\x1e{", b"\x0a\x0d", b"{\"constant\""] {
        assert!(!is_capture(begin), "{begin:?}");
    }
    assert!(is_capture(b"\n{\"constants\": {"));
    let error = Reader::new(&b"GIF89a"[..], KeyLog::default()).expect_err("not a capture");
    assert!(error.to_string().contains("found 0x47494638"), "{error}");
}

/// A netlog with these event types and events.
fn netlog(types: &str, events: &str) -> String {
    format!("{{\"constants\":{{\"logEventTypes\":{types}}},\"events\":[\n{events}]}}")
}

const TYPES: &str = r#"{"QUIC_SESSION":1,"QUIC_SESSION_PACKET_SENT":2,"OTHER":3}"#;

/// An event of session 7, after `more`.
fn event(kind: u64, more: &str) -> String {
    let source = r#""source":{"id":7,"type":13,"start_time":"5"}"#;
    format!("{{\"type\":{kind},\"time\":\"5\",{source},{more}}}")
}

#[test]
fn netlog_without_the_events_of_quic_is_reported_with_what_it_has() {
    for (constants, found) in [
        (
            r#"{"constants": {}, "events": []}"#.to_owned(),
            "no such object",
        ),
        (r#"{"constants": 5}"#.to_owned(), "no such object"),
        (netlog("[]", ""), "no such object"),
        (netlog("{}", ""), "0 other event types"),
        (
            netlog(r#"{"TCP_CONNECT":1,"UDP":2}"#, &event(1, "\"phase\":0")),
            "2 other event types",
        ),
        (
            netlog(r#"{"QUIC_SESSION_PACKET_SENT":"2"}"#, ""),
            "1 other event types",
        ),
    ] {
        let reader = Reader::new(constants.as_bytes(), KeyLog::default()).expect("a netlog");
        let errors: Vec<String> = reader
            .filter_map(|it| Some(it.err()?.to_string()))
            .collect();
        let [error] = &errors[..] else {
            panic!("{constants}: {errors:?}");
        };
        let expected = "expected the number of QUIC_SESSION_PACKET_SENT in \
                        constants.logEventTypes at offset 0";
        assert!(error.contains(expected), "{error}");
        assert!(error.ends_with(&format!("found {found}")), "{error}");
    }
}

#[test]
fn records_of_a_netlog_that_lack_something_are_counted_with_their_offset() {
    let sent = event(2, r#""params":{"packet_number":1,"size":1250}"#);
    let whole = netlog(TYPES, &[event(3, "\"phase\":0"), sent.clone()].join(",\n"));
    let read = |text: &str| {
        let mut reader = Reader::new(text.as_bytes(), KeyLog::default()).expect("a netlog");
        let sent = (&mut reader)
            .filter(|it| {
                let event = &it.as_ref().expect("memory does not fail").event;
                matches!(event.data, crate::event::EventData::PacketSent(_))
            })
            .count();
        (sent, reader.problems())
    };
    let (packets, problems) = read(&whole);
    assert_eq!((packets, problems.bad_records, problems.opened), (1, 0, 1));
    for bad in [
        r#"{"type":2}"#.to_owned(),
        r#"{"type":2,"source":{"id":7}}"#.to_owned(),
        r#"{"type":"x","source":{"id":7},"time":"5"}"#.to_owned(),
        event(2, "\"phase\":0"),
        event(2, r#""params":{"packet_number":"x"}"#),
    ] {
        let text = netlog(
            TYPES,
            &[sent.clone(), bad.clone(), sent.clone()].join(",\n"),
        );
        let (_, problems) = read(&text);
        assert_eq!(problems.bad_records, 1, "{bad}");
        let at = text.find(&bad).expect("it is in there") as u64;
        assert_eq!(problems.first_bad_record, Some(at), "{bad}");
    }
    // Cut off at any byte: what stands before is read.
    let begin = whole.find(&sent).expect("it is in there");
    for len in whole.find("events").expect("events")..whole.len() {
        let (packets, problems) = read(&whole[..len]);
        let complete = len >= begin + sent.len();
        assert_eq!(packets, usize::from(complete), "{len}");
        let within = len > begin && !complete;
        assert!(
            !within || problems.first_bad_record == Some(begin as u64),
            "{len}"
        );
    }
}

/// Chrome logs what an ACK shows as lost before the ACK itself.
#[test]
fn ack_that_follows_the_losses_it_shows_belongs_to_its_packet() {
    let types = r#"{"QUIC_SESSION_PACKET_SENT":2,"QUIC_SESSION_PACKET_LOST":4,
        "QUIC_SESSION_UNAUTHENTICATED_PACKET_HEADER_RECEIVED":5,"QUIC_SESSION_ACK_FRAME_RECEIVED":6,
        "QUIC_SESSION_STREAM_FRAME_SENT":7}"#;
    let mut events = Vec::new();
    for number in 0..5 {
        let frame = format!(r#""params":{{"stream_id":0,"offset":{number},"length":1}}"#);
        events.push(event(7, &frame));
        let packet = format!(r#""params":{{"packet_number":{number},"size":1250}}"#);
        events.push(event(2, &packet));
    }
    events.push(event(5, r#""params":{"packet_number":9}"#));
    events.push(event(4, r#""params":{"packet_number":0}"#));
    let ack = r#""params":{"smallest_observed":1,"largest_observed":4,"missing_packets":[2]}"#;
    events.push(event(6, ack));
    let text = netlog(types, &events.join(",\n"));
    let reader = Reader::new(text.as_bytes(), KeyLog::default()).expect("a netlog");
    let mut received = Vec::new();
    let mut lost = 0;
    for captured in reader {
        match captured.expect("memory does not fail").event.data {
            crate::event::EventData::PacketReceived(packet) => {
                received.push(packet.frames().to_vec());
            }
            crate::event::EventData::PacketLost { number, .. } => {
                assert_eq!((number, received.len()), (0, 1));
                lost += 1;
            }
            _ => {}
        }
    }
    assert_eq!(lost, 1);
    let expected = crate::event::Frame::ack([(1, 1), (3, 4)]);
    assert_eq!(received, [vec![expected]]);
}
