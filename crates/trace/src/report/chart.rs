//! Charts over time, as inline SVG.

use core::fmt::Write as _;

use super::escape::Escaped;
use crate::detect::Finding;
use crate::series::{Column, Series, Track};

/// Size of the drawing in its own units; the page scales it.
pub(super) const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 200.0;
/// Room for the scale on the left, above and below.
pub(super) const LEFT: f64 = 64.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 24.0;
/// Columns: one for each two units of the drawing.
const COLUMNS: usize = 448;

/// The unit of a value, for the scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Nanos,
    BitsPerSecond,
}

/// One line of a chart.
pub(super) struct Line {
    pub(super) track: Track,
    pub(super) name: &'static str,
    /// Its class in the style sheet.
    pub(super) class: &'static str,
}

/// A chart.
pub(super) struct Chart<'a> {
    pub(super) title: &'static str,
    pub(super) unit: Unit,
    pub(super) lines: &'a [Line],
    /// Whether losses and probe timeouts are drawn below.
    pub(super) events: bool,
}

/// Maps time and value to coordinates of the drawing.
struct Scale {
    end: f64,
    max: f64,
}

impl Scale {
    fn x(&self, time: u64) -> f64 {
        LEFT + (WIDTH - LEFT) * (time as f64 / self.end).min(1.0)
    }

    fn y(&self, value: u64) -> f64 {
        let height = HEIGHT - TOP - BOTTOM;
        TOP + height * (1.0 - (value as f64 / self.max).min(1.0))
    }
}

impl Chart<'_> {
    /// The chart; `None` if there is nothing to draw.
    pub(super) fn render(&self, series: &Series, findings: &[Finding]) -> Option<String> {
        let largest = |line: &Line| series.max(line.track);
        let max = self.lines.iter().filter_map(largest).max()?;
        // A threshold far above everything else would flatten the rest.
        let scale = Scale {
            end: series.end().max(1) as f64,
            max: nice(max.max(1), self.unit),
        };
        let mut out = String::new();
        let _ = write!(
            out,
            "<figure><figcaption>{}<span class=keys>",
            Escaped(self.title)
        );
        for line in self.lines.iter().filter(|line| largest(line).is_some()) {
            let _ = write!(
                out,
                "<i class=\"{}\"></i>{} ",
                line.class,
                Escaped(line.name)
            );
        }
        let _ = write!(
            out,
            "</span></figcaption><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" data-end=\"{}\" role=\"img\" aria-label=\"{}\">",
            series.end(),
            Escaped(self.title)
        );
        bands(&mut out, series, findings, &scale);
        grid(&mut out, self.unit, &scale);
        for line in self.lines {
            let columns = series.columns(line.track, 0, series.end().saturating_add(1), COLUMNS);
            draw(&mut out, line, &columns, &scale);
        }
        if self.events {
            ticks(&mut out, series.losses(), "loss", "packet lost", &scale);
            ticks(&mut out, series.probes(), "probe", "probe timeout", &scale);
        }
        out.push_str("<line class=cursor x1=0 x2=0 y1=10 y2=176 /></svg>");
        self.values(&mut out, series);
        out.push_str("</figure>");
        Some(out)
    }

    /// The data for the pointer: the last value of each line per column.
    fn values(&self, out: &mut String, series: &Series) {
        let unit = match self.unit {
            Unit::Bytes => "bytes",
            Unit::Nanos => "ns",
            Unit::BitsPerSecond => "bits",
        };
        let _ = write!(
            out,
            "<output></output><script type=\"application/json\">{{\"unit\":\"{unit}\",\"lines\":["
        );
        for (at, line) in self.lines.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            let _ = write!(out, "{comma}{{\"name\":\"{}\",\"values\":[", line.name);
            let columns = series.columns(line.track, 0, series.end().saturating_add(1), COLUMNS);
            for (at, column) in columns.iter().enumerate() {
                let comma = if at > 0 { "," } else { "" };
                match column {
                    Some(column) => {
                        let _ = write!(out, "{comma}{}", column.max);
                    }
                    None => {
                        let _ = write!(out, "{comma}null");
                    }
                }
            }
            out.push_str("]}");
        }
        out.push_str("]}</script>");
    }
}

/// Findings and markers, as bands behind everything.
fn bands(out: &mut String, series: &Series, findings: &[Finding], scale: &Scale) {
    for finding in findings {
        let (from, to) = (scale.x(finding.t0), scale.x(finding.t1));
        let _ = write!(
            out,
            "<rect class=\"band {}\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"><title>{}</title></rect>",
            super::page::class_of(finding.severity),
            (to - from).max(1.5),
            HEIGHT - TOP - BOTTOM,
            Escaped(&finding.sentence())
        );
    }
    for marker in series.markers() {
        let x = scale.x(marker.time);
        let _ = write!(
            out,
            "<line class=marker x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"><title>{}</title></line>",
            HEIGHT - BOTTOM,
            Escaped(&marker.text)
        );
    }
}

