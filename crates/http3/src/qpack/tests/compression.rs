//! How the encoder uses its table: sizes, insertions, evictions.

use super::{field, fields};
use crate::qpack::{Decoder, Encoder, Field};

/// An encoder and a decoder, without delays.
struct Pair {
    encoder: Encoder,
    decoder: Decoder,
    stream: u64,
}

impl Pair {
    fn new(capacity: u64, blocked: u64) -> Self {
        let mut encoder = Encoder::new(capacity as usize);
        encoder.set_peer_limits(capacity, blocked).unwrap();
        Self {
            encoder,
            decoder: Decoder::new(capacity, blocked),
            stream: 0,
        }
    }

    /// Returns the length of the section and of the instructions.
    fn send(&mut self, list: &[Field]) -> (usize, usize) {
        let mut section = Vec::new();
        self.stream += 4;
        self.encoder
            .encode(self.stream, list.iter().map(Field::as_ref), &mut section);
        let instructions = self.encoder.instructions().split();
        self.decoder.on_encoder_stream(&instructions).unwrap();
        let sizes = (section.len(), instructions.len());
        let decoded = self
            .decoder
            .decode(self.stream, section.into(), 1 << 16)
            .unwrap();
        let plain = fields(decoded).into_iter().map(|f| Field {
            sensitive: false,
            ..f
        });
        assert!(plain.eq(list.iter().map(|f| Field {
            sensitive: false,
            ..f.clone()
        })));
        self.encoder
            .on_decoder_stream(&self.decoder.instructions().split())
            .unwrap();
        sizes
    }
}

fn request(path: &str, id: &str) -> Vec<Field> {
    vec![
        field(":method", "GET"),
        field(":scheme", "https"),
        field(":authority", "www.example.com"),
        field(":path", path),
        field(
            "user-agent",
            "Mozilla/5.0 (X11; Linux x86_64; rv:138.0) Gecko/20100101",
        ),
        field("accept-language", "en-US,en;q=0.7,de;q=0.3"),
        field("x-request-id", id),
    ]
}

#[test]
fn repeated_request_takes_few_bytes() {
    let mut pair = Pair::new(4096, 16);
    let (first, inserted) = pair.send(&request("/a", "000001"));
    assert!(inserted > 60, "the stable fields go in at once: {inserted}");
    let (second, named) = pair.send(&request("/b", "000002"));
    assert!(named > 0 && second < first, "the name that came again");
    let (third, nothing) = pair.send(&request("/c", "000003"));
    // Prefix 2; 5 indexed; two literals with a name from a table.
    assert_eq!((third, nothing), (2 + 5 + 4 + 6, 0));
    // A path that comes again is inserted, from then on a byte.
    let (_, path) = pair.send(&request("/c", "000004"));
    assert!(path > 0);
    assert_eq!(pair.send(&request("/c", "000005")), (2 + 6 + 6, 0));
}

#[test]
fn entries_are_used_after_acknowledgment_if_blocking_is_not_allowed() {
    let mut pair = Pair::new(4096, 0);
    let (first, inserted) = pair.send(&request("/", "1"));
    assert!(inserted > 60 && first > 60, "inserted, and literal for now");
    let (second, _) = pair.send(&request("/", "1"));
    assert!(second < 25, "{second}");
}

#[test]
fn sensitive_values_are_not_inserted() {
    let mut pair = Pair::new(4096, 16);
    let token = Field {
        sensitive: true,
        ..field("x-token", "a secret of some length")
    };
    for _ in 0..5 {
        pair.send(&[
            token.clone(),
            field("authorization", "Bearer 0123456789"),
            field("cookie", "short=1"),
            field("set-cookie", "session=0123456789abcdef0123456789"),
        ]);
    }
    let held = pair.encoder.fields();
    let named: Vec<_> = held
        .iter()
        .map(|(_, name, value)| (&name[..], &value[..]))
        .collect();
    assert_eq!(
        named,
        [(&b"x-token"[..], &b""[..])],
        "only the name is inserted"
    );
}

#[test]
fn field_in_use_is_duplicated_before_its_eviction() {
    let mut pair = Pair::new(512, 16);
    let stable = field("user-agent", "always the same");
    for round in 0..200 {
        let passing = field("server", &format!("version {round}"));
        let (section, _) = pair.send(&[stable.clone(), passing]);
        assert!(section <= 4, "{section} in round {round}");
    }
    assert!(
        pair.decoder.table().dropped() > 100,
        "{}",
        pair.decoder.table().dropped()
    );
}

