//! The result of a case.

use crate::script::{Layer, Requirement};

/// What a case found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// What came is what is expected.
    AsExpected,
    /// A generic error code came instead of the specific one, which the RFCs permit.
    Permitted,
    /// Something else came where the source only says SHOULD.
    Unadvised,
    /// Something else came, twice.
    Deviation,
    /// Something else came at first, and what is expected when the case was repeated with twice
    /// the patience: load, loss, or a server that does not always do the same.
    Unsteady,
    /// The server lacks what the case needs.
    NotApplicable,
    /// The case could not be run.
    NotRun,
}

impl Verdict {
    /// All verdicts, in the order in which they are counted.
    pub const ALL: [Self; 7] = [
        Self::AsExpected,
        Self::Permitted,
        Self::Unadvised,
        Self::Deviation,
        Self::Unsteady,
        Self::NotApplicable,
        Self::NotRun,
    ];

    /// Returns it in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::AsExpected => "as expected",
            Self::Permitted => "permitted",
            Self::Unadvised => "unlike SHOULD",
            Self::Deviation => "DEVIATION",
            Self::Unsteady => "unsteady",
            Self::NotApplicable => "not applicable",
            Self::NotRun => "not run",
        }
    }
}

/// A case and what it found.
#[derive(Clone, Debug, serde::Serialize)]
pub struct CaseResult {
    /// The case's name.
    pub name: String,
    /// What it tests.
    pub title: String,
    /// Where that is specified.
    pub source: String,
    /// Which part of a server it tests.
    pub layer: Layer,
    /// Whether the source says MUST or SHOULD.
    pub requirement: Requirement,
    /// What was found.
    pub verdict: Verdict,
    /// The steps as the script has them.
    pub script: Vec<String>,
    /// What was sent by the steps, packet by packet.
    pub sent: Vec<String>,
    /// What is expected.
    pub expected: String,
    /// What came.
    pub came: String,
    /// How long the case took, in seconds.
    pub seconds: f64,
}

impl CaseResult {
    /// Returns whether the case is worth a second attempt before the server is blamed.
    pub(crate) fn is_to_be_repeated(&self) -> bool {
        matches!(
            self.verdict,
            Verdict::Deviation | Verdict::Unadvised | Verdict::NotRun
        )
    }

    /// Adds what a second attempt found. An `intrusive` case may have ended the server in the
    /// first one.
    pub(crate) fn add_second_attempt(&mut self, second: Self, intrusive: bool) {
        let seconds = self.seconds + second.seconds;
        let both = || format!("first: {}; when repeated: {}", self.came, second.came);
        match (self.verdict, second.verdict) {
            (Verdict::Deviation, Verdict::NotRun) if intrusive => self.came = both(),
            (_, Verdict::AsExpected | Verdict::Permitted)
            | (Verdict::Deviation | Verdict::Unadvised, Verdict::NotApplicable) => {
                self.came = both();
                self.verdict = Verdict::Unsteady;
            }
            (
                _,
                Verdict::Unadvised
                | Verdict::Deviation
                | Verdict::Unsteady
                | Verdict::NotApplicable
                | Verdict::NotRun,
            ) => *self = second,
        }
        self.seconds = seconds;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(verdict: Verdict) -> CaseResult {
        CaseResult {
            name: "a".to_owned(),
            title: "a".to_owned(),
            source: String::new(),
            layer: Layer::Transport,
            requirement: Requirement::Must,
            verdict,
            script: Vec::new(),
            sent: Vec::new(),
            expected: String::new(),
            came: String::new(),
            seconds: 1.0,
        }
    }

    /// A server is blamed for what it does twice, or for having been ended by a case that tries to.
    #[test]
    fn second_attempt_decides_unless_the_first_may_have_ended_the_server() {
        use Verdict::{AsExpected, Deviation, NotApplicable, NotRun, Permitted, Unsteady};
        for (first, second, intrusive, verdict) in [
            (Deviation, Deviation, false, Deviation),
            (Deviation, AsExpected, false, Unsteady),
            (Deviation, Permitted, true, Unsteady),
            (Deviation, NotApplicable, false, Unsteady),
            (Deviation, NotRun, false, NotRun),
            (Deviation, NotRun, true, Deviation),
            (NotRun, NotRun, true, NotRun),
            (NotRun, NotApplicable, false, NotApplicable),
            (NotRun, Deviation, false, Deviation),
        ] {
            let mut both = result(first);
            both.add_second_attempt(result(second), intrusive);
            assert_eq!(both.verdict, verdict, "{first:?}, then {second:?}");
        }
    }
}
