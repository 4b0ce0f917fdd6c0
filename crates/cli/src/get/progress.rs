//! The progress bar.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Args;
use super::destination::Destination;
use super::job::Job;
use crate::printable;
use crate::terminal;

/// The progress of all transfers together. Clones share one bar, which is hidden without a
/// terminal.
#[derive(Clone, Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    files: u64,
}

impl Progress {
    pub(super) fn of(jobs: &[Job], args: &Args) -> Self {
        let onto_screen = io::stdout().is_terminal()
            && (args.head || jobs.iter().any(|job| job.to == Destination::Stdout));
        let target = if args.silent || onto_screen {
            ProgressDrawTarget::hidden()
        } else {
            // Hidden unless it is a terminal.
            ProgressDrawTarget::stderr()
        };
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let template = "{bar:30} {bytes}/{total_bytes} {binary_bytes_per_sec} {eta} {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        terminal::show(&bar);
        Self {
            bar,
            files: jobs.len() as u64,
        }
    }

    /// Adds to the expected length.
    pub(super) fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// Adds to the progress.
    pub(super) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Sets the number of finished transfers.
    pub(super) fn over(&self, transfers: u64) {
        if self.files > 1 {
            self.bar.set_message(format!("{transfers}/{}", self.files));
        }
    }

    /// Prints a line above the bar.
    pub(super) fn say(&self, text: &str) {
        say!("{}", printable::line(text));
    }

    pub(super) fn clear(&self) {
        terminal::clear();
    }
}
