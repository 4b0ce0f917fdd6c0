//! What runs are watched with: captures, traces, detectors.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use clearway_lab::measure::{Bulk, Outcome, metric};
use clearway_lab::pcapng::Capture;
use clearway_lab::run::{Extras, Plan, Task};
use clearway_lab::scenario::Case;
use clearway_lab::stack::{Birth, ORIGIN, Observer, Observers, Role, Secrets, Watcher};

use clearway_trace::qlog::{Description, Writer};
use clearway_trace::{Breakdown, Recorder, Series, Shared, Tee, Track};

use super::args::Run;
use super::report;
use crate::failure::{Failure, Kind};

/// Where the records of runs go.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// The run that is captured, and the file.
    capture: Option<(Task, PathBuf)>,
    /// Where traces go.
    qlog: Option<PathBuf>,
    /// The name of each case, for files.
    names: Vec<String>,
    /// The name of each case, for people.
    titles: Vec<String>,
    /// Which end of each case's first flow sends.
    senders: Vec<Role>,
    /// The run that is shown on a page, and the file.
    report: Option<(Task, PathBuf)>,
    /// The runs that the detectors look at.
    detect: Vec<Task>,
    /// The first file that could not be written.
    broken: Arc<Mutex<Option<String>>>,
}

/// What a file name may hold.
fn file_name(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-';
    text.chars()
        .map(|c| if plain(c) { c } else { '_' })
        .collect()
}

impl Watches {
    /// Nobody watches.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// What `args` ask for.
    pub(super) fn new(plan: &Plan, args: &Run) -> Result<Self, Failure> {
        if let Some(dir) = &args.qlog {
            std::fs::create_dir_all(dir).map_err(|error| {
                let what = format!("cannot make {}", dir.display());
                Failure::caused(Kind::Arguments, what, &error)
            })?;
        }
        let first = plan.tasks.first().copied();
        let title = |case: &Case| {
            let words = [&case.scenario, &case.variant, &case.controller];
            let words = words.into_iter().filter(|word| !word.is_empty());
            words.cloned().collect::<Vec<_>>().join(" ")
        };
        let titles: Vec<String> = plan.cases.iter().map(title).collect();
        let mut detect = plan.tasks.clone();
        if !args.detect {
            detect.dedup_by_key(|task| task.case);
        }
        Ok(Self {
            capture: args.pcap.clone().and_then(|file| Some((first?, file))),
            report: args.report.clone().and_then(|file| Some((first?, file))),
            qlog: args.qlog.clone(),
            names: titles.iter().map(|title| file_name(title)).collect(),
            titles,
            senders: plan.cases.iter().map(sender).collect(),
            detect,
            broken: Arc::default(),
        })
    }

    /// What to watch `task` with.
    pub(super) fn extras(&self, task: &Task) -> Extras {
        let mut extras = Extras {
            detect: self.detect.contains(task),
            ..Extras::default()
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
                let written = std::fs::write(&file, capture.finish(&secrets.text()));
                note(&broken, &file, written);
            }));
        }
        extras
    }

    /// A page about the first flow's sender.
    fn show(&self, file: &Path, task: &Task, extras: &mut Extras) {
        let title = format!("{} seed {}", self.titles[task.case], task.seed);
        let watched = Shared::new(Tee(Series::new(), Breakdown::new()));
        let (sink, sender) = (watched.clone(), self.senders[task.case]);
        let other = extras.watcher.take();
        extras.detect = true;
        extras.watcher = Some(Watcher(Rc::new(move |birth: &Birth| {
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
        let (file, broken) = (file.to_owned(), self.broken.clone());
        extras.after = Some(Box::new(move |outcome| {
            let Tee(mut series, mut breakdown) =
                watched.with(|tee| core::mem::replace(tee, Tee(Series::new(), Breakdown::new())));
            breakdown.until(outcome.ended.as_nanos());
            for &(at, bytes) in &outcome.queue {
                series.push(Track::Queue, at.as_nanos(), bytes);
            }
            let first = outcome.findings.iter().filter(|(flow, _)| *flow == 0);
            let findings: Vec<_> = first.map(|(_, finding)| finding.clone()).collect();
            let page = report::Page {
                title: &title,
                facts: &facts(outcome),
                series: &series,
                breakdown: &breakdown,
                findings: &findings,
            };
            if let Err(failure) = report::write(&file, &page) {
                note(&broken, &file, Err(std::io::Error::other(failure)));
            }
        }));
    }

    /// A file for each end of a run.
    fn traces(&self, dir: &Path, task: &Task) -> Watcher {
        let stem = format!("{}_seed{}", self.names[task.case], task.seed);
        let (dir, broken) = (dir.to_owned(), self.broken.clone());
        Watcher(Rc::new(move |birth: &Birth| {
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
            match File::create(&file) {
                Ok(output) => {
                    let writer = Writer::new(output, &description);
                    Some(Box::new(Recorder::since(ORIGIN, writer)))
                }
                Err(error) => {
                    note(&broken, &file, Err(error));
                    None
                }
            }
        }))
    }

    /// Says where things are.
    ///
    /// # Errors
    /// If something could not be written.
    pub(super) fn conclude(&self) -> Result<(), Failure> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = &*broken {
            return Err(Failure::new(Kind::Other, message.clone()));
        }
        if let Some((task, file)) = &self.capture {
            say!("lab: packets of seed {} in {}", task.seed, file.display());
        }
        if let Some(dir) = &self.qlog {
            say!("lab: traces in {}", dir.display());
        }
        Ok(())
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

fn note(broken: &Mutex<Option<String>>, file: &Path, written: std::io::Result<()>) {
    if let Err(error) = written {
        let message = format!("cannot write {}: {error}", file.display());
        broken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(message);
    }
}
