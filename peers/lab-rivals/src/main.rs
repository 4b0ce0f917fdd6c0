//! Other QUIC stacks in the lab's networks, and the league of all of them.

#![expect(
    clippy::duplicate_mod,
    reason = "`family.rs` is one text for two crates of one family"
)]

#[macro_use]
mod cased;
mod capture;
mod clock;
mod engine;
mod entrant;
mod hunt;
mod league;
mod noq;
mod outside;
mod probe;
mod quinn;
mod seed;
mod settings;
mod table;
mod tls;
mod versions;

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use clearway_lab::scenario::{Scenario, Size, catalogue, find};
use serde_json::json;

use crate::capture::Captures;
use crate::entrant::Entrant;
use crate::league::{League, Standing};
use crate::table::Style;

/// Other QUIC stacks in the lab's networks.
#[derive(Debug, Parser)]
#[command(name = "lab-rivals", version)]
enum Command {
    /// Run every stack with every controller through the catalogue and print
    /// one table, then what each misses and why.
    League(Options),
    /// Search for the networks in which a stack does worst, as `clearway lab hunt` does for ours.
    Hunt(hunt::Options),
}

#[derive(Debug, clap::Args)]
struct Options {
    /// The size that continuous integration runs (the default).
    #[arg(long)]
    ci: bool,
    /// The full size of each scenario.
    #[arg(long, conflicts_with = "ci")]
    full: bool,
    /// Names or numbers of scenarios; none for the whole catalogue.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Seeds, rather than each scenario's own number.
    #[arg(long, value_name = "COUNT")]
    seeds: Option<u64>,
    /// Only stacks whose name contains one of these: quinn, clearway/cubic.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    stacks: Vec<String>,
    /// Threads; by default one per core.
    #[arg(long, value_name = "COUNT")]
    threads: Option<usize>,
    /// Record each run, at its sender, in this folder: packets with their TLS secrets, which
    /// `clearway diagnose` reads. One run after the other.
    #[arg(long, value_name = "DIR", conflicts_with = "threads")]
    capture: Option<PathBuf>,
    /// One JSON object, to stdout.
    #[arg(long)]
    json: bool,
    /// Markdown, as `docs/measurements/league.md` has it.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
}

/// What everybody has in common, and what not.
const CONFIGURATION: &str = "\
Both ends of a connection are the same stack. Everybody has the same networks, the same bars (those \
of the controller of the same name), the same certificates (Ed25519) and key exchanges on rustls, path MTU discovery up to 1452 \
bytes and ECN. Flow-control windows, acknowledgement policy, initial window and pacing are each \
stack's defaults, except where a scenario sets one: then all have the same. clearway grows its \
windows up to a budget; quinn and noq have 1.25 MB per stream and no limit per connection. \
clearway's runs repeat to the bit; quinn and noq draw from the system's randomness in places, \
their figures are medians of runs that differ slightly.";

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::League(options) => run(&options),
        Command::Hunt(options) => hunt::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            let _ = writeln!(io::stderr(), "lab-rivals: {message}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let scenarios: Vec<&Scenario> = if options.scenarios.is_empty() {
        catalogue().iter().collect()
    } else {
        let found = options.scenarios.iter().map(|name| find(name));
        found.collect::<Result<_, _>>()?
    };
    let wanted = |entrant: &Entrant| {
        let name = entrant.name();
        options.stacks.is_empty() || options.stacks.iter().any(|part| name.contains(part))
    };
    let entrants: Vec<Entrant> = entrant::ALL.iter().copied().filter(wanted).collect();
    if entrants.is_empty() {
        return Err(format!("no stack is called {}", options.stacks.join(", ")));
    }
    let size = if options.full { Size::Full } else { Size::Ci };
    let league = League::new(&scenarios, &entrants, size, options.seeds)
        .map_err(|error| error.to_string())?;
    let captures = options.capture.as_deref().map(Captures::create);
    let captures = captures.transpose();
    let captures = captures.map_err(|error| cannot_write(&error))?;
    let captures = captures.map(Arc::new);
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = match captures {
        Some(_) => 1,
        None => options.threads.unwrap_or_else(all),
    };
    let (standings, speed) = league.run(threads, captures.as_ref(), &progress);
    if let Some(captures) = captures {
        let finished = captures.finish();
        finished.map_err(|error| cannot_write(&error))?;
    }
    print(options, &standings).map_err(|error| error.to_string())?;
    let _ = writeln!(
        io::stderr(),
        "lab-rivals: {} runs, {:.0} s simulated in {:.1} s",
        speed.runs,
        speed.simulated.as_secs_f64(),
        speed.took.as_secs_f64(),
    );
    Ok(())
}

fn cannot_write(error: &io::Error) -> String {
    format!("--capture: cannot write: {error}")
}

/// One line that overwrites itself, if anybody can see it.
fn progress(done: usize, all: usize) {
    let mut err = io::stderr();
    if err.is_terminal() {
        let _ = write!(err, "\r{done}/{all} runs");
    }
}

/// The command that gives this again.
fn command(options: &Options) -> String {
    let mut words = vec!["lab-rivals league".to_owned()];
    words.push(if options.full { "--full" } else { "--ci" }.to_owned());
    if !options.scenarios.is_empty() {
        words.push(format!("--scenarios {}", options.scenarios.join(",")));
    }
    if let Some(seeds) = options.seeds {
        words.push(format!("--seeds {seeds}"));
    }
    if !options.stacks.is_empty() {
        words.push(format!("--stacks {}", options.stacks.join(",")));
    }
    words.join(" ")
}

fn print(options: &Options, standings: &[Standing]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let versions = [
        ("clearway", versions::of("clearway-lab")),
        ("quinn-proto", versions::of("quinn-proto")),
        ("noq-proto", versions::of("noq-proto")),
        ("rustls", versions::of("rustls")),
    ];
    if options.json {
        let versions: serde_json::Map<_, _> = versions
            .iter()
            .map(|(name, version)| ((*name).to_owned(), json!(version)))
            .collect();
        let all = json!({
            "versions": versions,
            "configuration": CONFIGURATION,
            "command": command(options),
            "standings": standings,
        });
        serde_json::to_writer(&mut out, &all)?;
        return writeln!(out);
    }
    let style = if options.markdown {
        Style::Markdown
    } else {
        Style::Terminal
    };
    let versions = versions.map(|(name, version)| format!("{name} {version}"));
    let (bold, fence) = match style {
        Style::Terminal => ("", ""),
        Style::Markdown => ("## ", "`"),
    };
    writeln!(out, "Versions: {}.", versions.join(", "))?;
    writeln!(out, "Again: {fence}{}{fence}.\n", command(options))?;
    writeln!(out, "{CONFIGURATION}\n")?;
    writeln!(out, "{bold}Standings\n")?;
    writeln!(out, "{}", table::standings(standings, style))?;
    let lifted = table::unmeasured(standings);
    if !lifted.is_empty() {
        writeln!(
            out,
            "Not applied to quinn and noq, which keep no such books: {lifted}.\n"
        )?;
    }
    let misses = table::misses(standings, style);
    if !misses.is_empty() {
        writeln!(out, "{bold}Misses\n")?;
        write!(out, "{misses}")?;
    }
    out.flush()
}
