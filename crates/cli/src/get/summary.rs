//! The summary of `clearway get`.

use core::time::Duration;
use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use super::tally::{Tally, WaitTimes};
use crate::demo::Breakdown;
use crate::failure::Failure;

/// The summary, for scripts and people.
#[derive(Debug, Serialize)]
pub(super) struct Summary {
    completed: bool,
    error: Option<String>,
    /// Transfers that succeeded.
    done: u64,
    /// Transfers that failed.
    failed: u64,
    /// Transfers not tried because of other failures or an early end.
    not_tried: u64,
    bytes: u64,
    uploaded: u64,
    /// Bytes resumed from earlier runs.
    kept: u64,
    seconds: f64,
    gbps: f64,
    rtt_ms: Option<f64>,
    /// Statistics of the sender of most data; unknown if it did not report.
    packets_sent: Option<u64>,
    packets_lost: Option<u64>,
    #[serde(flatten)]
    limited: LimitedBy,
}

/// What limited the transfer, and who says so.
#[derive(Debug, Serialize)]
#[serde(tag = "breakdown_by", rename_all = "lowercase")]
enum LimitedBy {
    /// The server sent, and reported.
    Server {
        breakdown: Breakdown,
    },
    /// The client sent, and knows.
    Client {
        breakdown: Breakdown,
    },
    /// The server sent and did not report: inferred by the client.
    Inference {
        breakdown: InferredShares,
    },
    Nobody,
}

/// Shares of a receiver's time.
#[derive(Debug)]
struct InferredShares(WaitTimes);

impl Summary {
    pub(super) fn of(tally: &Tally, time: Duration, failure: Option<&Failure>) -> Self {
        let stats = tally.connection.as_ref().map(clearway::Connection::stats);
        let uploaded = tally.uploaded.load(Relaxed);
        let larger = tally.received.max(uploaded);
        let seconds = time.as_secs_f64();
        let uploading = uploaded > tally.received;
        let (packets, limited) = match (&tally.sender, &stats) {
            (_, Some(stats)) if uploading => {
                let counters = &stats.counters;
                let packets = (counters.packets_sent, counters.packets_lost);
                let breakdown = Breakdown::new(&stats.limits);
                let limited = breakdown.map(|breakdown| LimitedBy::Client { breakdown });
                (Some(packets), limited)
            }
            (Some(sender), _) => {
                let breakdown = Breakdown::new(&sender.limits);
                let limited = breakdown.map(|breakdown| LimitedBy::Server { breakdown });
                (Some((sender.packets_sent, sender.packets_lost)), limited)
            }
            (None, _) => {
                let inferred = InferredShares(tally.waits);
                let limited = (inferred.total() > 0.0).then_some(LimitedBy::Inference {
                    breakdown: inferred,
                });
                (None, limited)
            }
        };
        Self {
            completed: failure.is_none(),
            error: failure.map(|failure| failure.message.clone()),
            done: tally.done,
            failed: tally.failed,
            not_tried: tally.not_tried,
            bytes: tally.received,
            uploaded,
            kept: tally.kept,
            seconds,
            gbps: larger as f64 * 8.0 / 1e9 / seconds.max(1e-9),
            rtt_ms: stats.map(|stats| stats.smoothed_rtt.as_micros() as f64 / 1e3),
            packets_sent: packets.map(|(sent, _)| sent),
            packets_lost: packets.map(|(_, lost)| lost),
            limited: limited.unwrap_or(LimitedBy::Nobody),
        }
    }

    /// For people, in two lines.
    pub(super) fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.done + self.failed > 1 {
            parts.push(format!("{} of {} URLs", self.done, self.done + self.failed));
        }
        if self.uploaded > 0 {
            parts.push(format!("{} bytes sent", self.uploaded));
        }
        if self.bytes > 0 || self.uploaded == 0 {
            parts.push(format!("{} bytes received", self.bytes));
        }
        if self.kept > 0 {
            parts.push(format!("{} bytes resumed", self.kept));
        }
        parts.push(format!("{:.2} s", self.seconds));
        parts.push(if self.gbps >= 1.0 {
            format!("{:.2} Gbit/s", self.gbps)
        } else {
            format!("{:.1} Mbit/s", self.gbps * 1e3)
        });
        parts.extend(self.rtt_ms.map(|rtt| format!("RTT {rtt:.2} ms")));
        parts.push(match (self.packets_lost, self.packets_sent) {
            (Some(lost), Some(sent)) => format!("{lost} of {sent} packets lost"),
            _ => "packet loss known only to the server".to_owned(),
        });
        let first = parts.join(", ");
        match &self.limited {
            LimitedBy::Server { breakdown } => {
                format!(
                    "{first}\nlimited by: {} (reported by the server)",
                    breakdown.text()
                )
            }
            LimitedBy::Client { breakdown } => {
                format!("{first}\nlimited by: {} (measured here)", breakdown.text())
            }
            LimitedBy::Inference { breakdown } => {
                format!(
                    "{first}\nlimited by: {} (inferred: the server sent no report)",
                    breakdown.text()
                )
            }
            LimitedBy::Nobody => first,
        }
    }
}

impl InferredShares {
    fn total(&self) -> f64 {
        let Self(waits) = self;
        waits
            .each()
            .iter()
            .map(|(_, _, time)| time.as_secs_f64())
            .sum()
    }

    fn percent(&self, time: Duration) -> f64 {
        (time.as_secs_f64() / self.total() * 1000.0).round() / 10.0
    }

    /// In one line, the largest share first.
    fn text(&self) -> String {
        let Self(waits) = self;
        let mut waits = waits.each();
        waits.sort_by_key(|&(_, _, time)| core::cmp::Reverse(time));
        let texts: Vec<_> = waits
            .into_iter()
            .map(|(_, words, time)| (words, self.percent(time)))
            .filter(|&(_, percent)| percent > 0.0)
            .map(|(words, percent)| format!("{percent:.1} % {words}"))
            .collect();
        texts.join(", ")
    }
}

impl Serialize for InferredShares {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(waits) = self;
        let mut map = serializer.serialize_map(Some(waits.each().len()))?;
        for (key, _, time) in waits.each() {
            map.serialize_entry(key, &self.percent(time))?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_marks_inferred_breakdown_as_inferred() {
        let tally = Tally {
            done: 1,
            received: 1_000_000,
            waits: WaitTimes {
                connecting: Duration::from_millis(10),
                content: Duration::from_millis(970),
                output: Duration::from_millis(20),
                answer: Duration::ZERO,
            },
            ..Tally::default()
        };
        let summary = Summary::of(&tally, Duration::from_secs(1), None);
        assert_eq!(
            summary.text(),
            "1000000 bytes received, 1.00 s, 8.0 Mbit/s, packet loss known only to the server\n\
             limited by: 97.0 % network or server, 2.0 % writing here, 1.0 % connecting \
             (inferred: the server sent no report)"
        );
        let json = serde_json::to_value(&summary).unwrap();
        assert_eq!(json["breakdown_by"], "inference");
        assert_eq!(json["breakdown"]["content"], 97.0);
        assert_eq!(json["completed"], true);
    }
}
