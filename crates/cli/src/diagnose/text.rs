//! A diagnosis for people.

use std::io::{self, Write};

use clearway_trace::Examination;
use clearway_trace::diagnosis::{Difference, Problem};

use crate::printable;
use crate::traces::TraceFile;

/// Maximum length of a line, in characters: it may contain text from the trace.
const LONGEST: usize = 2_000;
/// Maximum number of problems in full.
const MOST_PROBLEMS: usize = 6;

/// Writes the diagnosis of each trace in a file.
pub(super) fn write(
    file: &TraceFile,
    named: bool,
    differences: Option<&[Vec<Difference>]>,
    out: &mut impl Write,
) -> io::Result<()> {
    for (at, it) in file.traces.iter().enumerate() {
        if named || file.traces.len() > 1 {
            let number = if file.traces.len() > 1 {
                format!(", trace {}", at + 1)
            } else {
                String::new()
            };
            line(out, &format!("{}{number}", file.name))?;
        }
        examination(it, file.is_capture, out)?;
        if let Some(found) = differences.and_then(|all| all.get(at)) {
            against(found, out)?;
        }
    }
    Ok(())
}

fn line(out: &mut impl Write, text: &str) -> io::Result<()> {
    writeln!(out, "{}", printable::short(text, LONGEST))
}

fn examination(it: &Examination, captured: bool, out: &mut impl Write) -> io::Result<()> {
    line(out, &it.diagnosis.headline)?;
    line(out, &summary(it, captured))?;
    for (at, found) in it.diagnosis.problems.iter().enumerate() {
        if at == MOST_PROBLEMS {
            let more = it.diagnosis.problems.len() - at;
            return line(out, &format!("\n{more} more; --json lists all"));
        }
        problem(at + 1, found, out)?;
    }
    Ok(())
}

/// What the trace is about, in one line.
fn summary(it: &Examination, captured: bool) -> String {
    let how = if captured {
        "as seen by"
    } else {
        "recorded by"
    };
    let totals = &it.totals;
    let mut parts = Vec::new();
    parts.extend(totals.role.map(|role| format!("{how} the {}", role.name())));
    parts.extend(totals.controller.clone());
    parts.push(format!("{} s", seconds(totals.duration)));
    parts.push(format!("{} events", totals.events));
    parts.push(format!(
        "{} packets sent, {} lost, {} probe timeouts",
        totals.packets_sent, totals.packets_lost, totals.probe_timeouts
    ));
    let limited = it.breakdown.to_string();
    if !limited.is_empty() {
        parts.push(format!("limited by: {limited}"));
    }
    parts.extend(totals.end.clone());
    format!("({})", parts.join("; "))
}

fn problem(number: usize, it: &Problem, out: &mut impl Write) -> io::Result<()> {
    let (t0, t1) = (seconds(it.t0), seconds(it.t1));
    let severity = format!("{:?}", it.severity).to_lowercase();
    line(out, "")?;
    line(out, &format!("{number}. {}", it.summary))?;
    let times = match it.occurrences {
        1 => String::new(),
        count => format!(", found {count} times"),
    };
    let found = format!("{} ({severity}), {t0} s to {t1} s{times}", it.detector);
    line(out, &format!("   found by:  {found}"))?;
    if let Some(cause) = &it.cause {
        line(
            out,
            &format!("   cause:     {} ({})", cause.summary, cause.detector),
        )?;
        line(out, &format!("   mechanism: {}", cause.mechanism))?;
    } else {
        line(out, &format!("   mechanism: {}", it.mechanism))?;
    }
    line(out, &format!("   longest:   {}", it.longest))?;
    for (at, moment) in it.evidence.iter().enumerate() {
        let name = if at == 0 { "evidence:" } else { "" };
        let time = format!(
            "{}.{:06}",
            moment.time / 1_000_000_000,
            moment.time / 1_000 % 1_000_000
        );
        line(out, &format!("   {name:<10} {time} s  {}", moment.text))?;
    }
    line(out, &format!("   try:       {}", it.remedy))
}

fn against(found: &[Difference], out: &mut impl Write) -> io::Result<()> {
    line(out, "")?;
    if found.is_empty() {
        return line(out, "No differences from the other trace.");
    }
    line(out, "Differences from the other trace:")?;
    for difference in found {
        line(out, &format!("   {difference}"))?;
    }
    Ok(())
}

/// Nanoseconds as seconds with three decimal places.
fn seconds(nanos: u64) -> String {
    format!("{}.{:03}", nanos / 1_000_000_000, nanos / 1_000_000 % 1_000)
}
