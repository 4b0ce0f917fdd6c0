//! Link specifications: what parses prints text that parses to the same.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use clearway_links::{Direction, LinkConfig, Packet, Path, Probability, Rate, Span, Time};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    round_trip::<Rate>(text);
    round_trip::<Span>(text);
    round_trip::<Probability>(text);
    if let Some(config) = round_trip::<LinkConfig>(text) {
        let mut path = Path::symmetric(&config, 1);
        let (from, to) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into());
        for at in 0..8 {
            let _ = path.send(Time(at), Direction::Up, Packet::new(from, to, vec![0; 1200]));
        }
        for _ in 0..64 {
            let Some(next) = path.next_event() else { break };
            while path.poll(next).is_some() {}
        }
    }
});

fn round_trip<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Option<T> {
    let value: T = text.parse().ok()?;
    let printed = value.to_string();
    let again = printed.parse::<T>();
    assert_eq!(again.ok().as_ref(), Some(&value), "{text:?} printed {printed:?}");
    Some(value)
}
