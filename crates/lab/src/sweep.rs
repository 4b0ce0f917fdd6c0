//! Sweeps: a grid of paths without anything special about them.

use core::fmt::Write as _;

use crate::scenario::{Scenario, ScenarioError};

/// What a sweep varies; each list is one dimension.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Rates: `10M`.
    pub rate: Vec<String>,
    /// Two-way propagation delays: `30ms`.
    pub rtt: Vec<String>,
    /// Queues: `25`, `64KB`, `1bdp`, `80ms`.
    pub queue: Vec<String>,
    /// Random loss, both ways: `1%`.
    pub loss: Vec<String>,
    /// Settings for both directions beside these: `jitter=1ms`.
    pub also: String,
    /// What is carried: `download`, `upload` or `both`.
    pub traffic: String,
    /// How much.
    pub bytes: String,
    /// Virtual time at most.
    pub duration: String,
}

impl Default for Sweep {
    fn default() -> Self {
        Self {
            rate: vec!["10M".to_owned(), "100M".to_owned()],
            rtt: vec!["10ms".to_owned(), "100ms".to_owned()],
            queue: vec!["1bdp".to_owned()],
            loss: vec!["0%".to_owned(), "1%".to_owned()],
            also: String::new(),
            traffic: "download".to_owned(),
            bytes: "10MB".to_owned(),
            duration: "120s".to_owned(),
        }
    }
}

impl Sweep {
    /// The sweep as a scenario, and as the text of one.
    ///
    /// # Errors
    /// If a value cannot be understood.
    pub fn scenario(&self) -> Result<Scenario, ScenarioError> {
        Scenario::parse("sweep", &self.text())
    }

    /// The scenario's text.
    #[must_use]
    pub fn text(&self) -> String {
        let Self {
            also,
            traffic,
            bytes,
            duration,
            ..
        } = self;
        let mut text = format!(
            "name = \"sweep\"\ntitle = \"A grid of paths\"\nduration = {}\n\n[grid]\n",
            quote(duration)
        );
        let axes = [
            ("rate", &self.rate),
            ("rtt", &self.rtt),
            ("queue", &self.queue),
            ("loss", &self.loss),
        ];
        for (name, values) in axes {
            let values: Vec<String> = values.iter().map(|value| quote(value)).collect();
            let _ = writeln!(text, "{name} = [{}]", values.join(", "));
        }
        let settings = quote(&format!(
            "rate={{rate}} queue={{queue}} loss={{loss}} {also}"
        ));
        let _ = write!(
            text,
            "\n[network]\nrtt = \"{{rtt}}\"\nboth = {settings}\n\n[[flows]]\ntraffic = {}\nbytes = {}\n\n[pass]\ncompletes_within = {}\n",
            quote(traffic),
            quote(bytes),
            quote(duration)
        );
        text
    }
}

/// A TOML string.
fn quote(text: &str) -> String {
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Size;

    #[test]
    fn a_sweep_is_a_scenario() {
        let scenario = Sweep::default().scenario().unwrap();
        let cases = scenario.cases(Size::Full, "cubic").unwrap();
        assert_eq!(cases.len(), 8);
        // The grid's names are in the order of the alphabet.
        assert_eq!(cases[0].variant, "loss=0% queue=1bdp rate=10M rtt=10ms");
    }

    #[test]
    fn a_wrong_value_is_named() {
        let sweep = Sweep {
            rate: vec!["-5M".to_owned()],
            ..Sweep::default()
        };
        let error = sweep.scenario().unwrap_err().to_string();
        assert!(error.contains("bad rate \"-5M\""), "{error}");
    }
}
