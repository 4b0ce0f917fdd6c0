//! Reading on several threads returns exactly what reading on one returns.

use super::super::parallel::BLOCK;
use super::*;

const FOREIGN: [&[u8]; 4] = [
    include_bytes!("../../../../tests/it/foreign/quiche_server.sqlog"),
    include_bytes!("../../../../tests/it/foreign/quinn_server.sqlog"),
    include_bytes!("../../../../tests/it/foreign/quic-go_server.sqlog"),
    include_bytes!("../../../../tests/it/foreign/aioquic.qlog"),
];

/// Returns a few bytes at a time, and in the end perhaps an error.
struct Input<'t> {
    text: &'t [u8],
    fails: bool,
}

impl Read for Input<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.text.is_empty() && self.fails {
            return Err(io::Error::other("no more"));
        }
        let len = room
            .len()
            .min(self.text.len())
            .min(self.text.len() % 977 + 1);
        let (part, rest) = self.text.split_at(len);
        room[..len].copy_from_slice(part);
        self.text = rest;
        Ok(len)
    }
}

/// All that a reader says: the events, each with the offset after it, and how it ended.
#[derive(Debug, PartialEq)]
struct Outcome {
    events: Vec<(Event, u64)>,
    header: Header,
    problems: Problems,
    error: Option<String>,
    offset: u64,
}

fn outcome(mut reader: Reader<Input<'_>>) -> Outcome {
    let (mut events, mut error) = (Vec::new(), None);
    while let Some(next) = reader.next() {
        match next {
            Ok(event) => events.push((event, reader.offset())),
            Err(failed) => error = Some(failed.to_string()),
        }
    }
    Outcome {
        events,
        header: reader.header().clone(),
        problems: reader.problems().clone(),
        error,
        offset: reader.offset(),
    }
}

fn check(text: &[u8], fails: bool, blocks: &[usize]) -> Option<Outcome> {
    let open = || Reader::new(Input { text, fails }).ok();
    let expected = outcome(open()?);
    for &block in blocks {
        let threads = NonZero::new(block % 3 + 1)?;
        let found = outcome(open()?.in_blocks(threads, block));
        // Not compared as a whole: what is printed would be too long.
        for (found, expected) in found.events.iter().zip(&expected.events) {
            assert_eq!(found, expected, "blocks of {block}");
        }
        assert_eq!(
            found.events.len(),
            expected.events.len(),
            "blocks of {block}"
        );
        assert!(found == expected, "{:?}, {:?}", found.problems, found.error);
    }
    Some(expected)
}

#[test]
fn traces_of_other_stacks_are_read_alike_on_several_threads() {
    for text in FOREIGN {
        for fails in [false, true] {
            let read = check(text, fails, &[1, 100, 4_099, 65_536, BLOCK]);
            let Some(read) = read else {
                // To tell lines from one document, more is read than this.
                assert!(fails && text.starts_with(b"{"));
                continue;
            };
            assert!(read.events.len() > 40, "{}", read.events.len());
            assert_eq!(read.error.is_some(), fails);
            assert_eq!(read.offset, text.len() as u64);
        }
    }
}

#[test]
fn damaged_traces_are_read_alike_on_several_threads() {
    let mut damaged = 0;
    for text in FOREIGN {
        // Different places, the same in every run.
        let mut seed = 1_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % below
        };
        for round in 0..60 {
            let len = text.len().min(40_000);
            let mut text = text[..random(len).max(2_000).min(len)].to_vec();
            for _ in 0..random(9) {
                let (at, to) = (random(text.len()), random(text.len()));
                match random(4) {
                    0 => text[at] = random(256) as u8,
                    1 => text.insert(at, b"\x1e\n{}[]\",\\ "[random(10)]),
                    2 => drop(text.drain(at.min(to)..at.max(to).min(at.min(to) + 300))),
                    _ => text
                        .splice(at..at, b"\n\x1e \n\x1e\x1e".iter().copied())
                        .for_each(drop),
                }
            }
            let read = check(&text, round % 3 == 0, &[61, 1_000, 16_384]);
            damaged += read.map_or(0, |read| read.problems.bad_records);
        }
    }
    assert!(damaged > 50, "{damaged}");
}

#[test]
fn overlong_records_are_skipped_alike_on_several_threads() {
    let event = r#"{"time":1,"name":"transport:packet_sent","data":{}}"#;
    for extra in [0, 1, 2_000_000] {
        let long = format!(
            r#"{{"time":2,"name":"{}"}}"#,
            "x".repeat(MAX_RECORD - 20 + extra)
        );
        assert_eq!(long.len(), MAX_RECORD + extra);
        let long = long.as_str();
        for records in [
            vec!["{}", event, long, event],
            vec!["{}", long, long, event],
            vec!["{}", event, long],
        ] {
            for end in ["", "\n"] {
                let text = format!("\u{1e}{}{end}", records.join("\u{1e}"));
                for fails in [false, true] {
                    let read = check(text.as_bytes(), fails, &[99_991, BLOCK]);
                    assert!(read.is_some());
                }
            }
        }
    }
}

#[test]
fn reader_dropped_early_ends_its_threads() {
    let text = FOREIGN[0];
    let threads = NonZero::new(3).expect("three");
    let mut reader = Reader::new(text).expect("qlog").in_blocks(threads, 100);
    assert!(reader.next().is_some());
}
