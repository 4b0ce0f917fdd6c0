//! `clearway lab merge`.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clearway_lab::hunt::{HuntCase, Journal, distinct};
use clearway_lab::run::{Row, Shard, Speed, judge};
use clearway_lab::scenario::Scenario;

use super::args::Merge;
use super::batch::{BatchCommand, BatchHeader, BatchLine, VERSION};
use super::cases::report_cases;
use super::choose::{self, PlannedRuns, SelectedScenario};
use super::run::{self, RunResults};
use super::{sweep, table, verdict};
use crate::failure::{Failure, Kind};
use crate::output;

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Arguments, message)
}

/// Joins the results of the parts of a batch.
///
/// # Errors
/// If a file is no part of the same batch, if one is missing, or as the whole batch would have
/// failed.
pub(super) fn command(args: &Merge) -> Result<(), Failure> {
    let mut texts = Vec::new();
    for file in &args.files {
        let text = std::fs::read_to_string(file).map_err(|error| {
            Failure::caused(
                Kind::Arguments,
                format!("cannot read {}", file.display()),
                &error,
            )
        })?;
        texts.push((file.as_path(), text));
    }
    let hunt = texts
        .iter()
        .filter(|(_, text)| text.starts_with("{\"hunt\":"))
        .count();
    match hunt {
        0 => batch(args, &texts),
        _ if hunt == texts.len() => hunts(args, &texts),
        _ => Err(wrong(
            "the files are of different commands; expected the results of one run, sweep or hunt",
        )),
    }
}

/// One part, as read.
struct Part<'a> {
    file: &'a Path,
    header: BatchHeader,
    rows: Vec<(u64, Row)>,
}

impl<'a> Part<'a> {
    fn read(file: &'a Path, text: &str) -> Result<Self, Failure> {
        let name = file.display();
        let (mut header, mut rows, mut end) = (None, Vec::new(), None);
        for (number, line) in (1..).zip(text.lines()) {
            let line = serde_json::from_str(line).map_err(|error| {
                wrong(format!(
                    "{name}:{number}: not a line of results: {error}; expected a file that \
                     --shard with --results has written"
                ))
            })?;
            match line {
                BatchLine::Batch(first) if number == 1 => header = Some(first),
                BatchLine::Batch(_) => {
                    return Err(wrong(format!(
                        "{name}:{number}: a second batch in one file"
                    )));
                }
                BatchLine::Row { index, row } => rows.push((index, row)),
                BatchLine::End { runs } => end = Some(runs),
            }
        }
        let Some(header) = header else {
            return Err(wrong(format!(
                "{name} has no results; expected a file that --shard with --results has written"
            )));
        };
        if header.version != VERSION {
            let found = header.version;
            return Err(wrong(format!(
                "{name} has results of version {found}; expected {VERSION}: use the program \
                 that wrote them"
            )));
        }
        if end != Some(rows.len() as u64) {
            return Err(wrong(format!(
                "{name} is incomplete: shard {} was interrupted after {} runs; run it again",
                header.shard,
                rows.len()
            )));
        }
        Ok(Self { file, header, rows })
    }
}

/// Joins rows, and judges them as if one machine had done them all.
fn batch(args: &Merge, texts: &[(&Path, String)]) -> Result<(), Failure> {
    let mut parts = Vec::new();
    for (file, text) in texts {
        parts.push(Part::read(file, text)?);
    }
    let Some(first) = parts.first() else {
        return Err(wrong("no files to merge"));
    };
    let header = first.header.clone();
    complete(&parts)?;
    let mut rows: BTreeMap<u64, Row> = BTreeMap::new();
    for part in parts {
        for (index, row) in part.rows {
            if rows.insert(index, row).is_some() {
                let name = part.file.display();
                return Err(wrong(format!("{name}: run {index} is in two files")));
            }
        }
    }
    let planned = plan(&header)?;
    if rows.len() != planned.plan.tasks.len() || header.runs != rows.len() as u64 {
        let (found, expected) = (rows.len(), planned.plan.tasks.len());
        return Err(wrong(format!(
            "the files have {found} runs, but this program plans {expected}: merge with the \
             program that ran them ({})",
            header.program
        )));
    }
    if args.json {
        for row in rows.values() {
            output::print_json(row)?;
        }
    }
    let ran = judged(&planned, rows);
    if !args.json {
        table::print(&ran.groups)?;
    }
    for (name, reason) in &planned.plan.skipped {
        say!("lab: skipped: {name}: {reason}");
    }
    match &header.command {
        BatchCommand::Run(run) => verdict::verdict(&ran, &run.extent, run.specimen.as_deref()),
        BatchCommand::Sweep(own) => sweep::verdict(&ran, own),
    }
}

