//! The live view in a terminal.

use core::time::Duration;
use std::time::Instant;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Row, Table, Wrap};
use ratatui::{DefaultTerminal, Frame};

use super::text::{label, state_name};
use super::words::{count, rate};
use crate::error::Error;
use crate::focus::Focus;
use crate::path::State;
use crate::recorder::Recorder;
use crate::series::{Point, series};
use crate::track::Track;
use crate::verdict::{Diagnosis, Health};

/// Samples of fast counters between two pictures: few, because watching must not cost what it watches.
const SAMPLES: u32 = 4;
/// A picture and its samples may take at most one of so many parts of the time: less than a hundredth
/// of one core, also on a host with thousands of sockets or threads.
const PART: u32 = 150;
/// Longest time between two pictures.
const SLOWEST: Duration = Duration::from_secs(60);

/// Watches until `q`, Escape or Ctrl-C; the verdict is on the last `window`. A picture every `refresh`,
/// or less often where one costs so much that watching would take a hundredth of a core. Returns the
/// last verdict.
///
/// # Errors
/// If the counters cannot be read, or the terminal cannot be used.
pub fn watch(
    namespace: String,
    focus: &Focus,
    window: Duration,
    refresh: Duration,
) -> Result<Option<Health>, Error> {
    let mut recorder = Recorder::new(namespace)?;
    let mut terminal = ratatui::try_init().map_err(Error::Terminal)?;
    let result = run(&mut terminal, &mut recorder, focus, window, refresh);
    ratatui::restore();
    result
}

fn run(
    terminal: &mut DefaultTerminal,
    recorder: &mut Recorder,
    focus: &Focus,
    window: Duration,
    refresh: Duration,
) -> Result<Option<Health>, Error> {
    let mut last = None;
    let mut spent = processor_time();
    let mut pause = refresh;
    loop {
        let begun = Instant::now();
        for step in 1..=SAMPLES {
            let until = pause * step / SAMPLES;
            if wait(begun, until)? {
                return Ok(last);
            }
            if step < SAMPLES {
                recorder.quick()?;
            }
        }
        recorder.full_cheaply()?;
        recorder.forget(window);
        let diagnosis = Diagnosis::new(recorder.recording(), focus);
        last = Some(diagnosis.health);
        let points = points(recorder, &diagnosis);
        let draw = |frame: &mut Frame<'_>| picture(frame, &diagnosis, &points);
        terminal.draw(draw).map_err(Error::Terminal)?;
        let now = processor_time();
        pause = pace(refresh, now.saturating_sub(spent));
        spent = now;
    }
}

/// Returns the time until the next picture if one costs so much processor time.
fn pace(refresh: Duration, cost: Duration) -> Duration {
    (cost * PART).clamp(refresh, SLOWEST.max(refresh))
}

/// Processor time of this thread, which does all of the work.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or_default();
    Duration::new(u64::try_from(time.tv_sec).unwrap_or_default(), nanoseconds)
}

