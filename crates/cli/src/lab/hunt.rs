//! `clearway lab hunt`.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clearway::CongestionController;
use clearway_lab::hunt::{
    Bounds, Envelopes, Hunt, HuntCase, HuntSettings, JOURNAL_VERSION, Journal, JournalHeader,
    JournalLine, KnownCases, LabEvaluator, Remembering,
};
use clearway_lab::run::Shard;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::time::{ClockId, clock_gettime};

use super::args::HuntArgs;
use super::cases::report_cases;
use crate::failure::{Failure, Kind};
use crate::terminal;

/// Evaluations of a hunt without a budget.
const EVALUATIONS: u64 = 2_000;

/// Evaluations of the size for continuous integration, over all controllers.
const CI_EVALUATIONS: u64 = 240;

/// How different the seeds of shards are.
const SHARD_STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

fn wrong(message: impl Into<String>) -> Failure {
    Failure::new(Kind::Arguments, message)
}

/// Searches for the networks in which controllers do worst.
///
/// # Errors
/// If the arguments make no sense, a file cannot be used, or a case was found that is not known.
pub(super) fn command(args: &HuntArgs) -> Result<(), Failure> {
    let setup = Setup::new(args)?;
    let mut evaluator = setup.evaluator(args)?;
    let (journal, out) = journal(args, &setup.header)?;
    let mut remembering = Remembering::new(&mut evaluator, journal, out);
    let mut hunts: Vec<Hunt> = setup.hunts(args);
    let bar = progress();
    terminal::show(&bar);
    search(args, &setup, &mut hunts, &mut remembering, &bar);
    terminal::clear();
    let (fresh, broken) = (remembering.fresh, remembering.broken.take());
    conclude(args, &hunts, fresh)?;
    if let (Some(error), Some(file)) = (broken, &args.results) {
        let what = format!("cannot write {}", file.display());
        return Err(Failure::caused(Kind::Output, what, &error));
    }
    let new: usize = hunts.iter().map(|hunt| hunt.cases().len()).sum();
    match new {
        0 => Ok(()),
        1 => Err(Failure::new(Kind::Other, "1 case outside of the envelope")),
        _ => Err(Failure::new(
            Kind::Other,
            format!("{new} cases outside of the envelope"),
        )),
    }
}

/// What a hunt is started with.
struct Setup {
    controllers: Vec<String>,
    envelopes: Envelopes,
    bounds: Bounds,
    known: KnownCases,
    header: JournalHeader,
}

/// Reads a file that an option names.
fn text(option: &str, file: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(file).map_err(|error| {
        let what = format!("{option}: cannot read {}", file.display());
        Failure::caused(Kind::Arguments, what, &error)
    })
}

/// Reads a file that an option names, or returns the default.
fn given<T>(
    option: &str,
    file: Option<&PathBuf>,
    default: impl FnOnce() -> T,
    parse: impl FnOnce(&str, &str) -> Result<T, String>,
) -> Result<T, Failure> {
    let Some(file) = file else {
        return Ok(default());
    };
    parse(&file.display().to_string(), &text(option, file)?).map_err(wrong)
}

impl Setup {
    fn new(args: &HuntArgs) -> Result<Self, Failure> {
        let bounds = given(
            "--bounds",
            args.bounds.as_ref(),
            Bounds::default,
            Bounds::parse,
        )?;
        let envelopes = given(
            "--envelopes",
            args.envelopes.as_ref(),
            Envelopes::default,
            Envelopes::parse,
        )?;
        let known = given(
            "--known",
            args.known.as_ref(),
            KnownCases::ours,
            KnownCases::parse,
        )?;
        let controllers = match args.controller.is_empty() {
            true => CongestionController::NAMES
                .iter()
                .copied()
                .map(str::to_owned)
                .collect(),
            false => args.controller.clone(),
        };
        for name in &controllers {
            if !clearway_lab::run::available(name) {
                let all = CongestionController::NAMES.join(", ");
                return Err(wrong(format!(
                    "unknown controller {name:?}; expected one of {all}"
                )));
            }
            envelopes.of(name).map_err(wrong)?;
        }
        #[cfg(not(feature = "specimens"))]
        if let Some(name) = &args.specimen {
            let _ = super::specimen::bug(name)?;
        }
        let settings = format!("{bounds:?} {envelopes:?} {known:?} {:?}", args.specimen);
        let header = JournalHeader {
            version: JOURNAL_VERSION,
            program: env!("CARGO_PKG_VERSION").to_owned(),
            controllers: controllers.clone(),
            seed: args.seed,
            // The text itself is long: a number tells whether it is the same.
            settings: format!("{:016x}", fnv(&settings)),
            shard: args
                .shard
                .map_or_else(String::new, |shard| shard.to_string()),
        };
        Ok(Self {
            controllers,
            envelopes,
            bounds,
            known,
            header,
        })
    }

    fn evaluator(&self, args: &HuntArgs) -> Result<LabEvaluator<'_>, Failure> {
        let mut envelopes = BTreeMap::new();
        for name in &self.controllers {
            envelopes.insert(name.clone(), self.envelopes.of(name).map_err(wrong)?);
        }
        Ok(LabEvaluator {
            envelopes,
            threads: threads(args),
            #[cfg(feature = "specimens")]
            specimen: args
                .specimen
                .as_deref()
                .map(super::specimen::bug)
                .transpose()?,
        })
    }

    fn hunts(&self, args: &HuntArgs) -> Vec<Hunt> {
        let shard = args.shard.map_or(0, Shard::index);
        let names = self.controllers.iter();
        names
            .map(|name| {
                Hunt::new(HuntSettings {
                    controller: name.clone(),
                    seed: args.seed.wrapping_add(shard.wrapping_mul(SHARD_STRIDE)),
                    bounds: self.bounds.clone(),
                    known: self.known.clone(),
                    rivals: ["cubic", "bbr"].map(str::to_owned).to_vec(),
                    at_once: threads(args),
                })
            })
            .collect()
    }
}

