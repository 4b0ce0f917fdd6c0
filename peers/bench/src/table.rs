//! Medians, spreads, ratios.

use std::fmt;

use anyhow::Result;
use serde::Serialize;

use crate::{Case, Sample};

/// The stack that the others are compared with.
const OURS: &str = "clearway";

/// The samples of a stack under a load.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    pub(crate) case: Case,
    pub(crate) stack: &'static str,
    pub(crate) samples: Vec<Sample>,
    pub(crate) failures: Vec<String>,
}

impl Row {
    pub(crate) fn new(case: Case, stack: &'static str) -> Self {
        Self {
            case,
            stack,
            samples: Vec::new(),
            failures: Vec::new(),
        }
    }

    fn of(&self, figure: impl Fn(&Sample) -> Option<f64>) -> Option<Summary> {
        let mut values: Vec<f64> = self.samples.iter().filter_map(figure).collect();
        Summary::of(&mut values)
    }
}

impl Row {
    /// Returns the medians of a pair of figures.
    fn pair(
        &self,
        figures: impl Fn(&Sample) -> Option<(f64, f64)>,
        show: impl Fn(f64) -> String,
    ) -> String {
        let first = self.of(|sample| Some(figures(sample)?.0));
        let second = self.of(|sample| Some(figures(sample)?.1));
        match (first, second) {
            (Some(first), Some(second)) => {
                format!("{} / {}", show(first.median), show(second.median))
            }
            _ => String::new(),
        }
    }
}

/// The median of figures, and their spread.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Summary {
    median: f64,
    /// (Largest − smallest) ÷ median.
    spread: f64,
}

impl Summary {
    fn of(values: &mut [f64]) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (first, last) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self {
            median,
            spread: (last - first) / median.abs().max(f64::MIN_POSITIVE),
        })
    }
}

/// All samples.
#[derive(Debug, Default)]
pub(crate) struct Table {
    pub(crate) rows: Vec<Row>,
}

impl Table {
    /// Returns the number of failed samples.
    pub(crate) fn failures(&self) -> usize {
        self.rows.iter().map(|row| row.failures.len()).sum()
    }

    /// Returns every sample as JSON.
    pub(crate) fn json(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(&self.rows)?)
    }

    /// Returns Clearway's median under the same load.
    fn ours(&self, case: Case) -> Option<f64> {
        let row = self
            .rows
            .iter()
            .find(|row| row.case == case && row.stack == OURS)?;
        Some(row.of(|sample| Some(sample.value))?.median)
    }
}

/// Formats a figure in about four characters.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 1000.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:29}{:14}{:>16}{:>9}{:>11}   {:26}{:>13}{:>16}{:>5}",
            "load",
            "stack",
            "median",
            "spread",
            "clearway ÷",
            "CPU server / client",
            "busy",
            "p50 / p99 µs",
            "runs"
        )?;
        let mut last = None;
        for row in &self.rows {
            let name = if last == Some(row.case) {
                String::new()
            } else {
                row.case.name()
            };
            last = Some(row.case);
            write!(f, "{name:29}{:14}", row.stack)?;
            let Some(value) = row.of(|sample| Some(sample.value)) else {
                writeln!(f, "{:>16}", "failed")?;
                continue;
            };
            let mut figure = short(value.median);
            if let Some(client) = row.of(|sample| sample.client_value) {
                figure = format!("{figure} / {}", short(client.median));
            }
            let ratio = self.ours(row.case).map(|ours| ours / value.median);
            let ratio = ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}"));
            let [server, client] = [row.of(|s| s.server_cpu), row.of(|s| s.client_cpu)]
                .map(|cpu| cpu.map(|cpu| short(cpu.median)));
            let cpu = match (server, client) {
                (Some(server), Some(client)) => {
                    format!("{server} / {client} {}", row.case.load.cpu_unit())
                }
                _ => String::new(),
            };
            let busy = row.pair(|sample| sample.busy, |share| format!("{share:.2}"));
            if let Some(bulk) = row.of(|sample| sample.bulk) {
                figure = format!("{figure} at {} Gbit/s,", short(bulk.median));
            }
            let times = row.pair(|sample| sample.response_times, |time| format!("{time:.0}"));
            writeln!(
                f,
                "{:>16}{:>8.0}%{ratio:>11}   {cpu:26}{busy:>13}{times:>16}{:>5}",
                format!("{figure} {}", row.case.load.unit()),
                value.spread * 100.0,
                row.samples.len()
            )?;
        }
        for row in &self.rows {
            for why in &row.failures {
                writeln!(f, "failed: {}, {}: {why}", row.case.name(), row.stack)?;
            }
        }
        if self.rows.iter().any(|row| row.case.load.is_cost()) {
            writeln!(
                f,
                "memory and times: less is better; idle memory: server / client, growth ÷ connections"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Load;

    #[test]
    fn median_and_spread_are_computed() {
        let summary = Summary::of(&mut [3.0, 1.0, 2.0]).unwrap();
        assert_eq!(
            summary,
            Summary {
                median: 2.0,
                spread: 1.0
            }
        );
        assert!((Summary::of(&mut [4.0, 1.0]).unwrap().median - 2.5).abs() < 1e-9);
        assert_eq!(Summary::of(&mut []), None);
    }

    #[test]
    fn ratios_are_ours_to_theirs_and_failures_follow() {
        let sample = |value| Sample {
            value,
            client_value: None,
            bulk: None,
            server_cpu: Some(0.5),
            client_cpu: Some(0.25),
            busy: None,
            response_times: None,
        };
        let case = Case {
            load: Load::Bulk,
            spread: None,
            bulk: None,
        };
        let mut ours = Row::new(case, "clearway");
        ours.samples = vec![sample(20.0), sample(10.0), sample(15.0)];
        let mut theirs = Row::new(case, "quinn");
        theirs.samples = vec![sample(10.0)];
        theirs.failures = vec!["why".to_owned()];
        let table = Table {
            rows: vec![ours, theirs],
        };
        let text = table.to_string();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(
            lines[1][3..8],
            ["clearway", "15.0", "Gbit/s", "67%", "1.00"]
        );
        assert_eq!(lines[2][..4], ["quinn", "10.0", "Gbit/s", "0%"]);
        assert_eq!(lines[2][4], "1.50");
        assert!(text.contains("failed: bulk, 1 stream, quinn: why"));
        assert_eq!(table.failures(), 1);
    }
}