/// Waits until `until` after `begun`. Returns true if somebody wants to stop.
fn wait(begun: Instant, until: Duration) -> Result<bool, Error> {
    while let Some(left) = until
        .checked_sub(begun.elapsed())
        .filter(|left| !left.is_zero())
    {
        if !event::poll(left).map_err(Error::Terminal)? {
            break;
        }
        if let Event::Key(key) = event::read().map_err(Error::Terminal)? {
            let control_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn points(recorder: &Recorder, diagnosis: &Diagnosis) -> Vec<Point> {
    let tracks = Track::all(recorder.recording());
    let socket = diagnosis.culprit.as_ref().map(|culprit| &culprit.socket);
    let track = tracks.iter().find(|track| {
        socket.is_some_and(|socket| {
            track.socket.inode == socket.inode && track.socket.local == socket.local
        })
    });
    series(recorder.recording(), track, diagnosis.model.as_ref())
}

const fn colour(health: Health) -> Color {
    match health {
        Health::Healthy => Color::Green,
        Health::Filling => Color::Yellow,
        Health::Losing => Color::Red,
    }
}

fn picture(frame: &mut Frame<'_>, diagnosis: &Diagnosis, points: &[Point]) {
    let stages = u16::try_from(diagnosis.path.len()).unwrap_or(14) + 3;
    let areas = Layout::vertical([
        Constraint::Length(7),
        Constraint::Min(7),
        Constraint::Length(stages),
        Constraint::Length(1),
    ]);
    let [top, middle, bottom, foot] = areas.areas(frame.area());
    let style = Style::new()
        .fg(colour(diagnosis.health))
        .add_modifier(Modifier::BOLD);
    let [first, second] = &diagnosis.verdict;
    let verdict = Paragraph::new(vec![Line::raw(first.as_str()), Line::raw(second.as_str())])
        .wrap(Wrap { trim: true })
        .block(Block::bordered().title(Line::styled(
            format!(" {} ", label(diagnosis.health)),
            style,
        )));
    frame.render_widget(verdict, top);
    rates(frame, points, middle);
    frame.render_widget(path(diagnosis), bottom);
    let foot_text = format!(
        "last {:.0} s, {}, Linux {}    q: quit",
        diagnosis.seconds, diagnosis.namespace, diagnosis.kernel
    );
    frame.render_widget(
        Line::styled(foot_text, Style::new().fg(Color::DarkGray)),
        foot,
    );
}

fn rates(frame: &mut Frame<'_>, points: &[Point], area: ratatui::layout::Rect) {
    let highest = points
        .iter()
        .map(|p| p.arriving.max(p.reading))
        .fold(1.0, f64::max);
    let (first, last) = (
        points.first().map_or(0.0, |p| p.at),
        points.last().map_or(1.0, |p| p.at),
    );
    let of = |value: fn(&Point) -> f64| points.iter().map(|p| (p.at, value(p))).collect::<Vec<_>>();
    let (arriving, reading, full) = (of(|p| p.arriving), of(|p| p.reading), of(|p| p.fullness));
    let line = |name, colour, data| {
        let set = Dataset::default().name(name).marker(Marker::Braille);
        set.graph_type(GraphType::Line)
            .style(Style::new().fg(colour))
            .data(data)
    };
    let halves = Layout::horizontal([Constraint::Percentage(65), Constraint::Percentage(35)]);
    let [left, right] = halves.areas(area);
    let x = || Axis::default().bounds([first, last]);
    let sets = vec![
        line("arriving (λ)", Color::Red, arriving.as_slice()),
        line("read (μ)", Color::Cyan, reading.as_slice()),
    ];
    let chart = Chart::new(sets)
        .block(Block::bordered().title(" per second "))
        .x_axis(x())
        .y_axis(
            Axis::default()
                .bounds([0.0, highest])
                .labels(["0".to_owned(), rate(highest)]),
        );
    frame.render_widget(chart, left);
    let chart = Chart::new(vec![line("buffer", Color::Magenta, full.as_slice())])
        .block(Block::bordered().title(" receive buffer "))
        .x_axis(x())
        .y_axis(Axis::default().bounds([0.0, 1.0]).labels(["0 %", "100 %"]));
    frame.render_widget(chart, right);
}

fn path(diagnosis: &Diagnosis) -> Table<'_> {
    let rows = diagnosis.path.iter().map(|stage| {
        let style = match stage.state {
            State::Losing => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            State::Trickle | State::Past => Style::new().fg(Color::Yellow),
            State::Clear | State::Unseen => Style::new(),
        };
        let or_dash = |value: u64| {
            if value == 0 {
                "-".to_owned()
            } else {
                count(value)
            }
        };
        let main = stage.counters.iter().find(|counter| counter.grown > 0);
        Row::new(vec![
            stage.stage.number().to_string(),
            stage.stage.name().to_owned(),
            state_name(stage.state).to_owned(),
            or_dash(stage.lost),
            if stage.lost == 0 {
                "-".to_owned()
            } else {
                rate(stage.lost_per_second)
            },
            or_dash(stage.lost_before),
            main.map_or_else(String::new, |counter| counter.name.clone()),
        ])
        .style(style)
    });
    let widths = [
        Constraint::Length(2),
        Constraint::Length(28),
        Constraint::Length(7),
        Constraint::Length(13),
        Constraint::Length(13),
        Constraint::Length(15),
        Constraint::Min(10),
    ];
    let head = [
        "#",
        "stage",
        "state",
        "lost now",
        "per second",
        "lost before",
        "counter",
    ];
    Table::new(rows, widths)
        .header(Row::new(head).style(Style::new().add_modifier(Modifier::DIM)))
        .block(Block::bordered().title(" the path of a datagram "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costly_pictures_come_less_often() {
        let second = Duration::from_secs(1);
        assert_eq!(pace(second, Duration::from_millis(2)), second);
        assert_eq!(pace(second, Duration::from_millis(40)), 6 * second);
        assert_eq!(pace(second, 10 * second), SLOWEST);
        assert_eq!(pace(2 * SLOWEST, 10 * second), 2 * SLOWEST);
    }
}
