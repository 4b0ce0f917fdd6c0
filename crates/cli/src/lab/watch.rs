//! What runs are watched with: captures.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use clearway_lab::pcapng::Capture;
use clearway_lab::run::{Extras, Plan, Task};
use clearway_lab::stack::Secrets;

use crate::failure::{Failure, Kind};

/// Where the records of a run go.
#[derive(Debug, Default)]
pub(super) struct Watches {
    /// The run that is captured, and the file.
    capture: Option<(Task, PathBuf)>,
    /// The first file that could not be written.
    broken: std::sync::Arc<Mutex<Option<String>>>,
}

impl Watches {
    /// Nobody watches.
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// Captures the first run of `plan` if a file is named.
    pub(super) fn new(plan: &Plan, pcap: Option<&Path>) -> Self {
        let first = plan.tasks.first().copied();
        Self {
            capture: pcap.and_then(|file| Some((first?, file.to_owned()))),
            ..Self::default()
        }
    }

    /// What to watch `task` with.
    pub(super) fn extras(&self, task: &Task) -> Extras {
        let mut extras = Extras::default();
        let Some((captured, file)) = &self.capture else {
            return extras;
        };
        if captured != task {
            return extras;
        }
        let (capture, secrets) = (Capture::default(), Secrets::default());
        extras.tap = Some(Box::new(capture.clone()));
        extras.secrets = Some(secrets.clone());
        let (file, broken) = (file.clone(), self.broken.clone());
        extras.after = Some(Box::new(move |_| {
            if let Err(error) = std::fs::write(&file, capture.finish(&secrets.text())) {
                let message = format!("cannot write {}: {error}", file.display());
                *broken.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
            }
        }));
        extras
    }

    /// Says where things are.
    pub(super) fn conclude(&self) -> Result<(), Failure> {
        let broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(message) = &*broken {
            return Err(Failure::new(Kind::Other, message.clone()));
        }
        if let Some((task, file)) = &self.capture {
            say!("lab: packets of seed {} in {}", task.seed, file.display());
        }
        Ok(())
    }
}
