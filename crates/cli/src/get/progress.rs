//! A bar for people, on a terminal.

use std::io::{self, IsTerminal as _};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Args;
use super::destination::Destination;
use super::job::Job;
use crate::printable;
use crate::terminal;

/// How far all transfers together are. Clones are the same bar; without a
/// terminal there is none.
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

    /// So much more is to come.
    pub(super) fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    /// So much has come.
    pub(super) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// So many transfers are over.
    pub(super) fn over(&self, transfers: u64) {
        if self.files > 1 {
            self.bar.set_message(format!("{transfers}/{}", self.files));
        }
    }

    /// Says something above the bar, in one line.
    pub(super) fn say(&self, text: &str) {
        say!("{}", printable::line(text));
    }

    pub(super) fn clear(&self) {
        terminal::clear();
    }
}
