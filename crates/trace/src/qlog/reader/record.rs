//! Decoding of one record.

use super::header::Header;
use super::reconstruct::Hints;
use super::value::{Tape, parse};
use crate::event::Event;

/// What a record is.
#[derive(Debug)]
pub(super) enum Decoded {
    /// Not JSON.
    Bad,
    /// JSON, but not a valid event.
    Senseless,
    /// An event, with its time as in the file.
    Event(Event, Hints),
}

/// Decodes a record. `tape` is only scratch space.
pub(super) fn decode<'r>(tape: &mut Tape<'r>, record: &'r [u8], header: &Header) -> Decoded {
    let Some(value) = parse(tape, record) else {
        return Decoded::Bad;
    };
    match super::decode::event(value, header) {
        Some(event) => Decoded::Event(event, Hints::of(value)),
        None => Decoded::Senseless,
    }
}
