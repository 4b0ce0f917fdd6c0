//! Outputs of runs: captures, traces, findings.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use clearway_lab::measure::{Bulk, Outcome, metric};
use clearway_lab::pcapng::Capture;
use clearway_lab::run::{Plan, RunObservers, Task, run_case};
use clearway_lab::scenario::Case;
use clearway_lab::stack::{
    ORIGIN, Observer, Observers, Role, Secrets, SharedObserverFactory, StackSetup,
};

use clearway_trace::qlog::{Description, Writer};
use clearway_trace::report::{Panel, html};
use clearway_trace::{Detector, Examiner, Finding, Recorder, Shared, Track};

use super::args::Run;
use super::files::{FirstWriteError, OutputFile, StreamedFile, directory, file_names};
use crate::failure::Failure;

/// The outputs of runs.
#[derive(Debug, Default)]
pub(super) struct RunOutputs {
    /// The run to capture, and the file.
    capture: Option<(Task, OutputFile)>,
    /// The directory for traces.
    qlog: Option<PathBuf>,
    /// The name of each case, for files.
    names: Vec<String>,
    /// The name of each case, for people.
    titles: Vec<String>,
    /// The sending end of each case's first flow.
    senders: Vec<Role>,
    /// The run to report on, and the file.
    report: Option<(Task, OutputFile)>,
    /// The runs on which the detectors run.
    detect: Vec<Task>,
    /// The first file that could not be written.
    broken: FirstWriteError,
}

/// The runs on which the detectors run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Detection {
    #[default]
    None,
    FirstSeeds,
    Everywhere,
}

/// The outputs that options ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watch<'a> {
    pub(super) pcap: Option<&'a Path>,
    pub(super) qlog: Option<&'a Path>,
    pub(super) report: Option<&'a Path>,
    pub(super) detect: Detection,
}

impl Run {
    /// The outputs that it asks for.
    pub(super) fn watch(&self) -> Watch<'_> {
        Watch {
            pcap: self.pcap.as_deref(),
            qlog: self.qlog.as_deref(),
            report: self.report.as_deref(),
            detect: match self.detect {
                true => Detection::Everywhere,
                false => Detection::FirstSeeds,
            },
        }
    }
}

impl RunOutputs {
    /// No outputs.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// The outputs that `args` request, with their files open.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub(super) fn new(plan: &Plan, args: &Watch<'_>) -> Result<Self, Failure> {
        if let Some(dir) = args.qlog {
            directory(dir)?;
        }
        let first = plan.tasks.first().copied();
        let title = |case: &Case| {
            let words = [&case.scenario, &case.variant, &case.controller];
            let words = words.into_iter().filter(|word| !word.is_empty());
            words.cloned().collect::<Vec<_>>().join(" ")
        };
        let titles: Vec<String> = plan.cases.iter().map(title).collect();
        let mut detect = plan.tasks.clone();
        match args.detect {
            Detection::None => detect.clear(),
            Detection::FirstSeeds => detect.dedup_by_key(|task| task.case),
            Detection::Everywhere => {}
        }
        Ok(Self {
            capture: sheet(first, args.pcap)?,
            report: sheet(first, args.report)?,
            qlog: args.qlog.map(Path::to_owned),
            names: file_names(&titles),
            titles,
            senders: plan.cases.iter().map(sender).collect(),
            detect,
            broken: FirstWriteError::default(),
        })
    }

    /// The observers of `task`.
    pub(super) fn extras(&self, task: &Task) -> RunObservers {
        let mut extras = RunObservers {
            detect: self.detect.contains(task),
            ..RunObservers::default()
        };
        if let Some(dir) = &self.qlog {
            extras.watcher = Some(self.traces(dir, task));
        }
        if let Some((shown, file)) = &self.report
            && shown == task
        {
            self.show(file, task, &mut extras);
        }
        if let Some((captured, file)) = &self.capture
            && captured == task
        {
            let capture = Capture::at(self.senders[task.case]);
            let secrets = Secrets::default();
            extras.tap = Some(Box::new(capture.clone()));
            extras.secrets = Some(secrets.clone());
            let (file, broken) = (file.clone(), self.broken.clone());
            let before = extras.after.take();
            extras.after = Some(Box::new(move |outcome| {
                if let Some(before) = before {
                    before(outcome);
                }
                file.fill(&capture.finish(&secrets.text()), &broken);
            }));
        }
        extras
    }

    /// The report on the first flow's sender.
    fn show(&self, file: &OutputFile, task: &Task, extras: &mut RunObservers) {
        let title = format!("{} seed {}", self.titles[task.case], task.seed);
        let watched = Shared::new(Examiner::new(None));
        let (sink, sender) = (watched.clone(), self.senders[task.case]);
        let other = extras.watcher.take();
        extras.detect = true;
        extras.watcher = Some(SharedObserverFactory(Rc::new(move |birth: &StackSetup| {
            let other = other.as_ref().and_then(|watcher| (watcher.0)(birth));
            if birth.index / 2 > 0 || birth.role != sender {
                return other;
            }
            let own: Box<dyn Observer> = Box::new(Recorder::since(ORIGIN, sink.clone()));
            Some(match other {
                Some(other) => Box::new(Observers(own, other)),
                None => own,
            })
        })));
        let (file, broken) = (file.clone(), self.broken.clone());
        extras.after = Some(Box::new(move |outcome| {
            let page = page(&title, &watched, outcome);
            file.fill(page.as_bytes(), &broken);
        }));
    }

    /// A file for each end of a run.
    fn traces(&self, dir: &Path, task: &Task) -> SharedObserverFactory {
        let stem = format!("{}_seed{}", self.names[task.case], task.seed);
        let (dir, broken) = (dir.to_owned(), self.broken.clone());
        SharedObserverFactory(Rc::new(move |birth: &StackSetup| {
            let (end, role) = match birth.role {
                Role::Client => ("client", clearway_trace::event::Role::Client),
                Role::Server => ("server", clearway_trace::event::Role::Server),
            };
            let file = dir.join(format!("{stem}_flow{}_{end}.sqlog", birth.index / 2));
            let description = Description {
                role: Some(role),
                title: stem.clone(),
                ..Description::default()
            };
            let output = StreamedFile::create(file, &broken)?;
            let writer = Writer::new(output, &description);
            Some(Box::new(Recorder::since(ORIGIN, writer)))
        }))
    }

    /// Prints where the outputs are.
    ///
    /// # Errors
    /// If something could not be written.
    pub(super) fn conclude(&self) -> Result<(), Failure> {
        self.broken.conclude()?;
        if let Some((_, file)) = &self.report {
            say!("lab: wrote report to {}", file.path.display());
        }
        if let Some((task, file)) = &self.capture {
            let path = file.path.display();
            say!("lab: wrote packets of seed {} to {path}", task.seed);
        }
        if let Some(dir) = &self.qlog {
            say!("lab: wrote traces to {}", dir.display());
        }
        Ok(())
    }
}

