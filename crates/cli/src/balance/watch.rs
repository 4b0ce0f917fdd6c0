//! `clearway balance status --watch`: the live view in a terminal.

use core::time::Duration;
use std::collections::VecDeque;
use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::time::Instant;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Row, Table};
use ratatui::{DefaultTerminal, Frame};

use super::control::ask;
use super::report::{Backend, Direction, Report};
use super::request::{Reply, Request};
use crate::failure::{Failure, Kind};
use crate::printable;

/// Time between two pictures.
const REFRESH: Duration = Duration::from_secs(1);

/// Pictures that the chart shows.
const HISTORY: usize = 120;

/// Share of the upstream ports in use that is shown as a warning.
const PORTS_SCARCE: f64 = 0.8;

/// Shows the status of the balancer at `path` until q is pressed.
///
/// # Errors
/// If there is no terminal, or the balancer does not answer.
pub(super) fn watch(path: &Path) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        let message = "--watch: needs a terminal; use --json in scripts";
        return Err(Failure::new(Kind::Arguments, message));
    }
    // Before the terminal changes.
    let first = status(path)?;
    let mut terminal = ratatui::try_init()?;
    let result = run(&mut terminal, path, first);
    ratatui::restore();
    result
}

fn status(path: &Path) -> Result<Report, Failure> {
    match ask(path, &Request::Status)? {
        Reply::Status(report) => Ok(report),
        Reply::Done | Reply::Sockets { .. } | Reply::Error(_) => {
            let message = "the balancer answered something else than its status";
            Err(Failure::new(Kind::Content, message))
        }
    }
}

fn run(terminal: &mut DefaultTerminal, path: &Path, first: Report) -> Result<(), Failure> {
    let mut view = View::new(first);
    let title = path.display().to_string();
    let mut asked = Instant::now();
    loop {
        terminal.draw(|frame| view.draw(frame, &title))?;
        if is_over(asked + REFRESH)? {
            return Ok(());
        }
        let next = status(path)?;
        let seconds = asked.elapsed().as_secs_f64();
        asked = Instant::now();
        view.update(next, seconds);
    }
}

/// Waits until `end`. Returns whether somebody wants to stop.
fn is_over(end: Instant) -> io::Result<bool> {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !event::poll(left)? {
            return Ok(false);
        }
        if let Event::Key(key) = event::read()? {
            let control = key.modifiers.contains(KeyModifiers::CONTROL);
            match key.code {
                KeyCode::Char('q') | KeyCode::Esc => return Ok(true),
                KeyCode::Char('c') if control => return Ok(true),
                _ => {}
            }
        }
    }
}

/// The last two reports, and the rates of earlier ones.
#[derive(Debug)]
struct View {
    before: Report,
    now: Report,
    seconds: f64,
    /// Datagrams a second from clients and from servers.
    rates: VecDeque<[f64; 2]>,
}

impl View {
    fn new(first: Report) -> Self {
        Self {
            before: first.clone(),
            now: first,
            seconds: 1.0,
            rates: VecDeque::new(),
        }
    }

    fn update(&mut self, next: Report, seconds: f64) {
        self.before = core::mem::replace(&mut self.now, next);
        self.seconds = seconds.max(0.001);
        let of = |direction: fn(&Report) -> &Direction| {
            let (now, before) = (direction(&self.now), direction(&self.before));
            self.rate(now.received, before.received)
        };
        let rates = [of(|report| &report.up), of(|report| &report.down)];
        if self.rates.len() >= HISTORY {
            self.rates.pop_front();
        }
        self.rates.push_back(rates);
    }

    /// The growth of a count in a second. A balancer that was replaced begins at 0.
    fn rate(&self, now: u64, before: u64) -> f64 {
        now.saturating_sub(before) as f64 / self.seconds
    }

    fn draw(&self, frame: &mut Frame<'_>, title: &str) {
        let backends = u16::try_from(self.now.backends.len()).unwrap_or(u16::MAX);
        let areas = Layout::vertical([
            Constraint::Length(6),
            Constraint::Min(6),
            Constraint::Length(backends.saturating_add(3)),
            Constraint::Length(1),
        ]);
        let [top, middle, bottom, foot] = areas.areas(frame.area());
        frame.render_widget(self.totals(), top);
        self.chart(frame, middle);
        frame.render_widget(self.backends(), bottom);
        let foot_text = format!("{}    q: quit", printable::line(title));
        let grey = Style::new().fg(Color::DarkGray);
        frame.render_widget(Line::styled(foot_text, grey), foot);
    }

