//! `clearway lab hunt` for other stacks: the same search, by the envelopes of our controllers of the
//! same name.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clearway_lab::hunt::{
    Bounds, Envelope, Envelopes, Evaluate, Evaluation, Hunt, HuntCase, HuntSettings,
    JOURNAL_VERSION, Journal, JournalHeader, JournalLine, KnownCases, Remembering, Trial,
    evaluate_with,
};
use clearway_lab::run::RunObservers;
use clearway_lab::scenario::Case;
use rustix::time::{ClockId, clock_gettime};

use crate::entrant::{self, Entrant};
use crate::versions;

/// Options of `lab-rivals hunt`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The stack with its controller, such as quinn/cubic or noq/bbr3.
    #[arg(long, value_name = "NAME")]
    stack: String,
    /// The seed of the search. The stacks draw from the system's randomness in places, so that
    /// the same seed gives the same networks at first only.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Stop after this many seconds of processor time, over all threads.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    cpu: u64,
    /// Write every run and every case to this file, a JSON object a line, and go on with the
    /// search that it has.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Threads; by default one per core.
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
}

/// Runs a stack that is not ours, judged as our controller of the same name is.
struct RivalEvaluator<'a> {
    entrant: Entrant,
    envelopes: BTreeMap<String, &'a Envelope>,
    threads: usize,
}

impl Evaluate for RivalEvaluator<'_> {
    fn evaluate(&mut self, trials: &[Trial]) -> Vec<Evaluation> {
        let entrant = self.entrant;
        let observers = |case: &Case| RunObservers {
            detect: true,
            ..entrant.extras(case)
        };
        evaluate_with(trials, &self.envelopes, self.threads, &|_| {}, &observers)
    }
}

/// The processor time that this process has used.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(time.tv_sec.unsigned_abs(), nanos)
}

/// Searches for the networks in which a stack does worst.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let found = entrant::ALL.iter().find(|one| one.name() == options.stack);
    let Some(&entrant) = found else {
        let all: Vec<String> = entrant::ALL.iter().map(|one| one.name()).collect();
        let all = all.join(", ");
        return Err(format!(
            "unknown stack {:?}; expected one of {all}",
            options.stack
        ));
    };
    let controller = entrant.judged_as().to_owned();
    let all = Envelopes::default();
    let mut evaluator = RivalEvaluator {
        entrant,
        envelopes: [(controller.clone(), all.of(&controller)?)].into(),
        threads: options
            .threads
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
    };
    let threads = evaluator.threads;
    let (journal, out) = journal(options)?;
    let mut remembering = Remembering::new(&mut evaluator, journal, out);
    let mut hunt = Hunt::new(HuntSettings {
        controller,
        seed: options.seed,
        bounds: Bounds::default(),
        // What is known of our misses says nothing of theirs.
        known: KnownCases::default(),
        // These neighbours are ours.
        rivals: ["cubic", "bbr"].map(str::to_owned).to_vec(),
        at_once: threads,
    });
    let begun = cpu();
    while cpu().saturating_sub(begun).as_secs() < options.cpu {
        for case in hunt.generation(&mut remembering) {
            remembering.found(&case);
            let _ = writeln!(
                io::stderr(),
                "lab-rivals: {:>6} runs: {}",
                case.after,
                case.cause()
            );
        }
        if let Some(error) = remembering.broken.take() {
            return Err(format!("--results: cannot write: {error}"));
        }
    }
    print(&hunt, &options.stack).map_err(|error| error.to_string())
}

type Out = Option<std::fs::File>;

/// Opens the journal: a new one, or one to go on with.
fn journal(options: &Options) -> Result<(Journal, Out), String> {
    let Some(path) = &options.results else {
        return Ok((Journal::default(), None));
    };
    let name = path.display().to_string();
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("--results: cannot read {name}: {error}")),
    };
    let journal = Journal::parse(&name, &text)?;
    let header = JournalHeader {
        version: JOURNAL_VERSION,
        program: format!("lab-rivals, clearway-lab {}", versions::of("clearway-lab")),
        controllers: vec![options.stack.clone()],
        seed: options.seed,
        settings: String::new(),
        shard: String::new(),
    };
    let unusable = |error: io::Error| format!("--results: cannot use {name}: {error}");
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .map_err(unusable)?;
    // A line that a killed search cut off.
    file.set_len(journal.complete as u64).map_err(unusable)?;
    match &journal.header {
        Some(found) if *found != header => Err(format!(
            "--results: {name} is of another search: found {found:?}, expected {header:?}; use \
             another file"
        )),
        Some(_) => Ok((journal, Some(file))),
        None => {
            let line = serde_json::to_string(&JournalLine::Hunt(header));
            let line = line.map_err(|error| error.to_string())?;
            file.write_all(format!("{line}\n").as_bytes())
                .map_err(unusable)?;
            Ok((journal, Some(file)))
        }
    }
}

/// Prints the cases as JSON, a line each, and what was counted.
fn print(hunt: &Hunt, stack: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let cases: &[HuntCase] = hunt.cases();
    for case in cases {
        serde_json::to_writer(&mut out, case)?;
        writeln!(out)?;
    }
    let tally = hunt.tally();
    writeln!(
        io::stderr(),
        "lab-rivals: {stack}: {} runs, {} outside of the envelope ({} of them without a finding), \
         {} by chance; {} cases",
        tally.evaluations,
        tally.missed,
        tally.silent,
        tally.by_chance,
        cases.len(),
    )?;
    out.flush()
}
