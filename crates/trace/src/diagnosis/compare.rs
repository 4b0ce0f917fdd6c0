//! What differs between two traces, and since when.

use serde::Serialize;

use super::Examination;
use crate::report::{Unit, amount};
use crate::series::{Column, Track};

/// Parts into which the common time is divided.
const PARTS: usize = 200;
/// Parts in a row in which values have to differ.
const RUN: usize = 5;

/// Something in which two traces differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Since when, in nanoseconds of the traces; `None` if it concerns the whole of them.
    pub since: Option<u64>,
    /// What differs.
    pub what: String,
    /// In the first trace.
    pub here: String,
    /// In the trace that it is compared with.
    pub there: String,
}

impl core::fmt::Display for Difference {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        if let Some(since) = self.since {
            let (whole, part) = (since / 1_000_000_000, since / 1_000_000 % 1_000);
            write!(f, "from {whole}.{part:03} s: ")?;
        }
        write!(f, "{}: {}, against {}", self.what, self.here, self.there)
    }
}

/// The quantities that are compared, with their units.
const TRACKS: [(Track, &str, Unit); 7] = [
    (Track::Window, "congestion window", Unit::Bytes),
    (Track::Ssthresh, "slow start threshold", Unit::Bytes),
    (Track::SmoothedRtt, "smoothed RTT", Unit::Nanos),
    (Track::PacingRate, "pacing rate", Unit::BitsPerSecond),
    (Track::DeliveryRate, "delivery rate", Unit::BitsPerSecond),
    (Track::Sent, "bytes sent so far", Unit::Bytes),
    (Track::Received, "bytes received so far", Unit::Bytes),
];

/// What differs between two traces: first the earliest point from which a quantity takes another
/// course, then what differs as a whole. Times count from each trace's beginning.
#[must_use]
pub fn compare(here: &Examination, there: &Examination) -> Vec<Difference> {
    let end = here.series.end().min(there.series.end()).saturating_add(1);
    let mut found: Vec<Difference> = TRACKS
        .iter()
        .filter_map(|&(track, what, unit)| {
            let columns = |it: &Examination| it.series.columns(track, 0, end, PARTS);
            let (a, b) = diverge(&columns(here), &columns(there))?;
            Some(Difference {
                since: Some(a.time),
                what: what.to_owned(),
                here: amount(a.last as f64, unit),
                there: amount(b.last as f64, unit),
            })
        })
        .collect();
    found.sort_by_key(|difference| difference.since);
    found.extend(problems(here, there));
    found.extend(totals(here, there));
    found
}

/// The first column from which the values differ by more than a quarter for a while.
fn diverge(a: &[Option<Column>], b: &[Option<Column>]) -> Option<(Column, Column)> {
    let mut run = 0_usize;
    let mut first = None;
    for pair in a.iter().zip(b) {
        let (Some(a), Some(b)) = pair else { continue };
        if !differ(a.last, b.last) {
            run = 0;
            first = None;
            continue;
        }
        run = run.saturating_add(1);
        let since = *first.get_or_insert((*a, *b));
        if run >= RUN {
            return Some(since);
        }
    }
    None
}

/// Whether two values differ by more than a quarter of the larger one.
const fn differ(a: u64, b: u64) -> bool {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    high.saturating_sub(low) > high / 4
}

/// Problems that only one of them has.
fn problems(here: &Examination, there: &Examination) -> Vec<Difference> {
    let mut found = Vec::new();
    for (own, other, mine) in [(here, there, true), (there, here, false)] {
        for problem in &own.diagnosis.problems {
            let same = |each: &super::Problem| each.detector == problem.detector;
            if other.diagnosis.problems.iter().any(same) {
                continue;
            }
            let (here, there) = if mine { ("yes", "no") } else { ("no", "yes") };
            found.push(Difference {
                since: Some(problem.t0),
                what: problem.summary.clone(),
                here: here.to_owned(),
                there: there.to_owned(),
            });
        }
    }
    found.sort_by_key(|difference| difference.since);
    found
}

fn totals(here: &Examination, there: &Examination) -> Vec<Difference> {
    let whole = |what: &str, here: String, there: String| Difference {
        since: None,
        what: what.to_owned(),
        here,
        there,
    };
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "not recorded".to_owned());
    let (a, b) = (&here.totals, &there.totals);
    let mut found = Vec::new();
    for (what, a, b) in [
        ("controller", &a.controller, &b.controller),
        ("end", &a.end, &b.end),
    ] {
        if a != b {
            found.push(whole(what, text(a), text(b)));
        }
    }
    for (what, a, b) in [
        ("packets lost", a.packets_lost, b.packets_lost),
        ("probe timeouts", a.probe_timeouts, b.probe_timeouts),
    ] {
        if differ(a, b) {
            found.push(whole(what, a.to_string(), b.to_string()));
        }
    }
    if differ(a.duration, b.duration) {
        let show = super::problem::seconds;
        found.push(whole("duration", show(a.duration), show(b.duration)));
    }
    let (a, b) = (here.breakdown.to_string(), there.breakdown.to_string());
    if a != b {
        found.push(whole("limited by", a, b));
    }
    found
}