    fn totals(&self) -> Paragraph<'_> {
        let (now, before) = (&self.now, &self.before);
        let ports = now.port_usage * 100.0;
        let scarce = now.port_usage >= PORTS_SCARCE;
        let lines = vec![
            self.direction("clients", &now.up, &before.up),
            self.direction("servers", &now.down, &before.down),
            Line::raw(format!(
                "{} flows, {} table entries, {} sockets, {} reset requests",
                count(now.flows as u64),
                count(now.table_entries as u64),
                count(now.sockets as u64),
                count(now.reset_requests)
            )),
            Line::styled(
                format!("{ports:.1} % of the upstream ports in use"),
                warning(scarce),
            ),
        ];
        Paragraph::new(lines).block(Block::bordered().title(" balancer "))
    }

    /// One line: rates, and what is dropped now and was dropped before.
    fn direction(&self, name: &str, now: &Direction, before: &Direction) -> Line<'static> {
        let received = self.rate(now.received, before.received);
        let forwarded = self.rate(now.forwarded, before.forwarded);
        let mut text = format!(
            "from {name}: {} received, {} forwarded",
            per_second(received),
            per_second(forwarded)
        );
        let mut losing = now.overflowed > before.overflowed;
        if now.overflowed > 0 {
            text += &format!("; {} lost before they were read", count(now.overflowed));
        }
        for (reason, total) in &now.dropped {
            let former = before.dropped.get(reason).copied().unwrap_or(0);
            losing |= *total > former;
            text += &format!("; {} {reason}", count(*total));
        }
        Line::styled(text, warning(losing))
    }

    fn chart(&self, frame: &mut Frame<'_>, area: Rect) {
        let points = |direction: usize| {
            let places = (HISTORY - self.rates.len().min(HISTORY)) as u32..;
            let rates = self.rates.iter().filter_map(|rates| rates.get(direction));
            places
                .zip(rates)
                .map(|(place, rate)| (f64::from(place), *rate))
                .collect::<Vec<_>>()
        };
        let (up, down) = (points(0), points(1));
        let highest = up
            .iter()
            .chain(&down)
            .map(|point| point.1)
            .fold(1.0, f64::max);
        let line = |name, colour, data| {
            let set = Dataset::default().name(name).marker(Marker::Braille);
            set.graph_type(GraphType::Line)
                .style(Style::new().fg(colour))
                .data(data)
        };
        let sets = vec![
            line("from servers", Color::Magenta, down.as_slice()),
            line("from clients", Color::Cyan, up.as_slice()),
        ];
        let y = Axis::default()
            .bounds([0.0, highest])
            .labels(["0".to_owned(), per_second(highest)]);
        let chart = Chart::new(sets)
            .block(Block::bordered().title(" datagrams, last two minutes "))
            .x_axis(Axis::default().bounds([0.0, HISTORY as f64]))
            .y_axis(y);
        frame.render_widget(chart, area);
    }

    fn backends(&self) -> Table<'_> {
        let rows = self.now.backends.iter().map(|backend| {
            let known = self.before.backends.iter();
            let before = known.into_iter().find(|before| before.name == backend.name);
            let rate = |of: fn(&Backend) -> u64| {
                let now = of(backend);
                per_second(self.rate(now, before.map_or(now, of)))
            };
            let note = match backend.without_server_id {
                0 => "",
                _ => "no server ID: migration cannot be followed",
            };
            Row::new(vec![
                printable::line(&backend.name).into_owned(),
                backend.state.clone(),
                count(backend.connections_assigned),
                rate(|backend| backend.connections_assigned),
                rate(|backend| backend.datagrams_sent),
                rate(|backend| backend.datagrams_received),
                note.to_owned(),
            ])
            .style(match backend.state.as_str() {
                "active" => Style::new(),
                "draining" => Style::new().fg(Color::Yellow),
                _ => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
            })
        });
        let widths = [24, 9, 12, 10, 13, 13].map(Constraint::Length);
        let widths = widths.into_iter().chain([Constraint::Min(10)]);
        let head = [
            "backend",
            "state",
            "connections",
            "new",
            "sent",
            "received",
            "",
        ];
        Table::new(rows, widths)
            .header(Row::new(head).style(Style::new().add_modifier(Modifier::DIM)))
            .block(Block::bordered().title(" backends "))
    }
}

const fn warning(is_warning: bool) -> Style {
    if is_warning {
        Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
    } else {
        Style::new()
    }
}

/// A count with separators.
fn count(number: u64) -> String {
    clearway_doctor::render::words::count(number)
}

fn per_second(rate: f64) -> String {
    clearway_doctor::render::words::rate(rate)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn report(received: u64, dropped: u64) -> Report {
        let direction = Direction {
            received,
            forwarded: received - dropped,
            dropped: BTreeMap::from([("no-backend".to_owned(), dropped)]),
            overflowed: 0,
        };
        let backend = |name: &str, state: &str| Backend {
            name: name.to_owned(),
            address: "127.0.0.1:1".to_owned(),
            state: state.to_owned(),
            connections_assigned: received / 10,
            datagrams_sent: received,
            datagrams_received: 0,
            without_server_id: u64::from(state == "down"),
        };
        Report {
            up: direction.clone(),
            down: direction,
            flows: 5,
            sockets: 2,
            table_entries: 7,
            reset_requests: 1,
            port_usage: 0.9,
            backends: vec![backend("s1", "active"), backend("s2", "down")],
        }
    }

    #[test]
    fn picture_shows_rates_drops_and_backends() {
        let mut view = View::new(report(1_000, 10));
        view.update(report(3_000, 30), 2.0);
        let mut terminal = Terminal::new(TestBackend::new(120, 30)).expect("a terminal");
        let drawn = terminal.draw(|frame| view.draw(frame, "/run/lb"));
        let buffer = drawn.expect("a picture").buffer.clone();
        let mut text = String::new();
        for row in buffer.content.chunks(120) {
            text.extend(row.iter().map(ratatui::buffer::Cell::symbol));
            text.push('\n');
        }
        for part in [
            "from clients: 1,000/s received, 990/s forwarded; 30 no-backend",
            "90.0 % of the upstream ports in use",
            "s1                       active    300          100/s",
            "no server ID: migration cannot",
            "/run/lb    q: quit",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn replaced_balancer_has_no_negative_rates() {
        let mut view = View::new(report(5_000, 0));
        view.update(report(100, 0), 1.0);
        assert_eq!(view.rates, [[0.0, 0.0]]);
    }
}
