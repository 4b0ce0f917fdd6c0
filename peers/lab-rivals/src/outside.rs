//! What a run shows from outside, and what that looks like.

use clearway_lab::measure::{Bulk, Outcome, percentile};
use clearway_lab::run::Group;
use clearway_lab::scenario::{Case, Flow};

/// Figures of one run that rows do not have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outside {
    /// Median congestion window of the first bulk flow's sender, bytes.
    window: f64,
    /// Median of its bytes in flight.
    in_flight: f64,
    /// Rate times propagation delay, bytes, shared by the bulk flows.
    path: Option<f64>,
    /// Part of all packets that the network dropped in the bulk's direction;
    /// `None` where clients have links of their own.
    dropped: Option<f64>,
    /// Propagation delay there and back, seconds.
    base_rtt: f64,
}

impl Outside {
    /// Looks at a run; `None` if it never began.
    pub(crate) fn of(case: &Case, run: &Outcome) -> Option<Self> {
        let flow = run.bulk_flows().next()?;
        let (link, capacity) = match flow.bulk {
            Bulk::Down | Bulk::Both => (&run.down, run.down_capacity),
            Bulk::Up => (&run.up, run.up_capacity),
        };
        let middle = |of: fn(&clearway_lab::measure::Sample) -> u64| {
            let values: Vec<f64> = flow
                .since(run.warmup)
                .iter()
                .map(|s| of(s) as f64)
                .collect();
            percentile(&values, 0.5).unwrap_or(0.0)
        };
        let moves = |flow: &Flow| flow.moves.leg.is_some() || !flow.moves.migrate.is_empty();
        let shared = !case.flows.iter().any(moves);
        let base_rtt = flow.base_rtt.as_secs_f64();
        let seconds = (run.ended - run.warmup).as_secs_f64();
        let flows = run.bulk_flows().count().max(1) as f64;
        let path = capacity
            .filter(|_| seconds > 0.0)
            .map(|bits| bits / seconds / 8.0 * base_rtt / flows);
        Some(Self {
            window: middle(|sample| sample.window),
            in_flight: middle(|sample| sample.in_flight),
            path,
            dropped: shared.then(|| link.dropped() as f64 / link.sent.max(1) as f64),
            base_rtt,
        })
    }

    /// The medians of several runs.
    pub(crate) fn median(all: &[Self]) -> Option<Self> {
        let middle = |of: fn(&Self) -> f64| {
            let values: Vec<f64> = all.iter().map(of).collect();
            percentile(&values, 0.5)
        };
        let paths: Vec<f64> = all.iter().filter_map(|one| one.path).collect();
        let drops: Vec<f64> = all.iter().filter_map(|one| one.dropped).collect();
        Some(Self {
            window: middle(|one| one.window)?,
            in_flight: middle(|one| one.in_flight)?,
            path: percentile(&paths, 0.5),
            dropped: percentile(&drops, 0.5),
            base_rtt: middle(|one| one.base_rtt)?,
        })
    }
}

/// What the medians of a rival's runs show, and what that looks like.
pub(crate) fn of_rival(group: &Group, outside: Option<&Outside>) -> String {
    let Some(outside) = outside else {
        return "no connection".to_owned();
    };
    let declared = group.median("loss").unwrap_or(0.0);
    let queue = group.median("queue_p95").unwrap_or(0.0);
    let filled = outside.path.map_or_else(String::new, |path| {
        format!(" ({:.0} % of the path)", 100.0 * outside.window / path)
    });
    let dropped = outside.dropped.map_or_else(String::new, |dropped| {
        format!(", dropped by the network {:.2} %", dropped * 100.0)
    });
    let measured = format!(
        "window {:.0} kB{filled}, in flight {:.0} kB, declared lost {:.2} %{dropped}, queue p95 \
         {:.1} ms",
        outside.window / 1e3,
        outside.in_flight / 1e3,
        declared * 100.0,
        queue * 1e3,
    );
    match looks_like(group, outside, declared, queue) {
        Some(reading) => format!("{measured}; {reading}"),
        None => measured,
    }
}

/// Round trips at the least window that are too many.
const STUCK: f64 = 20.0;

/// A reading of the figures, the most telling first.
fn looks_like(group: &Group, outside: &Outside, declared: f64, queue: f64) -> Option<&'static str> {
    const CREDIBLE: f64 = 0.001;
    let floor = group.median("floor_rtts").unwrap_or(0.0);
    let over = |share: f64| {
        outside
            .path
            .is_some_and(|path| outside.window > share * path)
    };
    if floor > STUCK {
        Some("looks like a window that stays at its floor with data waiting")
    } else if outside
        .dropped
        .is_some_and(|dropped| declared > 1.5 * dropped + CREDIBLE)
    {
        Some("looks like packets declared lost that were only late")
    } else if declared > 0.0 && !over(0.8) && outside.path.is_some() {
        Some("looks like a window that gives way to loss faster than it grows")
    } else if queue > outside.base_rtt {
        Some("looks like a window that keeps the queue full")
    } else if outside.in_flight < 0.5 * outside.window {
        Some("the window was not what held it: pacing, credit, timers or the application")
    } else {
        None
    }
}

/// What held ours back: its own account of why it did not send.
pub(crate) fn of_ours(group: &Group) -> String {
    let mut spent: Vec<(&str, f64)> = Vec::new();
    for row in &group.rows {
        for (name, share) in &row.limits {
            match spent.iter_mut().find(|(known, _)| known == name) {
                Some((_, sum)) => *sum += share,
                None => spent.push((name, *share)),
            }
        }
    }
    let runs = group.rows.len().max(1) as f64;
    spent.sort_by(|a, b| b.1.total_cmp(&a.1));
    let told: Vec<String> = spent
        .iter()
        .take(3)
        .filter(|(_, sum)| *sum / runs >= 0.01)
        .map(|(name, sum)| format!("{} {:.0} %", name.replace('_', " "), 100.0 * sum / runs))
        .collect();
    if told.is_empty() {
        "no account of its time".to_owned()
    } else {
        format!("held by {}", told.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Group {
        Group {
            scenario: String::new(),
            variant: String::new(),
            controller: String::new(),
            rows: Vec::new(),
            bars: Vec::new(),
            reached_after_all: Vec::new(),
            shortfalls: Vec::new(),
        }
    }

    const PATH: Outside = Outside {
        window: 100e3,
        in_flight: 90e3,
        path: Some(100e3),
        dropped: Some(0.01),
        base_rtt: 0.05,
    };

    #[test]
    fn readings_follow_the_figures() {
        let read = |outside: &Outside, declared, queue| {
            looks_like(&group(), outside, declared, queue).unwrap_or_default()
        };
        assert!(read(&PATH, 0.05, 0.0).contains("only late"));
        assert!(read(&PATH, 0.01, 0.1).contains("queue full"));
        let small = Outside {
            window: 20e3,
            ..PATH
        };
        assert!(read(&small, 0.01, 0.0).contains("gives way"));
        let idle = Outside {
            in_flight: 10e3,
            ..PATH
        };
        assert!(read(&idle, 0.01, 0.0).contains("not what held it"));
        assert_eq!(read(&PATH, 0.01, 0.0), "");
    }
}
