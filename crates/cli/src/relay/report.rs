//! The output of the relay.

use core::net::SocketAddr;
use core::time::Duration;
use std::fmt::Write as _;

use clearway_links::{LinkConfig, LinkStats};
use serde::Serialize;

use super::stats::RelayLosses;
use super::{Config, RelayStats};

/// A run, as the JSON object on stdout.
#[derive(Debug, Serialize)]
pub(super) struct Report<'a> {
    command: &'static str,
    listen: SocketAddr,
    to: SocketAddr,
    seed: u64,
    duration_ms: u64,
    flows: u64,
    live_flows: u64,
    rebinds: u64,
    stale: u64,
    strays: u64,
    /// Datagrams lost by the relay itself. If this is not zero, the run's results are unreliable.
    own_losses: RelayLosses,
    lateness_us: LatenessReport,
    up: LinkReport<'a>,
    down: LinkReport<'a>,
}

#[derive(Debug, Serialize)]
struct LatenessReport {
    mean: u64,
    p50: u64,
    p99: u64,
    max: u64,
}

/// One direction, with drops by cause.
#[derive(Debug, Serialize)]
struct LinkReport<'a> {
    settings: String,
    sent: u64,
    sent_bytes: u64,
    delivered: u64,
    delivered_bytes: u64,
    dropped_queue: u64,
    dropped_aqm: u64,
    dropped_policer: u64,
    dropped_loss: u64,
    dropped_list: u64,
    dropped_blackhole: u64,
    dropped_thinned: u64,
    duplicated: u64,
    corrupted: u64,
    reordered: u64,
    ce_marked: u64,
    max_queue_packets: u64,
    max_queue_bytes: u64,
    queueing_mean_us: u64,
    queueing_p50_us: u64,
    queueing_p99_us: u64,
    queueing_max_us: u64,
    #[serde(skip)]
    stats: &'a LinkStats,
}

impl<'a> Report<'a> {
    pub(super) fn new(
        config: &Config,
        listen: SocketAddr,
        duration: Duration,
        stats: &'a RelayStats,
    ) -> Self {
        let lateness = &stats.lateness;
        Self {
            command: "relay",
            listen,
            to: config.to,
            seed: config.seed,
            duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
            flows: stats.flows,
            live_flows: stats.live_flows,
            rebinds: stats.rebinds,
            stale: stats.stale,
            strays: stats.strays,
            own_losses: stats.own_losses,
            lateness_us: LatenessReport {
                mean: micros(lateness.mean()),
                p50: micros(lateness.percentile(50)),
                p99: micros(lateness.percentile(99)),
                max: micros(lateness.max()),
            },
            up: LinkReport::new(&config.up, &stats.up),
            down: LinkReport::new(&config.down, &stats.down),
        }
    }

    /// A few lines for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{} client(s), {} rebind(s) in {}.{:03} s; release delay {} µs on average, p99 {} µs, \
             max {} µs",
            self.flows,
            self.rebinds,
            self.duration_ms / 1000,
            self.duration_ms % 1000,
            self.lateness_us.mean,
            self.lateness_us.p99,
            self.lateness_us.max,
        );
        let _ = writeln!(text, "up    {}", self.up.text());
        let _ = writeln!(text, "down  {}", self.down.text());
        if self.own_losses.total() > 0 {
            let own = &self.own_losses;
            let _ = writeln!(
                text,
                "warning: the relay lost {} datagram(s) that the simulated links would have delivered: \
                 receive buffer {}, send {}, too large {}, memory {}, refused {}",
                own.total(),
                own.receive,
                own.send,
                own.too_large,
                own.memory,
                own.refused,
            );
        }
        text
    }
}

impl<'a> LinkReport<'a> {
    fn new(config: &LinkConfig, stats: &'a LinkStats) -> Self {
        Self {
            settings: config.to_string(),
            sent: stats.sent,
            sent_bytes: stats.sent_bytes,
            delivered: stats.delivered,
            delivered_bytes: stats.delivered_bytes,
            dropped_queue: stats.dropped_queue,
            dropped_aqm: stats.dropped_aqm,
            dropped_policer: stats.dropped_policer,
            dropped_loss: stats.dropped_loss,
            dropped_list: stats.dropped_list,
            dropped_blackhole: stats.dropped_blackhole,
            dropped_thinned: stats.dropped_thinned,
            duplicated: stats.duplicated,
            corrupted: stats.corrupted,
            reordered: stats.reordered,
            ce_marked: stats.ce_marked,
            max_queue_packets: stats.max_queue_packets,
            max_queue_bytes: stats.max_queue_bytes,
            queueing_mean_us: micros(stats.sojourn.mean()),
            queueing_p50_us: micros(stats.sojourn.percentile(50)),
            queueing_p99_us: micros(stats.sojourn.percentile(99)),
            queueing_max_us: micros(stats.queueing_max),
            stats,
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} sent, {} delivered ({} bytes)",
            self.sent, self.delivered, self.delivered_bytes
        );
        let named = [
            ("dropped by the queue", self.dropped_queue),
            ("dropped by AQM", self.dropped_aqm),
            ("policed", self.dropped_policer),
            ("lost", self.dropped_loss),
            ("dropped by the drop list", self.dropped_list),
            ("blackholed", self.dropped_blackhole),
            ("thinned out", self.dropped_thinned),
            ("duplicated", self.duplicated),
            ("corrupted", self.corrupted),
            ("reordered", self.reordered),
            ("CE-marked", self.ce_marked),
        ];
        for (name, count) in named.into_iter().filter(|&(_, count)| count > 0) {
            let _ = write!(text, ", {count} {name}");
        }
        if self.stats.max_queue_packets > 0 {
            let _ = write!(
                text,
                "; queue up to {} packets, {} µs (p50 {}, p99 {})",
                self.max_queue_packets,
                self.queueing_max_us,
                self.queueing_p50_us,
                self.queueing_p99_us
            );
        }
        text
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
