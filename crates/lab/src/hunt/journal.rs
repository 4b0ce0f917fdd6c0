//! The journal of a search: every evaluation and every case, a JSON object a line.
//!
//! A search depends on its settings and on the results of its runs alone. So it is resumed by
//! doing it again with the results that the journal has: they take no time, and the search goes
//! on where it stopped, as if it had not.

use std::collections::{HashMap, HashSet};
use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use super::cases::HuntCase;
use super::evaluate::{Evaluate, Evaluation, Trial};
use super::genome::Genome;

/// The version of the journal's format, and of what an evaluation means.
pub const JOURNAL_VERSION: u32 = 4;

/// What a search was started with: a journal can be resumed with the same only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalHeader {
    /// The version of the format.
    pub version: u32,
    /// The version of the program, because other code gives other results.
    pub program: String,
    /// The controllers.
    pub controllers: Vec<String>,
    /// The seed.
    pub seed: u64,
    /// The bounds and whatever else decides about the search, as text.
    pub settings: String,
    /// The part of a search on several machines, such as `1/4`.
    pub shard: String,
}

/// A line of a journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JournalLine {
    /// The first line.
    Hunt(JournalHeader),
    /// A run.
    Run {
        /// The controller.
        controller: String,
        /// The network.
        genome: Genome,
        /// The seed.
        seed: u64,
        /// What came of it.
        evaluation: Evaluation,
    },
    /// A case.
    Case(HuntCase),
}

/// A journal as read from a file.
#[derive(Clone, Debug, Default)]
pub struct Journal {
    /// Its first line; `None` for an empty file.
    pub header: Option<JournalHeader>,
    /// The results.
    pub runs: HashMap<Trial, Evaluation>,
    /// The cases.
    pub cases: Vec<HuntCase>,
    /// Bytes up to the end of the last complete line: what follows was cut off.
    pub complete: usize,
}

impl Journal {
    /// Reads a journal; `file` is its name in error messages.
    ///
    /// A last line without its end, as a killed search leaves, is not read.
    ///
    /// # Errors
    /// The line that is none of a journal.
    pub fn parse(file: &str, text: &str) -> Result<Self, String> {
        let mut this = Self {
            complete: text.rfind('\n').map_or(0, |at| at + 1),
            ..Self::default()
        };
        for (index, line) in text[..this.complete].lines().enumerate() {
            let number = index + 1;
            let read: JournalLine = serde_json::from_str(line).map_err(|error| {
                format!("{file}:{number}: not a line of a hunt's journal: {error}")
            })?;
            match read {
                JournalLine::Hunt(header) if index == 0 => this.header = Some(header),
                JournalLine::Hunt(_) => {
                    return Err(format!(
                        "{file}:{number}: a second first line; expected one journal a file: join \
                         several with `clearway lab merge`"
                    ));
                }
                JournalLine::Run {
                    controller,
                    genome,
                    seed,
                    evaluation,
                } => {
                    let trial = Trial {
                        controller,
                        genome,
                        seed,
                    };
                    this.runs.insert(trial, evaluation);
                }
                JournalLine::Case(case) => this.cases.push(case),
            }
        }
        if this.complete > 0 && this.header.is_none() {
            return Err(format!(
                "{file}:1: not a hunt's journal: the first line has to say what was searched"
            ));
        }
        Ok(this)
    }
}

/// An evaluator that knows the results of a journal, and writes new ones to it.
pub struct Remembering<'a, W> {
    inner: &'a mut dyn Evaluate,
    known: HashMap<Trial, Evaluation>,
    cases: HashSet<String>,
    out: Option<W>,
    /// Runs that were done, rather than remembered.
    pub fresh: u64,
    /// The first error of writing.
    pub broken: Option<io::Error>,
}

impl<W> core::fmt::Debug for Remembering<'_, W> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Remembering")
            .field("known", &self.known.len())
            .field("fresh", &self.fresh)
            .finish_non_exhaustive()
    }
}

impl<'a, W: Write> Remembering<'a, W> {
    /// An evaluator that asks `inner` for what `journal` does not have, and writes to `out`.
    pub fn new(inner: &'a mut dyn Evaluate, journal: Journal, out: Option<W>) -> Self {
        let lines = journal
            .cases
            .iter()
            .filter_map(|case| serde_json::to_string(case).ok());
        Self {
            inner,
            cases: lines.collect(),
            known: journal.runs,
            out,
            fresh: 0,
            broken: None,
        }
    }

    /// Writes a line.
    pub fn write(&mut self, line: &JournalLine) {
        let Some(out) = &mut self.out else { return };
        let written = serde_json::to_string(line)
            .map_err(io::Error::from)
            .and_then(|text| out.write_all(format!("{text}\n").as_bytes()))
            .and_then(|()| out.flush());
        if let Err(error) = written {
            self.broken.get_or_insert(error);
        }
    }

    /// Writes a case, unless the journal has it.
    pub fn found(&mut self, case: &HuntCase) {
        let text = serde_json::to_string(case).unwrap_or_default();
        if self.cases.insert(text) {
            self.write(&JournalLine::Case(case.clone()));
        }
    }
}

impl<W: Write> Evaluate for Remembering<'_, W> {
    fn evaluate(&mut self, trials: &[Trial]) -> Vec<Evaluation> {
        let mut asked = HashSet::new();
        let new: Vec<Trial> = trials
            .iter()
            .filter(|trial| !self.known.contains_key(trial) && asked.insert((*trial).clone()))
            .cloned()
            .collect();
        let results = match new.is_empty() {
            true => Vec::new(),
            false => self.inner.evaluate(&new),
        };
        self.fresh += new.len() as u64;
        for (trial, evaluation) in new.into_iter().zip(results) {
            self.write(&JournalLine::Run {
                controller: trial.controller.clone(),
                genome: trial.genome.clone(),
                seed: trial.seed,
                evaluation: evaluation.clone(),
            });
            self.known.insert(trial, evaluation);
        }
        let all = trials
            .iter()
            .filter_map(|trial| self.known.get(trial).cloned());
        all.collect()
    }
}
