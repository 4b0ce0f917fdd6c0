//! The output of the demo.

use std::fmt::Write as _;

use serde::Serialize;

use super::breakdown::Breakdown;
use super::chart::{Panel, WIDTH, axis};
use super::series::Series;
use crate::failure::Failure;
use crate::relay::RelayStats;

/// Lateness of the network, in microseconds, that noticeably prolongs a run: its RTT.
const LATE_US: u64 = 10_000;

/// One run, as the JSON object on stdout.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    command: &'static str,
    /// Counted from one.
    pub(super) run: u32,
    pub(super) seed: u64,
    pub(super) controller: String,
    /// Bytes asked for.
    pub(super) size: u64,
    pub(super) completed: bool,
    /// Why the run did not complete.
    pub(super) reason: Option<String>,
    /// From the client's first datagram to the last byte.
    pub(super) seconds: f64,
    /// Megabits (10⁶) of content received per second.
    pub(super) goodput_mbps: f64,
    /// What the sender waited for, in percent of the connection's life.
    pub(super) breakdown: Option<Breakdown>,
    /// Statistics of the sender.
    #[serde(flatten)]
    pub(super) sender: Option<Sender>,
    /// Statistics of the network.
    pub(super) network: Network,
}

/// Statistics of the sending connection at the end.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sender {
    /// Packets sent.
    pub(super) packets: u64,
    /// Packets declared lost.
    pub(super) losses: u64,
    /// Of these, the packets acknowledged later.
    pub(super) spurious_losses: u64,
    /// Probe timeouts.
    pub(super) ptos: u64,
    /// Smoothed RTT, milliseconds.
    pub(super) rtt_ms: f64,
    /// Bytes.
    pub(super) window: u64,
}

/// Statistics of the relay.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Network {
    /// Datagrams to the client lost at random.
    lost: u64,
    /// Datagrams to the client that found the queue full.
    queue_drops: u64,
    /// Datagrams lost by the relay itself. If this is not zero, the run's results are unreliable.
    own_losses: u64,
    /// How late the relay released datagrams, 99th percentile, microseconds.
    late_p99_us: u64,
}

impl Network {
    pub(super) fn new(stats: &RelayStats) -> Self {
        Self {
            lost: stats.down.dropped_loss,
            queue_drops: stats.down.dropped_queue,
            own_losses: stats.own_losses.total(),
            late_p99_us: stats.lateness.percentile(99).as_micros() as u64,
        }
    }
}

impl Report {
    /// Creates an empty report.
    pub(super) fn new(run: u32, seed: u64, controller: String, size: u64) -> Self {
        Self {
            command: "demo",
            run,
            seed,
            controller,
            size,
            completed: false,
            reason: None,
            seconds: 0.0,
            goodput_mbps: 0.0,
            breakdown: None,
            sender: None,
            network: Network::default(),
        }
    }

    /// Records how long it took for `bytes` to arrive.
    pub(super) fn set_time(&mut self, seconds: f64, bytes: u64) {
        self.seconds = round(seconds, 1e6);
        self.goodput_mbps = round(bytes as f64 * 8.0 / 1e6 / seconds.max(1e-9), 1e3);
    }

    /// Records why the run did not complete.
    pub(super) fn fail(&mut self, failure: &Failure) {
        self.completed = false;
        self.reason = Some(failure.message.clone());
    }

    /// One line for people.
    pub(super) fn line(&self, runs: u32) -> String {
        let mut text = format!("run {}/{runs}, seed {}: ", self.run, self.seed);
        // Writing to a String cannot fail.
        let _ = match &self.reason {
            None => write!(
                text,
                "{:.2} s, {:.1} Mbit/s",
                self.seconds, self.goodput_mbps
            ),
            Some(reason) => write!(text, "NOT COMPLETED: {reason}"),
        };
        if let Some(sender) = &self.sender {
            let _ = write!(text, ", {} losses, {} PTOs", sender.losses, sender.ptos);
        }
        text
    }

