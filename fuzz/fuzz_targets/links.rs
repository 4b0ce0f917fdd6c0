//! Link specifications: a parsed specification prints text that parses to the same.
#![no_main]

use std::fmt::{Debug, Display};
use std::str::FromStr;

use clearway_links::{
    Aqm, Direction, Ecn, LinkConfig, Packet, Path, Policer, Probability, Rate, Slots, Span, Thin,
    Time,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    round_trip::<Rate>(text);
    round_trip::<Span>(text);
    round_trip::<Probability>(text);
    round_trip::<Aqm>(text);
    round_trip::<Policer>(text);
    round_trip::<Slots>(text);
    round_trip::<Thin>(text);
    if let Some(config) = round_trip::<LinkConfig>(text) {
        let mut path = Path::symmetric(&config, 1);
        let (from, to) = (([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into());
        for at in 0..8u8 {
            let packet = Packet::new(from, to, vec![0; 1200]).with_ecn(Ecn::from_bits(at));
            let _ = path.send(Time(u64::from(at)), Direction::Up, packet);
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
    assert_eq!(
        again.ok().as_ref(),
        Some(&value),
        "{text:?} printed {printed:?}"
    );
    Some(value)
}
