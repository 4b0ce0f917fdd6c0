//! Records runs as packet captures with their TLS secrets, for `clearway diagnose`: rivals have no
//! trace of their own here, and what happens is the same on the wire.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use clearway_lab::measure::{Bulk, Outcome};
use clearway_lab::pcapng::Capture;
use clearway_lab::run::{RunObservers, Task};
use clearway_lab::scenario::Case;
use clearway_lab::stack::{Role, Secrets};
use rustls::KeyLog;

/// The secrets of the rivals' connections since the last run ended. Their configurations are shared
/// by all runs, which therefore run one after the other while they are recorded.
static SECRETS: Mutex<String> = Mutex::new(String::new());

/// Whether they are collected: nobody takes them out of runs that are not recorded.
static RECORDS: AtomicBool = AtomicBool::new(false);

/// Collects the secrets of rivals.
#[derive(Debug)]
pub(crate) struct RivalSecrets;

impl KeyLog for RivalSecrets {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if !RECORDS.load(Ordering::Relaxed) {
            return;
        }
        // One line, as ours writes it.
        let line = Secrets::default();
        line.log(label, client_random, secret);
        let mut text = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
        text.push_str(&line.text());
    }
}

/// A folder of captures.
#[derive(Debug)]
pub(crate) struct Captures {
    folder: PathBuf,
    failed: Mutex<Option<io::Error>>,
}

impl Captures {
    /// Creates the folder.
    pub(crate) fn create(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        RECORDS.store(true, Ordering::Relaxed);
        Ok(Self {
            folder: folder.to_owned(),
            failed: Mutex::default(),
        })
    }

    /// Records the run of `case` in which `entrant` takes part, at its sender.
    pub(crate) fn record(
        self: &Arc<Self>,
        entrant: &str,
        (case, task): (&Case, &Task),
        extras: &mut RunObservers,
    ) {
        let upload = case.flows.first().is_some_and(|flow| flow.bulk == Bulk::Up);
        let sender = if upload { Role::Client } else { Role::Server };
        let capture = Capture::at(sender);
        let own = Secrets::default();
        extras.tap = Some(Box::new(capture.clone()));
        extras.secrets = Some(own.clone());
        let mut name = format!("{entrant}_{}", case.scenario);
        if !case.variant.is_empty() {
            name.push_str(&format!("_{}", case.variant));
        }
        let name: String = name
            .chars()
            .map(|it| if it.is_ascii_alphanumeric() { it } else { '_' })
            .collect();
        let path = self.folder.join(format!("{name}_seed{}.pcapng", task.seed));
        let (this, before) = (self.clone(), extras.after.take());
        extras.after = Some(Box::new(move |outcome: &Outcome| {
            if let Some(before) = before {
                before(outcome);
            }
            let rivals = {
                let mut text = SECRETS.lock().unwrap_or_else(PoisonError::into_inner);
                core::mem::take(&mut *text)
            };
            let file = capture.finish(&format!("{}{rivals}", own.text()));
            if let Err(error) = fs::write(&path, file) {
                let mut failed = this.failed.lock().unwrap_or_else(PoisonError::into_inner);
                failed.get_or_insert(error);
            }
        }));
    }

    /// The first error of writing, if any.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.take().map_or(Ok(()), Err)
    }
}
