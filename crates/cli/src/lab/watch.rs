//! What runs are watched with: captures, traces, detectors.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use clearway_lab::pcapng::Capture;
use clearway_lab::run::{Extras, Plan, Task};
use clearway_lab::stack::{Birth, Role, Secrets, Watcher};
use clearway_trace::Recorder;
use clearway_trace::qlog::{Description, Writer};

use super::args::Run;
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
        let name = |case: &clearway_lab::scenario::Case| {
            file_name(&format!(
                "{} {} {}",
                case.scenario, case.variant, case.controller
            ))
        };
        let mut detect = plan.tasks.clone();
        if !args.detect {
            detect.dedup_by_key(|task| task.case);
        }
        Ok(Self {
            capture: args.pcap.clone().and_then(|file| Some((first?, file))),
            qlog: args.qlog.clone(),
            names: plan.cases.iter().map(name).collect(),
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
        if let Some((captured, file)) = &self.capture
            && captured == task
        {
            let (capture, secrets) = (Capture::default(), Secrets::default());
            extras.tap = Some(Box::new(capture.clone()));
            extras.secrets = Some(secrets.clone());
            let (file, broken) = (file.clone(), self.broken.clone());
            extras.after = Some(Box::new(move |_| {
                let written = std::fs::write(&file, capture.finish(&secrets.text()));
                note(&broken, &file, written);
            }));
        }
        extras
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
                    Some(Box::new(Recorder::since(
                        clearway_lab::stack::ORIGIN,
                        writer,
                    )))
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

fn note(broken: &Mutex<Option<String>>, file: &Path, written: std::io::Result<()>) {
    if let Err(error) = written {
        let message = format!("cannot write {}: {error}", file.display());
        broken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get_or_insert(message);
    }
}
