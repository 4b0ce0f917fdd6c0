//! The layout of the page.

use core::fmt::Write as _;

use super::ReportInput;
use super::chart::{Chart, Line, Unit};
use super::diagnosis::diagnosis;
use super::escape::Escaped;
use crate::breakdown::Breakdown;
use crate::detect::{Finding, Severity};
use crate::series::{Series, Track};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("pointer.js");

/// Maximum number of states in the lane below the charts.
const MAX_STATES: usize = 400;

pub(super) const fn class_of(severity: Severity) -> &'static str {
    match severity {
        Severity::Note => "note",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

pub(super) fn render(input: &ReportInput<'_>) -> String {
    let mut out = String::with_capacity(64 << 10);
    let title = Escaped(input.title);
    let _ = write!(
        out,
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body><main><h1>{title}</h1>"
    );
    let worst = input.findings.iter().map(|finding| finding.severity).max();
    let _ = write!(
        out,
        "<p class=\"diagnosis {}\">{}</p>",
        worst.map_or("fine", class_of),
        Escaped(&diagnosis(input.breakdown, input.findings))
    );
    facts(&mut out, input.facts);
    bar(&mut out, input.breakdown);
    pictures(&mut out, input);
    states(&mut out, input.series);
    table(&mut out, input.findings);
    let _ = write!(out, "</main><script>{SCRIPT}</script></body></html>");
    out
}

fn facts(out: &mut String, facts: &[(String, String)]) {
    if facts.is_empty() {
        return;
    }
    out.push_str("<dl>");
    for (name, value) in facts {
        let (name, value) = (Escaped(name), Escaped(value));
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out.push_str("</dl>");
}

/// The breakdown.
fn bar(out: &mut String, breakdown: &Breakdown) {
    let mut parts = breakdown.permille();
    parts.retain(|(_, permille)| *permille > 0);
    if parts.is_empty() {
        return;
    }
    out.push_str("<h2>Limited by</h2><div class=bar>");
    for (share, permille) in &parts {
        let name = share.label();
        let class = name.replace(' ', "-");
        let (whole, tenth) = (permille / 10, permille % 10);
        let _ = write!(
            out,
            "<div class=\"part {class}\" style=\"flex-grow:{permille}\" title=\"{name}: {whole}.{tenth} %\"><b>{name}</b> {whole}.{tenth} %</div>"
        );
    }
    out.push_str("</div>");
}

fn pictures(out: &mut String, input: &ReportInput<'_>) {
    let line = |track, name, class| Line { track, name, class };
    let window = [
        line(Track::Window, "congestion window", "a"),
        line(Track::InFlight, "in flight", "b"),
    ];
    let rtt = [
        line(Track::LatestRtt, "latest", "b"),
        line(Track::SmoothedRtt, "smoothed", "a"),
        line(Track::MinRtt, "minimum", "c"),
    ];
    let rates = [
        line(Track::PacingRate, "pacing", "c"),
        line(Track::DeliveryRate, "delivery", "a"),
    ];
    let queue = [line(Track::Queue, "queue", "b")];
    let chart = |title, unit, lines, events| Chart {
        title,
        unit,
        lines,
        events,
    };
    for chart in [
        chart("Window and bytes in flight", Unit::Bytes, &window[..], true),
        chart("Round-trip time", Unit::Nanos, &rtt[..], false),
        chart("Rates", Unit::BitsPerSecond, &rates[..], false),
        chart("Queue on the path", Unit::Bytes, &queue[..], false),
    ] {
        if let Some(picture) = chart.render(input.series, input.findings) {
            out.push_str(&picture);
        }
    }
}

/// The states of the controller over time.
fn states(out: &mut String, series: &Series) {
    let states = series.states();
    if states.is_empty() {
        return;
    }
    out.push_str("<h2>Controller</h2><div class=lane>");
    let end = series.end().max(1);
    let shown = states.get(..MAX_STATES).unwrap_or(states);
    for (at, state) in shown.iter().enumerate() {
        let until = shown
            .get(at.saturating_add(1))
            .map_or(end, |next| next.time);
        let lasted = until.saturating_sub(state.time);
        let share = u128::from(lasted).saturating_mul(10_000);
        let share = share.checked_div(end.into()).unwrap_or(0).max(1);
        let class = match state.text.as_str() {
            "slow_start" | "startup" | "conservative_slow_start" => "start",
            "recovery" | "drain" | "probe_rtt" => "recovery",
            _ => "steady",
        };
        let _ = write!(
            out,
            "<div class=\"{class}\" style=\"flex-grow:{}\" title=\"{} from {:.3} s to {:.3} s\"></div>",
            share,
            Escaped(&state.text),
            state.time as f64 / 1e9,
            until as f64 / 1e9
        );
    }
    out.push_str("</div>");
    if states.len() > MAX_STATES {
        let _ = write!(
            out,
            "<p class=small>The first {MAX_STATES} of {} states.</p>",
            states.len()
        );
    }
}

fn table(out: &mut String, findings: &[Finding]) {
    out.push_str("<h2>Findings</h2>");
    if findings.is_empty() {
        out.push_str("<p>None.</p>");
        return;
    }
    out.push_str("<table><thead><tr><th>Finding</th><th>From</th><th>To</th><th>What</th></tr></thead><tbody>");
    for finding in findings {
        let _ = write!(
            out,
            "<tr class={}><td>{}</td><td>{:.3} s</td><td>{:.3} s</td><td>{}</td></tr>",
            class_of(finding.severity),
            finding.detector,
            finding.t0 as f64 / 1e9,
            finding.t1 as f64 / 1e9,
            Escaped(&finding.sentence())
        );
    }
    out.push_str("</tbody></table>");
}
