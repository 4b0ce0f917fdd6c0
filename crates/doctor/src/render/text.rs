//! A diagnosis as text: the verdict, the path, the sockets, the advice.

use std::fmt::Write as _;

use super::words::{bytes, count, percent, rate};
use crate::model::{Basis, Model, Origin};
use crate::path::{StageReport, State};
use crate::verdict::{Diagnosis, Health};

/// Width of the text, in columns.
const WIDTH: usize = 100;

/// Returns the text, with colours for terminals if `colour`.
#[must_use]
pub fn text(diagnosis: &Diagnosis, colour: bool) -> String {
    let mut out = String::new();
    let paint = Paint(colour);
    verdict(&mut out, diagnosis, paint);
    if let Some(model) = &diagnosis.model {
        rates(&mut out, model);
    }
    path(&mut out, diagnosis, paint);
    sockets(&mut out, diagnosis);
    advice(&mut out, diagnosis);
    for note in &diagnosis.notes {
        out.push('\n');
        wrap(&mut out, "Note: ", note);
    }
    missing(&mut out, diagnosis);
    out
}

#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn health(self, health: Health) -> (&'static str, &'static str) {
        match health {
            _ if !self.0 => ("", ""),
            Health::Healthy => ("\u{1b}[1;32m", "\u{1b}[0m"),
            Health::Filling => ("\u{1b}[1;33m", "\u{1b}[0m"),
            Health::Losing => ("\u{1b}[1;31m", "\u{1b}[0m"),
        }
    }

    fn state(self, state: State) -> (&'static str, &'static str) {
        match state {
            State::Losing if self.0 => ("\u{1b}[1;31m", "\u{1b}[0m"),
            State::Losing | State::Trickle | State::Past | State::Clear | State::Unseen => ("", ""),
        }
    }
}

/// The first word of a verdict.
pub(super) const fn label(health: Health) -> &'static str {
    match health {
        Health::Healthy => "HEALTHY",
        Health::Filling => "FILLING",
        Health::Losing => "LOSING",
    }
}

/// What a state is called in tables.
pub(super) const fn state_name(state: State) -> &'static str {
    match state {
        State::Losing => "LOSING",
        State::Trickle => "a few",
        State::Past => "past",
        State::Clear => "ok",
        State::Unseen => "unseen",
    }
}

fn verdict(out: &mut String, diagnosis: &Diagnosis, paint: Paint) {
    let (on, off) = paint.health(diagnosis.health);
    let [first, second] = &diagnosis.verdict;
    let label = label(diagnosis.health);
    let mut text = String::new();
    wrap(&mut text, "", &format!("{label}: {first}"));
    let _ = write!(out, "{on}{label}{off}{}", text.trim_start_matches(label));
    wrap(out, "", second);
}

fn rates(out: &mut String, model: &Model) {
    let Some(rates) = model.rates else { return };
    let (is, basis) = match rates.basis {
        Basis::Measured => ("", "measured"),
        Basis::Estimated => ("about ", "estimated"),
        Basis::UpperBound => ("at most ", "an upper bound: other sockets are counted too"),
    };
    let unit = rates.unit.name();
    let _ = writeln!(
        out,
        "\n  arriving  λ = {is}{} {unit}",
        rate(rates.arriving_per_second)
    );
    let _ = writeln!(
        out,
        "  read      μ = {is}{} {unit}   ({basis})",
        rate(rates.read_per_second)
    );
    if let Some(load) = rates.load {
        let least = if rates.basis == Basis::UpperBound {
            "at least "
        } else {
            ""
        };
        let _ = writeln!(
            out,
            "  load      ρ = λ/μ = {least}{load:.2}   (above 1 the queue grows)"
        );
    }
    let limit = model
        .limit
        .map_or_else(|| "of unknown size".to_owned(), bytes);
    let full = percent(model.shape.full_share);
    let _ = writeln!(out, "  buffer    {limit}, full {full} of the time");
    let origin = match model.truesize.origin {
        Origin::Measured => "measured",
        Origin::Estimated => "estimated from packet sizes",
    };
    let _ = writeln!(
        out,
        "            {} charged for each ({origin})",
        bytes(model.truesize.bytes)
    );
}

