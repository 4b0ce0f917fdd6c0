//! `clearway lab diagnose`: diagnoses a connection from its qlog.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use clearway_trace::event::Event;
use clearway_trace::qlog::Reader;
use clearway_trace::{Breakdown, Detector, Detectors, Finding, Profile, Sink as _};
use serde_json::json;

use super::args::Diagnose;
use super::order::{EventSorter, OutOfOrder};
use super::report;
use crate::failure::{Failure, Kind};
use crate::output;
use crate::printable;

/// Maximum length of a finding that is printed, in characters: it may contain text from the trace.
const SENTENCE: usize = 2_000;
/// Maximum number of findings of one detector that are printed: trouble that recurs in each round
/// trip would hide what the other detectors found.
const MOST_OF_A_KIND: usize = 3;

/// The diagnosis of a file.
struct Diagnosis {
    title: String,
    events: u64,
    /// Events of other protocols.
    other: u64,
    /// Records that are not events.
    unreadable: u64,
    /// Events that are earlier than one before them.
    earlier: u64,
    /// The content of the report: the first trace.
    shown: Option<TraceAnalysis>,
    findings: Vec<Finding>,
}

/// The analysis of one trace.
struct TraceAnalysis {
    detectors: Detectors,
    series: clearway_trace::Series,
    breakdown: Breakdown,
    ordered: EventSorter,
    last: u64,
}

/// Reads a trace of any stack and prints its problems.
///
/// # Errors
/// If the file cannot be read, is not qlog or has no events, or its events are too far out of
/// order.
pub(super) fn command(args: &Diagnose) -> Result<(), Failure> {
    let found = read(&args.file)?;
    warn(&found);
    output::print(|out| write(args, &found, out))?;
    let (Some(file), Some(shown)) = (&args.report, &found.shown) else {
        return Ok(());
    };
    let facts = [("events".to_owned(), found.events.to_string())];
    report::write(
        file,
        &report::ReportPage {
            title: &found.title,
            facts: &facts,
            series: &shown.series,
            breakdown: &shown.breakdown,
            findings: &found.findings,
        },
    )
}

/// Prints warnings about problems that make the findings less certain.
fn warn(found: &Diagnosis) {
    if found.unreadable > 0 {
        say!(
            "lab: warning: {} records could not be read",
            found.unreadable
        );
    }
    if found.earlier > 0 {
        say!(
            "lab: warning: {} events were out of order and have been sorted",
            found.earlier
        );
    }
}

fn write(args: &Diagnose, found: &Diagnosis, out: &mut impl Write) -> io::Result<()> {
    if args.json {
        let object = json!({
            "file": args.file,
            "events": found.events,
            "unreadable_records": found.unreadable,
            "backward_times": found.earlier,
            "findings": found.findings,
        });
        output::write_json(&mut *out, &object)?;
        return writeln!(out);
    }
    let mut counts: BTreeMap<Detector, usize> = BTreeMap::new();
    for finding in &found.findings {
        let count = counts.entry(finding.detector).or_default();
        *count += 1;
        if *count <= MOST_OF_A_KIND {
            let sentence = finding.sentence();
            let sentence = printable::short(&sentence, SENTENCE);
            writeln!(out, "{}: {sentence}", finding.detector)?;
        }
    }
    for (detector, count) in counts {
        if let Some(more) = count.checked_sub(MOST_OF_A_KIND).filter(|more| *more > 0) {
            writeln!(out, "{detector}: {more} more; --json lists all")?;
        }
    }
    if found.findings.is_empty() {
        writeln!(out, "No problems found in {} events.", found.events)?;
    }
    Ok(())
}

fn read(file: &Path) -> Result<Diagnosis, Failure> {
    let name = file.display().to_string();
    let wrong = |error: &dyn std::error::Error| {
        Failure::caused(Kind::Arguments, format!("cannot read {name}"), error)
    };
    let input = File::open(file).map_err(|error| wrong(&error))?;
    let mut reader = Reader::new(BufReader::new(input)).map_err(|error| wrong(&error))?;
    let mut found = look(&mut reader, &wrong)?;
    let problems = reader.problems();
    found.other = problems.other_events;
    found.unreadable = problems.unreadable();
    found.earlier = problems.earlier_events;
    found.title = reader
        .header()
        .title
        .clone()
        .unwrap_or_else(|| name.clone());
    if found.events > found.other {
        return Ok(found);
    }
    let mut message = format!("no qlog events in {name}");
    if found.other > 0 {
        message.push_str(&format!(", but {} events of other protocols", found.other));
    }
    if found.unreadable > 0 {
        message.push_str(&format!("; {} records could not be read", found.unreadable));
    }
    Err(Failure::new(Kind::Arguments, message))
}

/// Reads to the end. A file may contain several traces, each with times of its own: they are
/// analysed one by one.
fn look<R: Read>(
    reader: &mut Reader<R>,
    wrong: &dyn Fn(&dyn std::error::Error) -> Failure,
) -> Result<Diagnosis, Failure> {
    let mut found = Diagnosis {
        title: String::new(),
        events: 0,
        other: 0,
        unreadable: 0,
        earlier: 0,
        shown: None,
        findings: Vec::new(),
    };
    let mut traces = reader.header().traces;
    let mut looked = TraceAnalysis::new(reader);
    while let Some(event) = reader.next() {
        let event = event.map_err(|error| wrong(&error))?;
        if reader.header().traces != traces {
            traces = reader.header().traces;
            let before = core::mem::replace(&mut looked, TraceAnalysis::new(reader));
            before.conclude(&mut found);
        }
        found.events += 1;
        looked.take(event).map_err(|late| wrong(&late))?;
    }
    looked.conclude(&mut found);
    Ok(found)
}

impl TraceAnalysis {
    fn new<R: Read>(reader: &Reader<R>) -> Self {
        let profile = Profile {
            role: reader.header().role,
            ..Profile::default()
        };
        Self {
            detectors: Detectors::new(&profile),
            series: clearway_trace::Series::new(),
            breakdown: Breakdown::new(),
            ordered: EventSorter::default(),
            last: 0,
        }
    }

    fn take(&mut self, event: Event) -> Result<(), OutOfOrder> {
        if let Some(event) = self.ordered.push(event)? {
            self.see(&event);
        }
        Ok(())
    }

    fn see(&mut self, event: &Event) {
        self.last = event.time;
        self.detectors.event(event);
        self.series.event(event);
        self.breakdown.event(event);
    }

    /// Ends the trace.
    fn conclude(mut self, found: &mut Diagnosis) {
        while let Some(event) = self.ordered.pop() {
            self.see(&event);
        }
        self.breakdown.until(self.last);
        let detectors =
            core::mem::replace(&mut self.detectors, Detectors::new(&Profile::default()));
        found.findings.extend(detectors.finish(self.last));
        found.shown.get_or_insert(self);
    }
}
