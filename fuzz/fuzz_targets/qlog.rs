//! The qlog reader with arbitrary bytes: it terminates, takes no more memory than it has read, and
//! the events that it understood round-trip.
#![no_main]

use clearway_trace::detect::{Profile, examine};
use clearway_trace::event::{Event, EventData};
use clearway_trace::qlog::{Description, Reader, Writer};
use clearway_trace::{Breakdown, Series, Sink};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(mut reader) = Reader::new(data) else {
        return;
    };
    let events: Vec<Event> = (&mut reader)
        .map(|event| event.expect("memory does not fail"))
        .collect();
    assert_eq!(reader.offset(), data.len() as u64);
    let problems = reader.problems();
    assert!(problems.offsets.iter().all(|at| *at <= data.len() as u64));
    let findings = examine(&Profile::default(), &events);
    assert!(findings.iter().all(|finding| finding.t0 <= finding.t1));
    let breakdown = Breakdown::of(&events);
    let spent: u64 = breakdown.shares().iter().map(|(_, spent)| spent).sum();
    assert_eq!(spent, breakdown.life());
    let _ = Series::of(&events);

    let mut writer = Writer::new(Vec::new(), &Description::default());
    let mut written = 0;
    for event in &events {
        // Events of other implementations are not written.
        if !matches!(event.data, EventData::Other { .. }) {
            writer.event(event);
            written += 1;
        }
    }
    if writer.stats().dropped > 0 {
        return;
    }
    let text = writer.finish();
    let mut again = Reader::new(&text[..]).expect("ours");
    assert_eq!((&mut again).count(), written);
    assert_eq!(again.problems().bad_records, 0);
});
