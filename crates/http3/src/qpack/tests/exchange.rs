//! Random field sections over three streams that are delayed, split and interleaved arbitrarily.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::qpack::{Decoded, Decoder, Encoder, Field};

/// Streams in use at a time.
const SLOTS: usize = 6;

#[derive(Clone, Debug)]
enum Step {
    /// A section for the stream in this slot.
    Send(usize, Vec<Field>),
    /// A section of which nothing is ever sent.
    Abandon(Vec<Field>),
    /// This many bytes of the encoder stream arrive.
    Insert(usize),
    /// The next section of the stream in this slot arrives.
    Arrive(usize),
    /// This many bytes of the decoder stream arrive.
    Acknowledge(usize),
    /// The decoder cancels the stream in this slot.
    Cancel(usize),
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    wanted: usize,
    capacity: u64,
    blocked: u64,
}

struct World {
    settings: Settings,
    encoder: Encoder,
    decoder: Decoder,
    inserting: VecDeque<u8>,
    acknowledging: VecDeque<u8>,
    /// The stream in each slot.
    streams: [u64; SLOTS],
    next_stream: u64,
    /// Sections in flight: the bytes, and the fields.
    sections: BTreeMap<u64, VecDeque<(Bytes, Vec<Field>)>>,
    /// The blocked sections, by stream.
    blocked: BTreeMap<u64, VecDeque<Vec<Field>>>,
    /// How many sections were blocked.
    seen_blocked: usize,
}

impl World {
    fn new(settings: Settings) -> Self {
        let mut encoder = Encoder::new(settings.wanted);
        encoder
            .set_peer_limits(settings.capacity, settings.blocked)
            .unwrap();
        let mut world = Self {
            settings,
            encoder,
            decoder: Decoder::new(settings.capacity, settings.blocked),
            inserting: VecDeque::new(),
            acknowledging: VecDeque::new(),
            streams: [0; SLOTS],
            next_stream: 0,
            sections: BTreeMap::new(),
            blocked: BTreeMap::new(),
            seen_blocked: 0,
        };
        for slot in 0..SLOTS {
            world.streams[slot] = world.fresh();
        }
        world
    }

    fn fresh(&mut self) -> u64 {
        self.next_stream += 4;
        self.next_stream
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Send(slot, fields) => {
                let stream = self.streams[slot];
                let section = self.encode(stream, &fields);
                self.sections
                    .entry(stream)
                    .or_default()
                    .push_back((section, fields));
            }
            Step::Abandon(fields) => {
                let stream = self.fresh();
                self.encode(stream, &fields);
                self.encoder.cancel(stream);
            }
            Step::Insert(len) => self.insert(len),
            Step::Arrive(slot) => self.arrive(self.streams[slot]),
            Step::Acknowledge(len) => {
                let len = len.min(self.acknowledging.len());
                let bytes: Vec<u8> = self.acknowledging.drain(..len).collect();
                self.encoder.on_decoder_stream(&bytes).unwrap();
            }
            Step::Cancel(slot) => {
                let stream = self.streams[slot];
                self.streams[slot] = self.fresh();
                self.decoder.cancel(stream);
                self.sections.remove(&stream);
                self.blocked.remove(&stream);
            }
        }
        self.inserting.extend(self.encoder.instructions().split());
        self.check();
    }

    fn encode(&mut self, stream: u64, fields: &[Field]) -> Bytes {
        let mut out = b"before".to_vec();
        self.encoder
            .encode(stream, fields.iter().map(Field::as_ref), &mut out);
        assert!(out.starts_with(b"before"));
        out.split_off(6).into()
    }

    fn insert(&mut self, len: usize) {
        let len = len.min(self.inserting.len());
        let bytes: Vec<u8> = self.inserting.drain(..len).collect();
        self.decoder.on_encoder_stream(&bytes).unwrap();
        while let Some(stream) = self.decoder.next_unblocked() {
            let decoded = self
                .decoder
                .resume(stream)
                .unwrap()
                .expect("it was unblocked");
            let waiting = self.blocked.get_mut(&stream).expect("it was blocked");
            same(decoded, &waiting.pop_front().expect("a blocked section"));
            if waiting.is_empty() {
                self.blocked.remove(&stream);
            }
        }
    }

    fn arrive(&mut self, stream: u64) {
        let Some((section, fields)) = self.sections.get_mut(&stream).and_then(VecDeque::pop_front)
        else {
            return;
        };
        match self.decoder.decode(stream, section, 1 << 20).unwrap() {
            Decoded::Blocked => {
                self.blocked.entry(stream).or_default().push_back(fields);
                self.seen_blocked += 1;
            }
            decoded @ (Decoded::Fields(_) | Decoded::TooLarge) => {
                assert!(!self.blocked.contains_key(&stream), "it overtook another");
                same(decoded, &fields);
            }
        }
    }

    /// Checks the invariants.
    fn check(&mut self) {
        assert!(self.decoder.blocked_streams() <= self.settings.blocked);
        assert!(self.decoder.blocked_streams() <= self.blocked.len() as u64);
        let theirs = self.encoder.fields();
        let size: usize = theirs
            .iter()
            .map(|(_, name, value)| name.len() + value.len() + 32)
            .sum();
        let capacity = self.settings.wanted.min(self.settings.capacity as usize);
        assert!(size <= capacity, "{size} bytes in a table of {capacity}");
        // Entries that both have are equal.
        let theirs: BTreeMap<_, _> = theirs
            .into_iter()
            .map(|(index, name, value)| (index, (name, value)))
            .collect();
        for (index, name, value) in self.decoder.table().fields() {
            if let Some(field) = theirs.get(&index) {
                assert_eq!(field, &(name, value), "entry {index}");
            }
        }
        assert!(
            self.decoder.memory() < 64 << 10,
            "{}",
            self.decoder.memory()
        );
        assert!(
            self.encoder.memory() < 64 << 10,
            "{}",
            self.encoder.memory()
        );
    }

    /// Delivers everything, and checks that nothing is left.
    fn finish(mut self) {
        self.insert(usize::MAX);
        for stream in self.streams {
            while self
                .sections
                .get(&stream)
                .is_some_and(|waiting| !waiting.is_empty())
            {
                self.arrive(stream);
            }
        }
        self.acknowledging
            .extend(self.decoder.instructions().split());
        self.step(Step::Acknowledge(usize::MAX));
        assert!(self.blocked.is_empty() && self.decoder.blocked_streams() == 0);
        assert_eq!(self.encoder.fields(), self.decoder.table().fields());
        assert_eq!(self.encoder.outstanding(), 0);
        assert_eq!(
            self.encoder.known_received_count(),
            self.decoder.table().insert_count()
        );
    }
}

