//! An encoder and a decoder over three streams that are delayed, split and interleaved as the input
//! says: what is decoded is what was sent.
#![no_main]

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use clearway_http3::qpack::{Decoded, Decoder, Encoder, Field, FieldRef};
use libfuzzer_sys::fuzz_target;

#[derive(arbitrary::Arbitrary, Debug)]
enum Step<'a> {
    Send(u8, Vec<(&'a [u8], &'a [u8], bool)>),
    /// Sends the last section again on another stream, because repetition is rare in random bytes.
    Again(u8),
    Insert(u8),
    Arrive(u8),
    Acknowledge(u8),
}

type Fields = Vec<Field>;

struct World {
    encoder: Encoder,
    decoder: Decoder,
    blocked_limit: u64,
    inserting: VecDeque<u8>,
    acknowledging: VecDeque<u8>,
    /// Sections in flight, by stream.
    in_flight: BTreeMap<u64, VecDeque<(Bytes, Fields)>>,
    blocked: BTreeMap<u64, VecDeque<Fields>>,
}

fuzz_target!(|input: (u16, u16, u8, Vec<Step<'_>>)| {
    let (wanted, capacity, blocked_limit, steps) = input;
    let blocked_limit = u64::from(blocked_limit % 8);
    let mut world = World {
        encoder: Encoder::new(wanted.into()),
        decoder: Decoder::new(capacity.into(), blocked_limit),
        blocked_limit,
        inserting: VecDeque::new(),
        acknowledging: VecDeque::new(),
        in_flight: BTreeMap::new(),
        blocked: BTreeMap::new(),
    };
    world
        .encoder
        .set_peer_limits(capacity.into(), blocked_limit)
        .expect("the first SETTINGS");
    let mut last = Vec::new();
    for step in steps {
        match step {
            Step::Send(stream, fields) => {
                last = fields.iter().map(owned).collect();
                world.send(stream, &last);
            }
            Step::Again(stream) => world.send(stream, &last),
            Step::Insert(len) => world.insert(len.into()),
            Step::Arrive(stream) => world.arrive(stream.into()),
            Step::Acknowledge(len) => world.acknowledge(len.into()),
        }
    }
    world.finish();
});

fn owned(field: &(&[u8], &[u8], bool)) -> Field {
    let (name, value, sensitive) = *field;
    Field {
        name: Bytes::copy_from_slice(name),
        value: Bytes::copy_from_slice(value),
        sensitive,
    }
}

impl World {
    fn send(&mut self, stream: u8, fields: &[Field]) {
        let stream = stream.into();
        let mut section = Vec::new();
        let lines = fields.iter().map(Field::as_ref);
        self.encoder
            .encode(stream, lines.collect::<Vec<FieldRef<'_>>>(), &mut section);
        self.inserting.extend(self.encoder.instructions().split());
        self.in_flight
            .entry(stream)
            .or_default()
            .push_back((section.into(), fields.to_vec()));
    }

    fn insert(&mut self, len: usize) {
        let len = len.min(self.inserting.len());
        let bytes: Vec<u8> = self.inserting.drain(..len).collect();
        self.decoder.on_encoder_stream(&bytes).expect("valid input");
        while let Some(stream) = self.decoder.next_unblocked() {
            let decoded = self
                .decoder
                .resume(stream)
                .expect("valid input")
                .expect("it was unblocked");
            let waiting = self.blocked.get_mut(&stream).expect("it was blocked");
            assert_same_fields(decoded, &waiting.pop_front().expect("a blocked section"));
            if waiting.is_empty() {
                self.blocked.remove(&stream);
            }
        }
    }

    fn arrive(&mut self, stream: u64) {
        let Some((section, fields)) = self
            .in_flight
            .get_mut(&stream)
            .and_then(VecDeque::pop_front)
        else {
            return;
        };
        match self
            .decoder
            .decode(stream, section, 1 << 32)
            .expect("valid input")
        {
            Decoded::Blocked => self.blocked.entry(stream).or_default().push_back(fields),
            decoded @ (Decoded::Fields(_) | Decoded::TooLarge) => {
                assert!(!self.blocked.contains_key(&stream), "it overtook another");
                assert_same_fields(decoded, &fields);
            }
        }
        assert!(self.decoder.blocked_streams() <= self.blocked_limit);
    }

    fn acknowledge(&mut self, len: usize) {
        self.acknowledging
            .extend(self.decoder.instructions().split());
        let len = len.min(self.acknowledging.len());
        let bytes: Vec<u8> = self.acknowledging.drain(..len).collect();
        self.encoder.on_decoder_stream(&bytes).expect("valid input");
    }

    fn finish(mut self) {
        self.insert(usize::MAX);
        for stream in 0..=255 {
            while self
                .in_flight
                .get(&stream)
                .is_some_and(|waiting| !waiting.is_empty())
            {
                self.arrive(stream);
            }
        }
        self.acknowledge(usize::MAX);
        assert!(self.blocked.is_empty() && self.decoder.blocked_streams() == 0);
    }
}

/// Checks that the fields are equal, except that more of them may be sensitive.
fn assert_same_fields(decoded: Decoded, sent: &[Field]) {
    let Decoded::Fields(fields) = decoded else {
        panic!("{decoded:?}");
    };
    assert_eq!(fields.len(), sent.len());
    for (field, sent) in fields.iter().zip(sent) {
        assert_eq!((&field.name, &field.value), (&sent.name, &sent.value));
        assert!(field.sensitive || !sent.sensitive);
    }
}