fn path(out: &mut String, diagnosis: &Diagnosis, paint: Paint) {
    let _ = writeln!(
        out,
        "\nThe path of a datagram, {:.1} s, {}, Linux {}:",
        diagnosis.seconds, diagnosis.namespace, diagnosis.kernel
    );
    let _ = writeln!(
        out,
        "  {:>2}  {:<29} {:<7} {:>14} {:>14} {:>16}",
        "#", "stage", "state", "lost now", "per second", "lost before"
    );
    for stage in &diagnosis.path {
        row(out, stage, paint);
    }
}

fn row(out: &mut String, report: &StageReport, paint: Paint) {
    let (on, off) = paint.state(report.state);
    let number = report.stage.number();
    let per_second = if report.lost == 0 {
        "-".to_owned()
    } else {
        rate(report.lost_per_second)
    };
    let or_dash = |value: u64| {
        if value == 0 {
            "-".to_owned()
        } else {
            count(value)
        }
    };
    let _ = writeln!(
        out,
        "  {on}{number:>2}  {:<29} {:<7} {:>14} {per_second:>14} {:>16}{off}",
        report.stage.name(),
        state_name(report.state),
        or_dash(report.lost),
        or_dash(report.lost_before)
    );
    for counter in report.counters.iter().filter(|counter| counter.grown > 0) {
        let meaning = counter
            .meaning
            .unwrap_or("a counter that this program does not know");
        let deduced = if counter.deduced { "  (deduced)" } else { "" };
        let _ = writeln!(
            out,
            "        {} +{}: {meaning}{deduced}",
            counter.name,
            count(counter.grown)
        );
    }
    if let Some(note) = &report.note {
        let _ = writeln!(out, "        {note}");
    }
}

fn sockets(out: &mut String, diagnosis: &Diagnosis) {
    if diagnosis.sockets.is_empty() {
        return;
    }
    out.push_str("\nSockets that lost or queued:\n");
    for report in &diagnosis.sockets {
        let culprit = &report.culprit;
        let process = culprit.process.as_ref().map_or_else(
            || {
                format!(
                    "a process of user {} that cannot be seen",
                    culprit.socket.uid
                )
            },
            |process| {
                let threads = if process.threads == 1 {
                    "thread"
                } else {
                    "threads"
                };
                format!(
                    "{} (process {}, {} {threads})",
                    process.name, process.pid, process.threads
                )
            },
        );
        let full = report.fullest.map_or_else(String::new, |fullest| {
            format!(", buffer {} full at most", percent(fullest.min(1.0)))
        });
        let _ = writeln!(
            out,
            "  {}  {process}: lost {}{full}",
            culprit.socket.local,
            count(report.lost)
        );
    }
}

fn advice(out: &mut String, diagnosis: &Diagnosis) {
    if diagnosis.advice.is_empty() {
        return;
    }
    out.push_str("\nWhat to do:\n");
    for (index, advice) in diagnosis.advice.iter().enumerate() {
        wrap(out, &format!("  {}. ", index + 1), &advice.text);
        if let Some(command) = &advice.command {
            let _ = writeln!(out, "       {command}");
        }
    }
}

fn missing(out: &mut String, diagnosis: &Diagnosis) {
    if diagnosis.missing.is_empty() {
        return;
    }
    out.push_str("\nNot seen:\n");
    for missing in &diagnosis.missing {
        let needs = missing
            .needs
            .as_ref()
            .map_or_else(String::new, |needs| format!("; {needs} would show it"));
        wrap(
            out,
            "  - ",
            &format!("{}: {}{needs}", missing.what, missing.why),
        );
    }
}

/// Writes text in lines of at most [`WIDTH`] columns, indented as the first line's prefix is long.
fn wrap(out: &mut String, prefix: &str, text: &str) {
    let indent = prefix.chars().count();
    out.push_str(prefix);
    let mut column = indent;
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        let length = word.chars().count();
        if index > 0 && column + 1 + length > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if index > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
}
