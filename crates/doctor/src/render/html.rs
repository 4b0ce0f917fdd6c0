//! A diagnosis as one HTML file: the verdict, rates and queue over time, the path with the red stage.
//! No script, nothing from elsewhere.

use std::fmt::Write as _;

use super::text::{label, state_name};
use super::words::{count, rate};
use crate::path::{StageReport, State};
use crate::sample::Recording;
use crate::series::{Point, series};
use crate::track::Track;
use crate::verdict::{Diagnosis, Health};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}\
h1{font-size:1.4rem;margin:0 0 .5rem}h2{font-size:1.1rem;margin:1.6rem 0 .5rem}\
.losing{color:#b3261e}.filling{color:#9a6700}.healthy{color:#1a7f37}\
.path{display:flex;flex-wrap:wrap;gap:.35rem}.path div{border:1px solid #c8ccd1;border-radius:.4rem;padding:.3rem .55rem;\
font-size:.82rem}.path .bad{background:#b3261e;border-color:#b3261e;color:#fff}.path .old{background:#fff4d6}\
table{border-collapse:collapse;width:100%;font-size:.88rem}td,th{text-align:left;padding:.25rem .5rem;\
border-bottom:1px solid #e3e6ea}td.n{text-align:right;font-variant-numeric:tabular-nums}\
code,pre{background:#f3f4f6;border-radius:.3rem;padding:.15rem .35rem}pre{padding:.5rem;overflow-x:auto}\
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#57606a}.dim{color:#57606a;font-size:.85rem}";

/// Returns the page.
#[must_use]
pub fn html(recording: &Recording, diagnosis: &Diagnosis) -> String {
    let mut out = String::new();
    let class = match diagnosis.health {
        Health::Healthy => "healthy",
        Health::Filling => "filling",
        Health::Losing => "losing",
    };
    let [first, second] = &diagnosis.verdict;
    let _ = write!(
        out,
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>UDP on this host: {label}</title><style>{STYLE}</style>\
         <h1><span class=\"{class}\">{label}</span></h1><p><b>{}</b></p><p>{}</p>\
         <p class=\"dim\">{:.1} s, {}, Linux {}</p>",
        escape(first),
        escape(second),
        diagnosis.seconds,
        escape(&diagnosis.namespace),
        escape(&diagnosis.kernel),
        label = label(diagnosis.health),
    );
    out.push_str("<h2>The path of a datagram</h2><div class=\"path\">");
    for stage in &diagnosis.path {
        let class = match stage.state {
            State::Losing => "bad",
            State::Past | State::Trickle => "old",
            State::Clear | State::Unseen => "",
        };
        let _ = write!(
            out,
            "<div class=\"{class}\">{} {}</div>",
            stage.stage.number(),
            stage.stage.name()
        );
    }
    out.push_str("</div>");
    charts(&mut out, recording, diagnosis);
    table(&mut out, diagnosis);
    advice(&mut out, diagnosis);
    out.push_str("</html>\n");
    out
}

fn charts(out: &mut String, recording: &Recording, diagnosis: &Diagnosis) {
    let tracks = Track::all(recording);
    let culprit = diagnosis.culprit.as_ref().map(|culprit| &culprit.socket);
    let track = tracks.iter().find(|track| {
        culprit.is_some_and(|socket| {
            track.socket.inode == socket.inode && track.socket.local == socket.local
        })
    });
    let points = series(recording, track, diagnosis.model.as_ref());
    if points.len() < 2 {
        return;
    }
    let highest = points
        .iter()
        .map(|p| p.arriving.max(p.reading))
        .fold(1.0, f64::max);
    out.push_str("<h2>Arriving (λ, red) and read (μ, blue) per second</h2>");
    let lines: [Curve; 2] = [("#b3261e", |p| p.arriving), ("#0969da", |p| p.reading)];
    chart(out, &points, highest, &rate(highest), &lines);
    out.push_str("<h2>How full the receive buffer was</h2>");
    chart(out, &points, 1.0, "100 %", &[("#8250df", |p| p.fullness)]);
}

/// A line of a chart: its colour, and what it shows of a point.
type Curve = (&'static str, fn(&Point) -> f64);

/// Draws lines in a box of 800 by 160.
fn chart(out: &mut String, points: &[Point], highest: f64, top: &str, lines: &[Curve]) {
    let (Some(first), Some(last)) = (points.first(), points.last()) else {
        return;
    };
    let span = (last.at - first.at).max(1e-9);
    let _ = write!(
        out,
        "<svg viewBox=\"0 0 800 190\" role=\"img\"><rect x=\"60\" y=\"10\" width=\"730\" height=\"150\" fill=\"#f6f8fa\"/>\
         <text x=\"54\" y=\"20\" text-anchor=\"end\">{}</text><text x=\"54\" y=\"160\" text-anchor=\"end\">0</text>\
         <text x=\"60\" y=\"178\">0 s</text><text x=\"790\" y=\"178\" text-anchor=\"end\">{:.1} s</text>",
        escape(top),
        span
    );
    for (colour, value) in lines {
        let _ = write!(
            out,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\""
        );
        for point in points {
            let x = 60.0 + (point.at - first.at) / span * 730.0;
            let y = 160.0 - (value(point) / highest).clamp(0.0, 1.0) * 150.0;
            let _ = write!(out, "{x:.1},{y:.1} ");
        }
        out.push_str("\"/>");
    }
    out.push_str("</svg>");
}

fn table(out: &mut String, diagnosis: &Diagnosis) {
    out.push_str("<h2>What moved</h2><table><tr><th>#<th>stage<th>state<th>lost now<th>per second<th>lost before</tr>");
    for stage in &diagnosis.path {
        row(out, stage);
    }
    out.push_str("</table>");
}

fn row(out: &mut String, stage: &StageReport) {
    let class = if stage.state == State::Losing {
        " class=\"losing\""
    } else {
        ""
    };
    let _ = write!(
        out,
        "<tr{class}><td class=\"n\">{}<td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}</tr>",
        stage.stage.number(),
        stage.stage.name(),
        state_name(stage.state),
        count(stage.lost),
        rate(stage.lost_per_second),
        count(stage.lost_before)
    );
    for counter in stage.counters.iter().filter(|counter| counter.grown > 0) {
        let _ = write!(
            out,
            "<tr class=\"dim\"><td><td colspan=\"2\"><code>{}</code> {}<td class=\"n\">+{}<td><td></tr>",
            escape(&counter.name),
            counter.meaning.unwrap_or("(unknown to this program)"),
            count(counter.grown)
        );
    }
}

fn advice(out: &mut String, diagnosis: &Diagnosis) {
    if !diagnosis.advice.is_empty() {
        out.push_str("<h2>What to do</h2><ol>");
        for advice in &diagnosis.advice {
            let _ = write!(out, "<li>{}", escape(&advice.text));
            if let Some(command) = &advice.command {
                let _ = write!(out, "<pre>{}</pre>", escape(command));
            }
        }
        out.push_str("</ol>");
    }
    for note in &diagnosis.notes {
        let _ = write!(out, "<p class=\"dim\">{}</p>", escape(note));
    }
    for missing in &diagnosis.missing {
        let _ = write!(
            out,
            "<p class=\"dim\">Not seen: {}: {}</p>",
            escape(&missing.what),
            escape(&missing.why)
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
