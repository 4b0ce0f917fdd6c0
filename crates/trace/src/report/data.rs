//! A trace as the page's script reads it: lanes, marks, problems. Times are in microseconds.

use serde::Serialize;

use super::unit::{Unit, amount};
use super::{MAX_PANELS, Panel};
use crate::diagnosis::{Examination, Problem};
use crate::series::{Series, Track};

/// Points of one line if there is one trace; several share them.
const POINTS: usize = 24_000;
/// Fewest points of one line.
const FEW_POINTS: usize = 1_500;
/// Marks of one kind (losses, states, limits) if there is one trace.
const MARKS: usize = 20_000;

/// One line of a lane.
#[derive(Serialize)]
struct Line {
    name: &'static str,
    /// The time of each point, as the difference to the one before.
    t: Vec<u64>,
    v: Vec<u64>,
}

/// Lines that share a scale.
#[derive(Serialize)]
struct Lane {
    name: &'static str,
    unit: &'static str,
    lines: Vec<Line>,
}

#[derive(Serialize)]
struct Data<'a> {
    title: &'a str,
    facts: Vec<(String, String)>,
    headline: &'a str,
    severity: Option<crate::detect::Severity>,
    end: u64,
    breakdown: Vec<(&'static str, u64)>,
    receiver: bool,
    lanes: Vec<Lane>,
    states: Vec<(u64, &'a str)>,
    limits: Vec<(u64, &'static str)>,
    losses: Vec<u64>,
    probes: Vec<u64>,
    flips: Vec<u64>,
    markers: Vec<(u64, &'a str)>,
    problems: &'a [Problem],
    bands: Vec<(u64, u64, crate::detect::Detector)>,
}

/// The lane that shows what a receiver received.
const TRANSFERRED: &str = "Bytes transferred";

/// A lane's name and unit, and its lines.
type LaneSpec = (&'static str, Unit, &'static [(Track, &'static str)]);

const LANES: [LaneSpec; 5] = [
    (
        "Window and bytes in flight",
        Unit::Bytes,
        &[
            (Track::Window, "congestion window"),
            (Track::InFlight, "in flight"),
            (Track::Ssthresh, "slow start threshold"),
        ],
    ),
    (
        "Round-trip time",
        Unit::Nanos,
        &[
            (Track::LatestRtt, "latest"),
            (Track::SmoothedRtt, "smoothed"),
            (Track::MinRtt, "minimum"),
        ],
    ),
    (
        "Rates",
        Unit::BitsPerSecond,
        &[
            (Track::PacingRate, "pacing"),
            (Track::DeliveryRate, "delivery"),
        ],
    ),
    (
        TRANSFERRED,
        Unit::Bytes,
        &[(Track::Sent, "sent"), (Track::Received, "received")],
    ),
    ("Queue on the path", Unit::Bytes, &[(Track::Queue, "queue")]),
];

/// A panel as JSON, of a size such that `panels` of them fit a page.
#[must_use]
pub fn panel_json(panel: &Panel<'_>, panels: usize) -> String {
    let panels = panels.clamp(1, MAX_PANELS);
    let points = POINTS.checked_div(panels).unwrap_or(POINTS).max(FEW_POINTS);
    let marks = MARKS.checked_div(panels).unwrap_or(MARKS).max(FEW_POINTS);
    let it = panel.examination;
    let data = Data {
        title: panel.title,
        facts: facts(panel),
        headline: &it.diagnosis.headline,
        severity: it.diagnosis.severity,
        end: micros(it.series.end()),
        breakdown: breakdown(it),
        receiver: it.totals.is_receiver(),
        lanes: lanes(it, points),
        states: thinned(it.series.states(), marks)
            .map(|mark| (micros(mark.time), mark.text.as_str()))
            .collect(),
        limits: thinned(it.series.limits(), marks)
            .map(|(time, limit)| {
                (
                    micros(*time),
                    limit.map_or("", clearway_recovery::limit::Limit::name),
                )
            })
            .collect(),
        losses: thinned(it.series.losses(), marks)
            .map(|at| micros(*at))
            .collect(),
        probes: thinned(it.series.probes(), marks)
            .map(|at| micros(*at))
            .collect(),
        flips: thinned(&it.flips, marks).map(|at| micros(*at)).collect(),
        markers: thinned(it.series.markers(), marks)
            .map(|mark| (micros(mark.time), mark.text.as_str()))
            .collect(),
        problems: &it.diagnosis.problems,
        bands: it
            .findings
            .iter()
            .map(|each| (micros(each.t0), micros(each.t1), each.detector))
            .collect(),
    };
    serde_json::to_string(&data).unwrap_or_else(|_| "null".to_owned())
}

const fn micros(nanos: u64) -> u64 {
    nanos / 1_000
}

/// At most `most` of these, evenly chosen.
fn thinned<T>(all: &[T], most: usize) -> impl Iterator<Item = &T> {
    all.iter().step_by(all.len().div_ceil(most.max(1)).max(1))
}

fn facts(panel: &Panel<'_>) -> Vec<(String, String)> {
    let totals = &panel.examination.totals;
    let mut facts = panel.facts.to_vec();
    let mut fact = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            facts.push((name.to_owned(), value));
        }
    };
    fact(
        "recorded by",
        totals.role.map(|role| role.name().to_owned()),
    );
    fact("controller", totals.controller.clone());
    fact("protocol", totals.protocol.clone());
    let count = |count: u64| Some(count.to_string());
    let bytes = |bytes: u64| (bytes > 0).then(|| amount(bytes as f64, Unit::Bytes));
    fact("sent", bytes(totals.bytes_sent));
    fact("received", bytes(totals.bytes_received));
    fact("packets sent", count(totals.packets_sent));
    fact("lost", count(totals.packets_lost));
    fact("probe timeouts", count(totals.probe_timeouts));
    fact("ended", totals.end.clone());
    facts
}

fn breakdown(it: &Examination) -> Vec<(&'static str, u64)> {
    let parts = it.breakdown.permille().into_iter();
    parts
        .filter(|(_, permille)| *permille > 0)
        .map(|(reason, permille)| (reason.label(), permille))
        .collect()
}

/// What matters most to this end comes first.
fn lanes(it: &Examination, points: usize) -> Vec<Lane> {
    let series = &it.series;
    let lane = |(name, unit, lines): &LaneSpec| {
        let lines: Vec<Line> = lines
            .iter()
            .map(|&(track, name)| line(series, track, name, points))
            .filter(|line| !line.t.is_empty())
            .collect();
        (!lines.is_empty()).then_some(Lane {
            name,
            unit: unit.name(),
            lines,
        })
    };
    let mut lanes: Vec<Lane> = LANES.iter().filter_map(lane).collect();
    if it.totals.is_receiver() {
        // A stable sort: the others keep their order.
        lanes.sort_by_key(|lane| lane.name != TRANSFERRED);
    }
    lanes
}

/// The points of a track: all, or the extremes of each part of the time.
fn line(series: &Series, track: Track, name: &'static str, most: usize) -> Line {
    let all = series.points(track);
    let mut line = Line {
        name,
        t: Vec::new(),
        v: Vec::new(),
    };
    let mut before = 0;
    let mut push = |time: u64, value: u64| {
        let time = micros(time);
        line.t.push(time.saturating_sub(before));
        line.v.push(value);
        before = time.max(before);
    };
    if all.len() <= most {
        for point in all {
            push(point.time, point.value);
        }
        return line;
    }
    // Three points of each part: its extremes, and its last value.
    let parts = (most / 3).max(1);
    let end = series.end().saturating_add(1);
    let third = end
        .checked_div((parts as u64).saturating_mul(3))
        .unwrap_or(0);
    let mut held = None;
    for part in series.columns(track, 0, end, parts).into_iter().flatten() {
        if part.min == part.max && held == Some(part.last) {
            continue;
        }
        if held != Some(part.last) || part.min != part.max {
            push(part.time, part.min);
            push(part.time.saturating_add(third), part.max);
            push(part.time.saturating_add(third.saturating_mul(2)), part.last);
        }
        held = Some(part.last);
    }
    line
}
