//! The `clearway diagnose` command.

use std::io::{self, Write};
use std::path::Path;

use clearway_trace::Examination;
use clearway_trace::capture::KeyLog;
use clearway_trace::diagnosis::{Difference, compare};
use serde_json::{Value, json};

use super::Args;
use super::text;
use crate::failure::{Failure, Kind};
use crate::output;
use crate::report;
use crate::traces::{TraceFile, files, load};

/// Diagnoses the traces, the worst first.
///
/// # Errors
/// If none of them can be read; otherwise the first failure is printed and the rest diagnosed.
pub(crate) fn command(args: &Args) -> Result<(), Failure> {
    let secrets = args.secrets.load()?;
    let reference = |path| reference(path, &secrets);
    let against = args.against.as_deref().map(reference).transpose()?;
    let paths = files(&args.traces)?;
    let mut loaded = Vec::new();
    let mut first_failure = None;
    for path in &paths {
        match load(path, &secrets) {
            Ok(file) => loaded.push(file),
            Err(failure) if paths.len() == 1 => return Err(failure),
            Err(failure) => {
                say!("diagnose: {failure}");
                first_failure.get_or_insert(failure);
            }
        }
    }
    for file in &loaded {
        for warning in file.warnings() {
            say!("diagnose: warning: {}: {warning}", file.name);
        }
    }
    loaded.sort_by_key(|file| core::cmp::Reverse(worst(file)));
    output::print(|out| write(args, &loaded, against.as_ref(), out))?;
    if let Some(page) = &args.report {
        report::write(page, &loaded)?;
    }
    match first_failure {
        None => Ok(()),
        Some(failure) => Err(Failure::new(
            failure.kind,
            format!(
                "{} of {} files could not be read; first: {failure}",
                paths.len() - loaded.len(),
                paths.len()
            ),
        )),
    }
}

/// The severity of the worst problem in a file.
fn worst(file: &TraceFile) -> Option<clearway_trace::Severity> {
    let severity = |it: &Examination| it.diagnosis.severity;
    file.traces.iter().filter_map(severity).max()
}

/// The trace to compare with.
fn reference(path: &Path, secrets: &KeyLog) -> Result<Examination, Failure> {
    let name = path.display();
    let none = || Failure::new(Kind::Arguments, format!("no trace in {name}"));
    load(path, secrets)?
        .traces
        .into_iter()
        .next()
        .ok_or_else(none)
}

fn write(
    args: &Args,
    loaded: &[TraceFile],
    against: Option<&Examination>,
    out: &mut impl Write,
) -> io::Result<()> {
    for (at, file) in loaded.iter().enumerate() {
        let differences = against.map(|there| {
            let traces = file.traces.iter();
            traces.map(|here| compare(here, there)).collect::<Vec<_>>()
        });
        if args.json {
            output::write_json(&mut *out, &object(file, differences.as_deref()))?;
            writeln!(out)?;
            continue;
        }
        if at > 0 {
            writeln!(out)?;
        }
        text::write(file, loaded.len() > 1, differences.as_deref(), out)?;
    }
    Ok(())
}

/// A file as JSON.
fn object(file: &TraceFile, differences: Option<&[Vec<Difference>]>) -> Value {
    let traces = file.traces.iter().enumerate().map(|(at, it)| {
        let mut trace = json!({
            "headline": it.diagnosis.headline,
            "severity": it.diagnosis.severity,
            "problems": it.diagnosis.problems,
            "totals": it.totals,
            "limited_by": it.breakdown.to_string(),
        });
        if let Some(found) = differences.and_then(|all| all.get(at)) {
            trace["differences"] = json!(found);
        }
        trace
    });
    let traces: Vec<Value> = traces.collect();
    let findings: Vec<_> = file.traces.iter().flat_map(|it| &it.findings).collect();
    json!({
        "file": file.name,
        "events": file.events,
        "unreadable_records": file.problems.unreadable(),
        "unreadable_offsets": file.problems.offsets,
        "notes": file.notes,
        "backward_times": file.problems.earlier_events,
        "broken": file.broken,
        "traces": traces,
        "findings": findings,
    })
}
