//! `clearway lab diagnose`: what is wrong with a connection, from its qlog.

use std::fs::File;
use std::io::{self, BufReader, Write as _};
use std::path::Path;

use clearway_trace::qlog::Reader;
use clearway_trace::{Breakdown, Detectors, Finding, Profile, Sink as _};
use serde_json::json;

use super::args::Diagnose;
use super::report;
use crate::failure::{Failure, Kind};

/// What a trace holds.
struct Trace {
    title: String,
    events: u64,
    unreadable: u64,
    series: clearway_trace::Series,
    breakdown: Breakdown,
    findings: Vec<Finding>,
}

/// Reads a trace of any stack and says what is wrong.
///
/// # Errors
/// If the file cannot be read or is no qlog.
pub(super) fn command(args: &Diagnose) -> Result<(), Failure> {
    let trace = read(&args.file)?;
    let mut out = io::stdout().lock();
    if args.json {
        let object = json!({
            "file": args.file,
            "events": trace.events,
            "unreadable_records": trace.unreadable,
            "findings": trace.findings,
        });
        writeln!(out, "{object}")?;
    } else {
        for finding in &trace.findings {
            writeln!(out, "{}: {}", finding.detector, finding.sentence())?;
        }
        if trace.findings.is_empty() {
            writeln!(out, "Nothing is wrong in {} events.", trace.events)?;
        }
        if trace.unreadable > 0 {
            say!("lab: {} records could not be read", trace.unreadable);
        }
    }
    let Some(file) = &args.report else {
        return Ok(());
    };
    let facts = [("events".to_owned(), trace.events.to_string())];
    report::write(
        file,
        &report::Page {
            title: &trace.title,
            facts: &facts,
            series: &trace.series,
            breakdown: &trace.breakdown,
            findings: &trace.findings,
        },
    )
}

fn read(file: &Path) -> Result<Trace, Failure> {
    let wrong = |error: &dyn std::error::Error| {
        let what = format!("cannot read {}", file.display());
        Failure::caused(Kind::Arguments, what, error)
    };
    let input = File::open(file).map_err(|error| wrong(&error))?;
    let mut reader = Reader::new(BufReader::new(input)).map_err(|error| wrong(&error))?;
    let profile = Profile {
        role: reader.header().role,
        ..Profile::default()
    };
    let mut detectors = Detectors::new(&profile);
    let mut series = clearway_trace::Series::new();
    let mut breakdown = Breakdown::new();
    let (mut events, mut last) = (0, 0);
    for event in reader.by_ref() {
        let event = event.map_err(|error| wrong(&error))?;
        events += 1;
        last = event.time;
        detectors.event(&event);
        series.event(&event);
        breakdown.event(&event);
    }
    breakdown.until(last);
    Ok(Trace {
        title: reader
            .header()
            .title
            .clone()
            .unwrap_or_else(|| file.display().to_string()),
        events,
        unreadable: reader.problems().bad_records,
        series,
        breakdown,
        findings: detectors.finish(last),
    })
}
