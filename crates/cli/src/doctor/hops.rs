//! `clearway doctor path`: which hop loses.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clearway_doctor::hops::{PathReport, order, parse};

use super::args::PathArgs;
use super::command::cannot_see;
use crate::failure::{Failure, Kind};
use crate::output::{print, print_json};
use crate::printable;

/// Largest file that is read: a day of a thousand connections is some gigabytes and belongs elsewhere.
const LARGEST: u64 = 1 << 30;

pub(super) fn path(args: &PathArgs) -> Result<ExitCode, Failure> {
    let mut samples = Vec::new();
    for file in &args.files {
        let text = read(file)?;
        let name = file.display().to_string();
        samples.extend(parse(&name, &text).map_err(|error| cannot_see(&error))?);
    }
    let report = PathReport::new(&samples, &order(&samples, &args.hops));
    if args.json {
        print_json(&report)?;
    } else {
        print(|out| {
            writeln!(out, "{}", printable::line(&report.verdict))?;
            for (index, segment) in report.segments.iter().enumerate() {
                let mark = if report.worst == Some(index) {
                    "LOSING"
                } else {
                    "ok    "
                };
                let way = format!("{} -> {}", segment.from, segment.to);
                let (sent, arrived) = (segment.sent, segment.arrived);
                let loss = segment.loss() * 100.0;
                let way = printable::line(&way);
                writeln!(
                    out,
                    "  {mark}  {way}: sent {sent}, arrived {arrived}, lost {loss:.2} %"
                )?;
            }
            if report.unmatched > 0 {
                writeln!(
                    out,
                    "  {} connections were not seen by every hop",
                    report.unmatched
                )?;
            }
            Ok(())
        })?;
    }
    Ok(match (report.worst, report.segments.is_empty()) {
        (Some(_), _) => ExitCode::from(1),
        (None, true) => ExitCode::from(2),
        (None, false) => ExitCode::SUCCESS,
    })
}

fn read(file: &Path) -> Result<String, Failure> {
    let cannot = |why: String| {
        Failure::new(
            Kind::Arguments,
            format!("cannot read {}: {why}", file.display()),
        )
    };
    let size = std::fs::metadata(file)
        .map_err(|error| cannot(error.to_string()))?
        .len();
    if size > LARGEST {
        return Err(cannot(format!(
            "{size} bytes are more than 1 GiB; cut it by its lines"
        )));
    }
    std::fs::read_to_string(file).map_err(|error| cannot(error.to_string()))
}