fn grid(out: &mut String, unit: Unit, scale: &Scale) {
    for part in 0..=4_u32 {
        let value = scale.max * f64::from(part) / 4.0;
        let y = scale.y(value as u64);
        let _ = write!(
            out,
            "<line class=grid x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{y:.1}\" y2=\"{y:.1}\" /><text x=\"{:.0}\" y=\"{:.1}\" class=scale>{}</text>",
            LEFT - 6.0,
            y + 3.5,
            amount(value, unit)
        );
    }
    for part in 0..=8_u32 {
        let time = scale.end * f64::from(part) / 8.0;
        let x = LEFT + (WIDTH - LEFT) * f64::from(part) / 8.0;
        let anchor = match part {
            0 => "start",
            8 => "end",
            _ => "middle",
        };
        let _ = write!(
            out,
            "<text x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\" class=time>{:.3} s</text>",
            HEIGHT - 6.0,
            time / 1e9
        );
    }
}

/// The line, with the extremes of each column behind it.
fn draw(out: &mut String, line: &Line, columns: &[Option<Column>], scale: &Scale) {
    let step = (WIDTH - LEFT) / columns.len().max(1) as f64;
    let known: Vec<(f64, &Column)> = columns
        .iter()
        .enumerate()
        .filter_map(|(at, column)| Some((LEFT + step * (at as f64 + 0.5), column.as_ref()?)))
        .collect();
    if known.is_empty() {
        return;
    }
    let _ = write!(out, "<path class=\"{} area\" d=\"", line.class);
    let upper = known.iter().map(|(x, column)| (*x, column.max));
    let lower = known.iter().rev().map(|(x, column)| (*x, column.min));
    for (at, (x, value)) in upper.chain(lower).enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{command}{x:.1} {:.1}", scale.y(value));
    }
    let _ = write!(out, "Z\"/><path class=\"{} line\" d=\"", line.class);
    for (at, (x, column)) in known.iter().enumerate() {
        let command = if at == 0 { 'M' } else { 'L' };
        let _ = write!(out, "{command}{x:.1} {:.1}", scale.y(column.last));
    }
    out.push_str("\"/>");
}

/// Time labels below the chart, at most one per column.
fn ticks(out: &mut String, times: &[u64], class: &str, what: &str, scale: &Scale) {
    let mut last = f64::MIN;
    for time in times {
        let x = scale.x(*time);
        if x - last < 2.0 {
            continue;
        }
        last = x;
        let _ = write!(
            out,
            "<line class={class} x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"><title>{what} at {:.3} s</title></line>",
            HEIGHT - BOTTOM - 8.0,
            HEIGHT - BOTTOM,
            *time as f64 / 1e9
        );
    }
}

/// The next round number above.
fn nice(value: u64, unit: Unit) -> f64 {
    let base = match unit {
        Unit::Bytes => 1.0,
        Unit::Nanos => 1e3,
        Unit::BitsPerSecond => 1e3,
    };
    let value = value as f64;
    let mut power = base;
    while power * 10.0 < value {
        power *= 10.0;
    }
    let steps = [1.0, 2.0, 4.0, 5.0, 8.0, 10.0];
    let found = steps
        .iter()
        .map(|step| step * power)
        .find(|top| *top >= value);
    found.unwrap_or(value)
}

/// A value with its unit, for people.
pub(super) fn amount(value: f64, unit: Unit) -> String {
    let (mut name, larger): (&str, &[&str]) = match unit {
        Unit::Bytes => ("B", &["kB", "MB", "GB", "TB"]),
        Unit::Nanos => ("ns", &["µs", "ms", "s"]),
        Unit::BitsPerSecond => ("bit/s", &["kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]),
    };
    let mut scaled = value;
    for next in larger {
        if scaled < 1e3 {
            break;
        }
        scaled /= 1e3;
        name = next;
    }
    let digits = usize::from(scaled < 10.0 && scaled.fract() > 0.001);
    format!("{scaled:.digits$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_values_are_round_numbers() {
        assert_eq!(amount(0.0, Unit::Bytes), "0 B");
        assert_eq!(amount(1_500.0, Unit::Bytes), "1.5 kB");
        assert_eq!(amount(20_000_000.0, Unit::Nanos), "20 ms");
        assert_eq!(amount(9.4e6, Unit::BitsPerSecond), "9.4 Mbit/s");
        for (value, top) in [(1, 1.0), (11, 20.0), (41, 50.0), (99, 100.0), (100, 100.0)] {
            assert!((nice(value, Unit::Bytes) - top).abs() < 1e-9, "{value}");
        }
    }
}
