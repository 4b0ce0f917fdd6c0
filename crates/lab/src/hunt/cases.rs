//! What a search has found: one case for each cause.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::envelope::Oracle;
use super::evaluate::Evaluation;
use super::genome::{Genome, INGREDIENTS};
use super::shrink::complexity;
use crate::scenario::suggest;

/// A network in which a controller is outside of its envelope, as simple as the search could
/// make it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HuntCase {
    /// The controller.
    pub controller: String,
    /// The question that it was found by.
    pub oracle: Oracle,
    /// The network.
    pub genome: Genome,
    /// The seed of the run to look at.
    pub seed: u64,
    /// Of three seeds, how many show it.
    pub seeds: u32,
    /// What was measured and found in it.
    pub evaluation: Evaluation,
    /// What the network consists of.
    pub ingredients: BTreeSet<String>,
    /// How many evaluations the search had done when it met it.
    pub after: u64,
}

impl HuntCase {
    /// What tells causes apart: the question, what held the sender back, what the detectors say,
    /// and what the network needs to have.
    #[must_use]
    pub fn cause(&self) -> String {
        let list = |names: &BTreeSet<String>, none: &str| match names.is_empty() {
            true => none.to_owned(),
            false => names.iter().cloned().collect::<Vec<_>>().join(", "),
        };
        format!(
            "{} of {} with {}; limited by {}; {}",
            self.oracle.name(),
            self.controller,
            list(&self.ingredients, "a plain link"),
            self.evaluation.dominant_limit(),
            list(&self.evaluation.findings, "no finding"),
        )
    }

    /// Whether no detector says anything: a result of its own, because somebody whose connection
    /// this is would not be told.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.evaluation.findings.is_empty() && self.oracle != Oracle::Violation
    }

    /// Whether a failure of `oracle` in a network with these ingredients is this one again: the
    /// same question is missed, and everything that it takes is there.
    #[must_use]
    pub fn explains(&self, oracle: Oracle, ingredients: &BTreeSet<&'static str>) -> bool {
        let missed = oracle == self.oracle || self.evaluation.ratio(oracle) > 1.0;
        missed
            && self
                .ingredients
                .iter()
                .all(|own| ingredients.contains(own.as_str()))
    }
}

/// Joins the cases of several searches: one for each cause, the simplest.
#[must_use]
pub fn distinct(cases: Vec<HuntCase>) -> Vec<HuntCase> {
    let mut cases = cases;
    cases.sort_by_key(|case| {
        let ingredients = case.ingredients.len();
        (
            case.controller.clone(),
            case.oracle,
            ingredients,
            complexity(&case.genome),
        )
    });
    let mut kept: Vec<HuntCase> = Vec::new();
    for case in cases {
        let ingredients = case.genome.ingredients();
        let again = kept.iter().any(|other| {
            other.controller == case.controller && other.explains(case.oracle, &ingredients)
        });
        if !again {
            kept.push(case);
        }
    }
    kept
}

/// Cases that are known, each with its reason.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownCases {
    #[serde(default)]
    known: Vec<KnownCase>,
}

/// A case that is known.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownCase {
    /// The controllers that have it.
    pub controller: Vec<String>,
    /// The questions that they miss.
    pub oracle: Vec<Oracle>,
    /// What the network has to consist of, at least.
    #[serde(default)]
    pub with: Vec<String>,
    /// Why it is as it is.
    pub reason: String,
}

impl KnownCases {
    /// Those of our controllers, from `hunt/known.toml`.
    #[must_use]
    pub fn ours() -> Self {
        match Self::parse("known.toml", include_str!("../../hunt/known.toml")) {
            Ok(known) => known,
            // A test parses the file.
            Err(error) => unreachable!("{error}"),
        }
    }

    /// Reads known cases from TOML; `file` is its name in error messages.
    ///
    /// # Errors
    /// What is wrong, and what is expected.
    pub fn parse(file: &str, text: &str) -> Result<Self, String> {
        let all: Self = toml::from_str(text)
            .map_err(|error| format!("{file}: {}", error.to_string().trim_end()))?;
        for (number, each) in all.known.iter().enumerate() {
            let wrong = |problem: String| Err(format!("{file}: entry {}: {problem}", number + 1));
            if each.reason.trim().is_empty() {
                return wrong("the reason is empty; expected why the case is accepted".to_owned());
            }
            for name in &each.with {
                if !INGREDIENTS.contains(&name.as_str()) {
                    let help = suggest(name, INGREDIENTS);
                    return wrong(format!("unknown ingredient {name:?}; {help}"));
                }
            }
        }
        Ok(all)
    }

    /// The entry that declares this failure, if there is one.
    #[must_use]
    pub fn find(
        &self,
        controller: &str,
        oracle: Oracle,
        ingredients: &BTreeSet<&'static str>,
    ) -> Option<&KnownCase> {
        self.known.iter().find(|known| {
            known.controller.iter().any(|name| name == controller)
                && known.oracle.contains(&oracle)
                && known
                    .with
                    .iter()
                    .all(|name| ingredients.contains(name.as_str()))
        })
    }
}