/// The report of one run as HTML, without files in between.
pub(super) fn report_of(case: &Case, seed: u64) -> String {
    let watched = Shared::new(Examiner::new(None));
    let (sink, end) = (watched.clone(), sender(case));
    let watcher = SharedObserverFactory(Rc::new(move |birth: &StackSetup| {
        let first = birth.index / 2 == 0 && birth.role == end;
        first.then(|| Box::new(Recorder::since(ORIGIN, sink.clone())) as Box<dyn Observer>)
    }));
    let extras = RunObservers {
        detect: true,
        watcher: Some(watcher),
        ..RunObservers::default()
    };
    let outcome = run_case(case, seed, extras);
    let title = format!("{} {} seed {seed}", case.scenario, case.controller);
    page(&title, &watched, &outcome)
}

/// The report on what was watched.
fn page(title: &str, watched: &Shared<Examiner>, outcome: &Outcome) -> String {
    let examiner = watched.with(|it| core::mem::replace(it, Examiner::new(None)));
    // The world's own findings; the detectors' are the examiner's too.
    let world =
        |(flow, found): &&(usize, Finding)| *flow == 0 && found.detector == Detector::BusyTimer;
    let found = outcome.findings.iter().filter(world);
    let more = found.map(|(_, finding)| finding.clone()).collect();
    let mut examination = examiner.finish_at(outcome.ended.as_nanos(), more);
    for &(at, bytes) in &outcome.queue {
        examination.series.push(Track::Queue, at.as_nanos(), bytes);
    }
    let panel = Panel {
        title,
        facts: &facts(outcome),
        examination: &examination,
    };
    html(title, &[panel])
}

/// A file for the first run.
fn sheet(first: Option<Task>, file: Option<&Path>) -> Result<Option<(Task, OutputFile)>, Failure> {
    match (first, file) {
        (Some(first), Some(file)) => Ok(Some((first, OutputFile::open(file)?))),
        (None, _) | (_, None) => Ok(None),
    }
}

/// The end that sends the first flow's bulk.
fn sender(case: &Case) -> Role {
    match case.flows.first().map(|flow| flow.bulk) {
        Some(Bulk::Up) => Role::Client,
        Some(Bulk::Down | Bulk::Both) | None => Role::Server,
    }
}

/// The run in a few lines.
fn facts(outcome: &Outcome) -> Vec<(String, String)> {
    const SHOWN: &[&str] = &[
        "time",
        "goodput",
        "util",
        "loss",
        "rtt_p95",
        "queue_p95",
        "ptos",
    ];
    let metrics = SHOWN.iter().filter_map(|name| metric(name));
    metrics
        .filter_map(|metric| {
            let value = metric.unit.show((metric.of)(outcome)?);
            Some((metric.name.to_owned(), value))
        })
        .collect()
}