fn threads(args: &HuntArgs) -> usize {
    args.threads
        .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// A number that tells two texts apart: FNV-1a.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The processor time that this process has used.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// Opens the journal: a new one, or one to be resumed.
fn journal(args: &HuntArgs, header: &JournalHeader) -> Result<(Journal, Option<File>), Failure> {
    let Some(path) = &args.results else {
        return Ok((Journal::default(), None));
    };
    let name = path.display();
    let unusable =
        |error: &std::io::Error| Failure::caused(Kind::Output, format!("cannot use {name}"), error);
    let mut options = OpenOptions::new();
    let opened = options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path);
    let mut file = opened.map_err(|error| unusable(&error))?;
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(|error| unusable(&error))?;
    if !text.is_empty() && !args.resume {
        return Err(wrong(format!(
            "{name} exists: go on with --resume, or name another file"
        )));
    }
    let journal = Journal::parse(&name.to_string(), &text).map_err(wrong)?;
    file.set_len(journal.complete as u64)
        .map_err(|error| unusable(&error))?;
    file.seek(SeekFrom::End(0))
        .map_err(|error| unusable(&error))?;
    match &journal.header {
        None => {
            let line = serde_json::to_string(&JournalLine::Hunt(header.clone()));
            let line = line.map_err(std::io::Error::from);
            let written = line.and_then(|line| file.write_all(format!("{line}\n").as_bytes()));
            written.map_err(|error| unusable(&error))?;
        }
        Some(found) if found == header => {}
        Some(found) => return Err(wrong(differs(&name.to_string(), found, header))),
    }
    Ok((journal, Some(file)))
}

/// Says in what a journal differs from what is asked for.
fn differs(name: &str, found: &JournalHeader, asked: &JournalHeader) -> String {
    let (what, was, is) = if found.controllers != asked.controllers {
        let joined = |header: &JournalHeader| header.controllers.join(",");
        ("--controller", joined(found), joined(asked))
    } else if found.seed != asked.seed {
        ("--seed", found.seed.to_string(), asked.seed.to_string())
    } else if found.shard != asked.shard {
        ("--shard", found.shard.clone(), asked.shard.clone())
    } else if found.settings != asked.settings {
        let text = "--bounds, --envelopes, --known and --specimen";
        (text, found.settings.clone(), asked.settings.clone())
    } else {
        ("the program", found.program.clone(), asked.program.clone())
    };
    format!(
        "{name} cannot be resumed: it was written with another value of {what} ({was:?}, now \
         {is:?}); use the same, or another file"
    )
}

fn progress() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner());
    ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()).with_style(style)
}

/// Runs generations of each controller in turn until the budget is used up.
fn search(
    args: &HuntArgs,
    setup: &Setup,
    hunts: &mut [Hunt],
    remembering: &mut Remembering<'_, File>,
    bar: &ProgressBar,
) {
    let evaluations = match (args.evaluations, args.cpu, args.ci) {
        (Some(count), _, _) => count,
        (None, Some(_), _) => u64::MAX,
        (None, None, true) => CI_EVALUATIONS,
        (None, None, false) => EVALUATIONS,
    };
    let begun = cpu();
    let mut turn = 0;
    loop {
        let done: u64 = hunts.iter().map(|hunt| hunt.tally().evaluations).sum();
        let spent = cpu().saturating_sub(begun);
        let time_over = args.cpu.is_some_and(|limit| spent >= limit.0);
        if done >= evaluations || time_over {
            return;
        }
        let hunt = &mut hunts[turn % setup.controllers.len()];
        turn += 1;
        for case in hunt.generation(remembering) {
            remembering.found(&case);
            say!("lab: {:>6} evaluations: {}", case.after, case.cause());
        }
        if remembering.broken.is_some() {
            return;
        }
        bar.set_message(standing(hunt, done, spent));
        bar.tick();
    }
}

/// A line about how far a search is.
fn standing(hunt: &Hunt, done: u64, spent: Duration) -> String {
    let worst = hunt.worst().map_or_else(String::new, |(oracle, ratio)| {
        format!(", worst {} at {ratio:.2} × its limit", oracle.name())
    });
    format!(
        "{done} evaluations, {:.0} s of CPU time; {}: {} cases{worst}",
        spent.as_secs_f64(),
        hunt.controller(),
        hunt.cases().len(),
    )
}

/// Prints and writes what was found.
fn conclude(args: &HuntArgs, hunts: &[Hunt], fresh: u64) -> Result<(), Failure> {
    let cases: Vec<&HuntCase> = hunts.iter().flat_map(Hunt::cases).collect();
    report_cases(&cases, args.cases.as_deref(), args.json)?;
    for hunt in hunts {
        let tally = hunt.tally();
        say!(
            "lab: {}: {} evaluations in {} generations, {} outside of the envelope ({} of them \
             without a finding), {} by chance; {} cases",
            hunt.controller(),
            tally.evaluations,
            tally.generations,
            tally.missed,
            tally.silent,
            tally.by_chance,
            hunt.cases().len(),
        );
        for (reason, count) in &tally.known {
            say!("lab:   known, {count} times: {reason}");
        }
        for (detector, count) in &tally.healthy_findings {
            say!("lab:   {detector} in {count} runs inside of the envelope");
        }
    }
    say!("lab: {fresh} runs were new");
    Ok(())
}