#[test]
fn referenced_entries_are_not_evicted() {
    // Room for two entries of 39 bytes.
    let mut encoder = Encoder::new(80);
    encoder.set_peer_limits(80, 16).unwrap();
    let mut out = Vec::new();
    let held = |encoder: &Encoder| -> Vec<_> {
        encoder
            .fields()
            .into_iter()
            .map(|(index, _, value)| (index, value))
            .collect()
    };
    for (stream, value) in ["a", "b", "c", "d", "e", "f", "g"].iter().enumerate() {
        encoder.encode(
            4 * stream as u64,
            [field("server", value).as_ref()],
            &mut out,
        );
    }
    assert_eq!(held(&encoder), [(0, "a".into()), (1, "b".into())]);
    // That it was received is not enough: a section still refers to it.
    encoder.on_decoder_stream(&[0x02]).unwrap();
    encoder.encode(80, [field("server", "h").as_ref()], &mut out);
    assert_eq!(held(&encoder), [(0, "a".into()), (1, "b".into())]);
    // The section of stream 0 is acknowledged.
    encoder.on_decoder_stream(&[0x80]).unwrap();
    encoder.encode(84, [field("server", "i").as_ref()], &mut out);
    assert_eq!(held(&encoder), [(1, "b".into()), (2, "i".into())]);
    // The section of stream 4 is cancelled.
    encoder.on_decoder_stream(&[0x44]).unwrap();
    encoder.encode(88, [field("server", "j").as_ref()], &mut out);
    assert_eq!(held(&encoder), [(2, "i".into()), (3, "j".into())]);
    // No section refers to them, but they are not known to be received.
    encoder
        .on_decoder_stream(&[0x40 | 63, 84 - 63, 0x40 | 63, 88 - 63])
        .unwrap();
    encoder.encode(92, [field("server", "k").as_ref()], &mut out);
    assert_eq!(held(&encoder), [(2, "i".into()), (3, "j".into())]);
}

#[test]
fn no_table_without_a_setting() {
    let mut encoder = Encoder::new(4096);
    let mut out = Vec::new();
    encoder.encode(0, [field("server", "a").as_ref()], &mut out);
    encoder.set_peer_limits(0, 100).unwrap();
    encoder.encode(0, [field("server", "a").as_ref()], &mut out);
    assert!(encoder.instructions().is_empty() && encoder.fields().is_empty());
    // 0-RTT without a remembered capacity: SETTINGS may allow one.
    encoder.set_peer_limits(100, 100).unwrap();
    assert_eq!(encoder.instructions().split()[..], [0x3f, 69]);
    encoder.set_peer_limits(100, 100).unwrap();
    assert!(encoder.instructions().is_empty(), "sent only once");
}

#[test]
fn unsent_instructions_stop_insertions() {
    let mut encoder = Encoder::new(1 << 20);
    encoder.set_peer_limits(1 << 20, 16).unwrap();
    let mut out = Vec::new();
    for number in 0..10_000 {
        out.clear();
        encoder.encode(
            4 * number,
            [field("server", &format!("{number:050}")).as_ref()],
            &mut out,
        );
    }
    let unsent = encoder.instructions().len();
    assert!((16 << 10..17 << 10).contains(&unsent), "{unsent}");
    assert!(encoder.memory() < 256 << 10, "{}", encoder.memory());
}

#[test]
fn memory_is_bounded_if_the_peer_never_acknowledges() {
    let mut encoder = Encoder::new(4096);
    encoder.set_peer_limits(4096, 1 << 40).unwrap();
    let (mut out, server) = (Vec::new(), field("server", "a"));
    encoder.encode(0, [server.as_ref()], &mut out);
    encoder.on_decoder_stream(&[0x01]).unwrap();
    for stream in 1..20_000 {
        out.clear();
        encoder.encode(4 * stream, [server.as_ref()], &mut out);
    }
    assert_eq!(encoder.outstanding(), 4096);
    assert!(out.len() > 4, "literals from there on");
    assert!(encoder.memory() < 1 << 20, "{}", encoder.memory());
}