/// Checks that the fields are equal, except that more of them may be sensitive.
fn same(decoded: Decoded, sent: &[Field]) {
    let fields = super::fields(decoded);
    assert_eq!(fields.len(), sent.len());
    for (field, sent) in fields.iter().zip(sent) {
        assert_eq!((&field.name, &field.value), (&sent.name, &sent.value));
        assert!(field.sensitive || !sent.sensitive);
    }
}

fn any_field() -> impl Strategy<Value = Field> {
    let name = prop_oneof![
        4 => proptest::sample::select(&[
            ":method", ":path", ":authority", "user-agent", "accept", "cookie", "authorization",
            "content-type", "x-one", "x-two", "x-a-rather-long-name-for-a-field",
        ][..]).prop_map(|name| Bytes::from_static(name.as_bytes())),
        1 => vec(any::<u8>(), 0..12).prop_map(Bytes::from),
    ];
    let value = prop_oneof![
        4 => proptest::sample::select(&[
            "", "GET", "/", "1", "text/css", "a value of some length", "another, still longer value",
        ][..]).prop_map(|value| Bytes::from_static(value.as_bytes())),
        1 => vec(any::<u8>(), 0..60).prop_map(Bytes::from),
    ];
    (name, value, proptest::bool::weighted(0.1)).prop_map(|(name, value, sensitive)| Field {
        name,
        value,
        sensitive,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..SLOTS, vec(any_field(), 0..6)).prop_map(|(slot, fields)| Step::Send(slot, fields)),
        1 => vec(any_field(), 0..6).prop_map(Step::Abandon),
        3 => (1_usize..80).prop_map(Step::Insert),
        6 => (0..SLOTS).prop_map(Step::Arrive),
        4 => (1_usize..20).prop_map(Step::Acknowledge),
        1 => (0..SLOTS).prop_map(Step::Cancel),
    ]
}

fn any_settings() -> impl Strategy<Value = Settings> {
    let capacity = prop_oneof![Just(0), 0_u64..100, 100_u64..400, 400_u64..4096];
    (
        capacity,
        prop_oneof![0_usize..500, Just(65_536)],
        prop_oneof![1 => Just(0), 2 => 1_u64..4, 2 => Just(100)],
    )
        .prop_map(|(capacity, wanted, blocked)| Settings {
            wanted,
            capacity,
            blocked,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_exchange_is_decoded_completely(
        settings in any_settings(),
        steps in vec(any_step(), 0..160),
    ) {
        let mut world = World::new(settings);
        for step in steps {
            // The decoder sends instructions at random times.
            let spoken = matches!(step, Step::Acknowledge(_) | Step::Cancel(_));
            world.step(step);
            if spoken {
                world.acknowledging.extend(world.decoder.instructions().split());
            }
        }
        world.finish();
    }
}

/// The property above proves nothing if random exchanges never block, insert or evict.
#[test]
fn random_exchanges_block_insert_and_evict() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    let mut runner = TestRunner::deterministic();
    let (mut blocked, mut inserted, mut evicted, mut several) = (0, 0, 0, 0);
    for _ in 0..60 {
        let settings = any_settings().new_tree(&mut runner).unwrap().current();
        let steps = vec(any_step(), 100..160)
            .new_tree(&mut runner)
            .unwrap()
            .current();
        let mut world = World::new(settings);
        for step in steps {
            world.step(step);
            world
                .acknowledging
                .extend(world.decoder.instructions().split());
            several += usize::from(world.decoder.blocked_streams() > 1);
        }
        blocked += world.seen_blocked;
        let table = world.decoder.table();
        inserted += table.insert_count();
        evicted += table.dropped();
        world.finish();
    }
    assert!(
        blocked > 50 && several > 50,
        "{blocked} blocked, {several} several"
    );
    assert!(
        inserted > 300 && evicted > 100,
        "{inserted} inserted, {evicted} evicted"
    );
}
