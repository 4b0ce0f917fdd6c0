//! Sweeps: grids of plain paths.

use core::fmt::{self, Write as _};

use crate::scenario::{MOST_POINTS, Scenario, ScenarioError};

/// The dimensions of a sweep; each list is one.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Rates: `10M`.
    pub rate: Vec<String>,
    /// Two-way propagation delays: `30ms`.
    pub rtt: Vec<String>,
    /// Queue limits: `25`, `64KB`, `1bdp`, `80ms`.
    pub queue: Vec<String>,
    /// Random loss, in both directions: `1%`.
    pub loss: Vec<String>,
    /// More settings for both directions: `jitter=1ms`.
    pub also: String,
    /// The traffic: `download`, `upload` or `both`.
    pub traffic: String,
    /// Bytes to transfer.
    pub bytes: String,
    /// Maximum virtual time of a run.
    pub duration: String,
    /// Number of flows that start together.
    pub flows: u32,
    /// Measurement begins after this.
    pub warmup: String,
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
            flows: 1,
            warmup: "0s".to_owned(),
        }
    }
}

/// Why a sweep cannot be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SweepError {
    /// There are more points than a grid may have.
    Points(usize),
    /// The options that are invalid, and why.
    Options {
        /// The options, such as `--rate -5M`.
        options: String,
        /// The problem, and what is expected.
        problem: String,
    },
}

impl fmt::Display for SweepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Points(points) => {
                write!(
                    f,
                    "the sweep has {points} points; expected at most {MOST_POINTS}"
                )
            }
            Self::Options { options, problem } => write!(f, "{options}: {problem}"),
        }
    }
}

impl std::error::Error for SweepError {}

impl SweepError {
    fn new(options: String, error: &ScenarioError) -> Self {
        let gap = if error.help.is_empty() { "" } else { "; " };
        Self::Options {
            options,
            problem: format!("{}{gap}{}", error.problem, error.help),
        }
    }
}

impl Sweep {
    /// Converts the sweep to a scenario.
    ///
    /// # Errors
    /// If a value is invalid, or there are too many points.
    pub fn scenario(&self) -> Result<Scenario, SweepError> {
        let points = self.points();
        if points > MOST_POINTS {
            return Err(SweepError::Points(points));
        }
        Scenario::parse("sweep", &self.text()).map_err(|error| self.blame(&error))
    }

    /// The number of grid points.
    #[must_use]
    pub fn points(&self) -> usize {
        let axes = [&self.rate, &self.rtt, &self.queue, &self.loss];
        axes.into_iter()
            .map(Vec::len)
            .fold(1, usize::saturating_mul)
    }

    /// Finds the option to blame, because the user does not see the text that is parsed: one that
    /// is invalid among default values, or else a point.
    fn blame(&self, error: &ScenarioError) -> SweepError {
        let alone = self.alone().into_iter();
        let mut wrong = alone.chain(self.each()).filter_map(|(options, sweep)| {
            let error = Scenario::parse("sweep", &sweep.text()).err()?;
            Some(SweepError::new(options, &error))
        });
        wrong
            .next()
            .unwrap_or_else(|| SweepError::new("the sweep".to_owned(), error))
    }

    /// Each value among default values, as an option.
    fn alone(&self) -> Vec<(String, Self)> {
        let plain = Self {
            rate: vec!["100M".to_owned()],
            rtt: vec!["100ms".to_owned()],
            queue: vec!["1000".to_owned()],
            loss: vec!["0%".to_owned()],
            ..Self::default()
        };
        let mut given = self.clone();
        let mut all = Vec::new();
        for (place, (name, values)) in given.lists().into_iter().enumerate() {
            for value in values.iter() {
                let mut sweep = plain.clone();
                *sweep.lists()[place].1 = vec![value.clone()];
                all.push((format!("--{name} {value:?}"), sweep));
            }
        }
        for (place, (name, value)) in given.texts().into_iter().enumerate() {
            let mut sweep = plain.clone();
            sweep.texts()[place].1.clone_from(value);
            all.push((format!("--{name} {value:?}"), sweep));
        }
        all
    }