    /// The breakdown, and warnings about the run.
    pub(super) fn details(&self) -> String {
        let mut text = String::new();
        if let Some(breakdown) = &self.breakdown {
            let _ = writeln!(text, "the sender waited for: {}", breakdown.text());
        }
        if self.network.own_losses > 0 {
            let _ = writeln!(
                text,
                "warning: the relay lost {} datagram(s) that the simulated network would have delivered",
                self.network.own_losses
            );
        }
        if self.network.late_p99_us > LATE_US {
            let _ = writeln!(
                text,
                "warning: this host is busy: 1 % of the datagrams were delivered at least {} ms late",
                self.network.late_p99_us / 1_000
            );
        }
        text
    }
}

/// Charts of the window and the bytes in flight, one above the other on the same scale.
pub(super) fn picture(series: &Series) -> String {
    let columns = series.columns(WIDTH);
    let windows: Vec<u64> = columns.iter().map(|bin| bin.window).collect();
    let flights: Vec<u64> = columns.iter().map(|bin| bin.in_flight).collect();
    let top = windows.iter().chain(&flights).max().copied().unwrap_or(0);
    let panel = |title, values| Panel {
        title,
        height: 6,
        values,
        top,
    };
    format!(
        "{}{}{}",
        panel("congestion window", &windows).draw(),
        panel("bytes in flight (peaks)", &flights).draw(),
        axis(series.seconds()),
    )
}

/// The summary of all runs.
pub(super) fn summary(reports: &[Report]) -> String {
    let mut seconds: Vec<f64> = reports
        .iter()
        .filter(|report| report.completed)
        .map(|report| report.seconds)
        .collect();
    seconds.sort_by(f64::total_cmp);
    let mut text = format!("{} of {} completed", seconds.len(), reports.len());
    if let (Some(median), Some(worst)) = (median(&seconds), seconds.last()) {
        let _ = write!(text, ", median {median:.2} s, worst {worst:.2} s");
    }
    text
}

/// The median of a sorted list.
fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

/// To a whole multiple of 1/`unit`, so that JSON shows no noise.
fn round(value: f64, unit: f64) -> f64 {
    (value * unit).round() / unit
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Kind;

    fn run(run: u32, seconds: Option<f64>) -> Report {
        let mut report = Report::new(run, 7, "cubic".to_owned(), 10_000_000);
        match seconds {
            Some(seconds) => {
                report.completed = true;
                report.set_time(seconds, 10_000_000);
            }
            None => report.fail(&Failure::new(Kind::Timeout, "timed out after 30 s")),
        }
        report
    }

    #[test]
    fn summary_counts_completed_runs() {
        let mut reports = vec![run(1, Some(3.0)), run(2, None), run(3, Some(5.0))];
        assert_eq!(
            summary(&reports),
            "2 of 3 completed, median 4.00 s, worst 5.00 s"
        );
        reports.push(run(4, Some(4.5)));
        assert!(summary(&reports).contains("3 of 4 completed, median 4.50 s"));
        assert_eq!(summary(&[run(1, None)]), "0 of 1 completed");
    }

    #[test]
    fn report_warns_when_the_host_is_busy() {
        let mut report = run(1, Some(4.0));
        assert_eq!(report.details(), "");
        report.network.late_p99_us = 131_072;
        assert!(report.details().contains("busy"));
        assert!(report.details().contains("at least 131 ms late"));
        report.network.own_losses = 3;
        assert!(report.details().contains("lost 3 datagram(s)"));
    }

    #[test]
    fn report_is_written_as_json_and_as_text() {
        let json = serde_json::to_value(run(2, Some(4.0))).unwrap();
        assert_eq!(json["completed"], true);
        assert_eq!(json["goodput_mbps"], 20.0);
        assert_eq!(json["seconds"], 4.0);
        assert!(json["reason"].is_null());
        let line = run(2, None).line(3);
        assert_eq!(line, "run 2/3, seed 7: NOT COMPLETED: timed out after 30 s");
        assert_eq!(
            run(1, Some(4.0)).line(1),
            "run 1/1, seed 7: 4.00 s, 20.0 Mbit/s"
        );
    }
}