/// Checks that the parts are all parts of one batch.
fn complete(parts: &[Part<'_>]) -> Result<(), Failure> {
    let mut seen: BTreeMap<u64, &Path> = BTreeMap::new();
    let mut count = None;
    for part in parts {
        let name = part.file.display();
        let own = BatchHeader {
            shard: parts[0].header.shard.clone(),
            ..part.header.clone()
        };
        if own != parts[0].header {
            let first = parts[0].file.display();
            return Err(wrong(format!(
                "{name} and {first} are not of one batch: the program, the options or the \
                 scenarios differ"
            )));
        }
        let shard: Shard = part
            .header
            .shard
            .parse()
            .map_err(|error| wrong(format!("{name}: {error}")))?;
        if *count.get_or_insert(shard.count()) != shard.count() {
            return Err(wrong(format!(
                "{name}: the files are of different numbers of shards"
            )));
        }
        if let Some(other) = seen.insert(shard.index(), part.file) {
            let other = other.display();
            return Err(wrong(format!("{name} and {other} are both shard {shard}")));
        }
    }
    let count = count.unwrap_or(1);
    let missing: Vec<String> = (0..count)
        .filter(|index| !seen.contains_key(index))
        .map(|index| format!("{}/{count}", index + 1))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(wrong(format!(
        "results are missing: shard {}",
        missing.join(", ")
    )))
}

/// The plan that the parts are of.
fn plan(header: &BatchHeader) -> Result<PlannedRuns, Failure> {
    let mut chosen = Vec::new();
    for each in &header.scenarios {
        let scenario = Scenario::parse(&each.origin, &each.text);
        chosen.push(SelectedScenario {
            origin: each.origin.clone(),
            scenario: scenario.map_err(|error| wrong(error.to_string()))?,
        });
    }
    match &header.command {
        BatchCommand::Run(args) => run::plan(&chosen, args),
        BatchCommand::Sweep(args) => choose::plan(&chosen, &args.extent),
    }
}

fn judged(planned: &PlannedRuns, rows: BTreeMap<u64, Row>) -> RunResults {
    let mut groups = Vec::new();
    let mut origins = Vec::new();
    let mut of_case: Vec<Row> = Vec::new();
    let tasks = &planned.plan.tasks;
    for (position, (task, row)) in tasks.iter().zip(rows.into_values()).enumerate() {
        of_case.push(row);
        if tasks
            .get(position + 1)
            .is_none_or(|next| next.case != task.case)
        {
            let case = &planned.plan.cases[task.case];
            groups.push(judge(case, core::mem::take(&mut of_case)));
            origins.push(planned.origins[task.case].clone());
        }
    }
    RunResults {
        groups,
        origins,
        speed: Speed {
            took: Duration::ZERO,
            ..Speed::default()
        },
    }
}

/// Joins the cases of several hunts.
fn hunts(args: &Merge, texts: &[(&Path, String)]) -> Result<(), Failure> {
    let (mut cases, mut runs): (Vec<HuntCase>, usize) = (Vec::new(), 0);
    for (file, text) in texts {
        let journal = Journal::parse(&file.display().to_string(), text).map_err(wrong)?;
        runs += journal.runs.len();
        cases.extend(journal.cases);
    }
    let found = cases.len();
    let cases = distinct(cases);
    let all: Vec<&HuntCase> = cases.iter().collect();
    report_cases(&all, args.cases.as_deref(), args.json)?;
    let files = texts.len();
    say!(
        "lab: {runs} runs in {files} files: {found} cases, {} different ones",
        cases.len()
    );
    if cases.is_empty() {
        return Ok(());
    }
    let message = format!("{} cases outside of the envelope", cases.len());
    Err(Failure::new(Kind::Other, message))
}