    /// The options that have several values.
    const fn lists(&mut self) -> [(&'static str, &mut Vec<String>); 4] {
        [
            ("rate", &mut self.rate),
            ("rtt", &mut self.rtt),
            ("queue", &mut self.queue),
            ("loss", &mut self.loss),
        ]
    }

    /// The options that have one value.
    const fn texts(&mut self) -> [(&'static str, &mut String); 5] {
        [
            ("warmup", &mut self.warmup),
            ("also", &mut self.also),
            ("traffic", &mut self.traffic),
            ("bytes", &mut self.bytes),
            ("duration", &mut self.duration),
        ]
    }

    /// Each point by itself, as options.
    fn each(&self) -> impl Iterator<Item = (String, Self)> {
        let paths = self.rate.iter().flat_map(move |rate| {
            let rtts = self.rtt.iter();
            rtts.flat_map(move |rtt| self.queue.iter().map(move |queue| (rate, rtt, queue)))
        });
        let points = paths.flat_map(|path| self.loss.iter().map(move |loss| (path, loss)));
        points.map(|((rate, rtt, queue), loss)| {
            let sweep = Self {
                rate: vec![rate.clone()],
                rtt: vec![rtt.clone()],
                queue: vec![queue.clone()],
                loss: vec![loss.clone()],
                ..self.clone()
            };
            let options = format!("--rate {rate} --rtt {rtt} --queue {queue} --loss {loss}");
            (options, sweep)
        })
    }

    /// The scenario's text.
    #[must_use]
    pub fn text(&self) -> String {
        let Self {
            also,
            traffic,
            bytes,
            duration,
            flows,
            warmup,
            ..
        } = self;
        let mut text = format!(
            "name = \"sweep\"\ntitle = \"A grid of paths\"\nduration = {}\nwarmup = {}\n\n[grid]\n",
            quote(duration),
            quote(warmup)
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
            "\n[network]\nrtt = \"{{rtt}}\"\nboth = {settings}\n\n[[flows]]\ntraffic = {}\nbytes = {}\nflows = {flows}\n\n[pass]\ncompletes_within = {}\n",
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
    fn sweep_compiles_to_a_scenario() {
        let scenario = Sweep::default().scenario().unwrap();
        let cases = scenario.cases(Size::Full, "cubic").unwrap();
        assert_eq!(cases.len(), 8);
        // The variables of the grid are in alphabetical order.
        assert_eq!(cases[0].variant, "loss=0% queue=1bdp rate=10M rtt=10ms");
    }

    /// The error of the plain sweep after a change.
    fn error(change: impl FnOnce(&mut Sweep)) -> String {
        let mut sweep = Sweep::default();
        change(&mut sweep);
        sweep.scenario().unwrap_err().to_string()
    }

    #[test]
    fn sweep_error_names_the_option() {
        let rate = error(|sweep| sweep.rate.push("-5M".to_owned()));
        assert!(
            rate.starts_with("--rate \"-5M\": invalid rate \"-5M\""),
            "{rate}"
        );
        let also = error(|sweep| sweep.also = "rate=5M".to_owned());
        assert!(
            also.starts_with("--also \"rate=5M\": \"rate\" is set more than once"),
            "{also}"
        );
        let bytes = error(|sweep| sweep.bytes = "0".to_owned());
        assert!(bytes.starts_with("--bytes \"0\": "), "{bytes}");
        let queue = error(|sweep| sweep.queue = vec!["1e30bdp".to_owned()]);
        assert!(queue.starts_with("--queue \"1e30bdp\": "), "{queue}");
    }

    #[test]
    fn invalid_combination_names_the_sweep_point() {
        let both = error(|sweep| {
            sweep.rate = vec!["100M".to_owned(), "1M".to_owned()];
            sweep.queue = vec!["0.1bdp".to_owned()];
            sweep.rtt = vec!["20ms".to_owned()];
        });
        let point = "--rate 1M --rtt 20ms --queue 0.1bdp --loss 0%: ";
        assert!(both.starts_with(point), "{both}");
    }

    #[test]
    fn oversized_sweep_is_rejected_before_it_is_expanded() {
        let many = |text: &str| vec![text.to_owned(); 100];
        let error = error(|sweep| {
            sweep.rate = many("10M");
            sweep.rtt = many("10ms");
            sweep.loss = many("0%");
        });
        assert_eq!(
            error,
            "the sweep has 1000000 points; expected at most 10000"
        );
    }
}
