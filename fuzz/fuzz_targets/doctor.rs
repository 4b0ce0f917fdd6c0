//! Everything that the doctor reads, and the diagnosis of it: any bytes in any place.
#![no_main]

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use clearway_doctor::collector::{Depth, sample};
use clearway_doctor::source::process::{parse_schedstat, parse_socket_link, parse_stat};
use clearway_doctor::source::{Place, Source};
use clearway_doctor::{Diagnosis, Focus, Recording, hops, render};
use libfuzzer_sys::fuzz_target;

/// The counters without which there is no sample.
const SNMP: &[u8] = b"Udp: InDatagrams InErrors\nUdp: 1 0\n";

#[derive(arbitrary::Arbitrary, Debug)]
struct Input {
    places: Vec<(u8, Vec<u8>)>,
    later: Vec<(u8, Vec<u8>)>,
    text: String,
}

struct Fake(BTreeMap<Place, Vec<u8>>);

impl Fake {
    fn new(places: Vec<(u8, Vec<u8>)>) -> Self {
        let place = |number: u8| Place::ALL[usize::from(number) % Place::ALL.len()];
        let mut places: BTreeMap<Place, Vec<u8>> = places
            .into_iter()
            .map(|(number, bytes)| (place(number), bytes))
            .collect();
        places.entry(Place::Snmp).or_insert_with(|| SNMP.to_vec());
        Self(places)
    }
}

impl Source for Fake {
    fn read(&mut self, place: Place) -> io::Result<Vec<u8>> {
        self.0
            .get(&place)
            .cloned()
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fuzz_target!(|input: Input| {
    let _ = parse_stat(&input.text);
    let _ = parse_schedstat(&input.text);
    let _ = parse_socket_link(&input.text);
    if let Ok(samples) = hops::parse("fuzz", &input.text) {
        let _ = hops::PathReport::new(&samples, &hops::order(&samples, &[]));
    }
    let first = sample(&mut Fake::new(input.places), Duration::ZERO, Depth::Full);
    let last = sample(
        &mut Fake::new(input.later),
        Duration::from_secs(1),
        Depth::Full,
    );
    let (Ok(first), Ok(last)) = (first, last) else {
        return;
    };
    let recording = Recording {
        samples: vec![first, last],
        ..Recording::default()
    };
    let diagnosis = Diagnosis::new(&recording, &Focus::default());
    let text = render::text::text(&diagnosis, false);
    assert!(
        !text.contains('\u{1b}'),
        "text of the kernel's reaches the terminal as it is"
    );
    let _ = render::html::html(&recording, &diagnosis);
});
