//! Runs Clearway and its peers against each other, both ways, and prints what works.

mod case;
mod http3;
mod program;
mod run;
mod table;
mod verdict;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, anyhow, ensure};
use case::Case;
use clap::{Parser, ValueEnum};
use program::Program;
use table::Table;
use verdict::{Evidence, Verdict};

/// The folder of programs that cargo does not build, below the home folder.
const PROGRAMS: &str = ".cache/clearway/bin";

/// Clearway against its peers, both ways; exits with 0 only if nothing failed
#[derive(Debug, Parser)]
#[command(
    name = "interop",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// The `clearway` program; not needed with --http3
    #[arg(long, env = "CLEARWAY", required_unless_present = "http3")]
    clearway: Option<PathBuf>,
    /// The `peer-quinn` program [default: the one beside this program]
    #[arg(long, env = "PEER_QUINN")]
    quinn: Option<PathBuf>,
    /// Run the HTTP/3 matrix: `peer-clearway` against every peer that is built
    #[arg(long)]
    http3: bool,
    /// Folder of the programs that cargo does not build here
    /// [default: ~/.cache/clearway/bin]
    #[arg(long, env = "CLEARWAY_PEERS")]
    programs: Option<PathBuf>,
    /// With --http3: only this peer; can be repeated
    #[arg(long = "peer", requires = "http3")]
    peers: Vec<String>,
    /// Run only this case; can be repeated
    #[arg(long = "case")]
    cases: Vec<String>,
    /// Also run each program against itself: what fails there is not an interop problem
    #[arg(long)]
    control: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// The tests of the public interop runner, without Docker
    Run(run::Run),
    /// A control for `run --test crosstraffic`: TCP of the kernel in the place of QUIC
    Control(run::control::Control),
    /// Parts of a test in a network namespace; `run` uses it
    #[command(subcommand, hide = true)]
    Inside(run::inside::Inside),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let failed = match &arguments.command {
        Some(Subcommand::Run(options)) => Some(run::run(options)),
        Some(Subcommand::Control(options)) => Some(run::control::run(options).map(|()| 0)),
        Some(Subcommand::Inside(what)) => Some(run::inside::run(what).map(|()| 0)),
        None => None,
    };
    match failed {
        Some(Ok(0)) => return ExitCode::SUCCESS,
        Some(Ok(_)) => return ExitCode::FAILURE,
        Some(Err(error)) => {
            eprintln!("interop: {error:#}");
            return ExitCode::FAILURE;
        }
        None => {}
    }
    match matrix(arguments) {
        Ok(table) => {
            print!("{table}");
            match table.failures() {
                0 => ExitCode::SUCCESS,
                _ => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            eprintln!("interop: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn matrix(arguments: Arguments) -> Result<Table> {
    if arguments.http3 {
        http3_matrix(&arguments)
    } else {
        raw_matrix(arguments)
    }
}

/// The cases named, or all.
fn chosen<C: ValueEnum>(names: &[String]) -> Result<Vec<C>> {
    if names.is_empty() {
        return Ok(C::value_variants().to_vec());
    }
    let case = |name: &String| C::from_str(name, false).map_err(|why| anyhow!("--case {why}"));
    names.iter().map(case).collect()
}

/// Runs the HTTP/3 matrix: Clearway with every peer, in both roles.
fn http3_matrix(arguments: &Arguments) -> Result<Table> {
    let folder = tempfile::tempdir()?;
    let ours = std::env::current_exe()?;
    let home = || Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(PROGRAMS);
    let others = arguments.programs.clone().unwrap_or_else(home);
    let program = |name, path| Program {
        name,
        path,
        serve: &["serve"],
        get: &["get"],
    };
    let clearway = program("clearway", ours.with_file_name("peer-clearway"));
    let mut peers = vec![
        program("quinn+h3", ours.with_file_name("peer-h3-quinn")),
        program("quic-go", others.join("peer-quic-go")),
        program("aioquic", others.join("peer-aioquic")),
        program("tokio-quiche", others.join("peer-tokio-quiche")),
    ];
    peers.retain(|peer| {
        arguments.peers.is_empty() || arguments.peers.iter().any(|name| name == peer.name)
    });
    ensure!(
        !peers.is_empty(),
        "no such peer: {:?} (see peers/README.md for the names)",
        arguments.peers
    );
    let mut pairs = Vec::new();
    for peer in &peers {
        pairs.extend([(&clearway, peer), (peer, &clearway)]);
    }
    if arguments.control {
        pairs.extend(
            std::iter::once(&clearway)
                .chain(&peers)
                .map(|one| (one, one)),
        );
    }
    let quinn = quinn(arguments.quinn.clone())?;
    certify(&quinn, folder.path())?;
    let row = |case: &http3::Case| {
        let cells = pairs
            .iter()
            .map(|(client, server)| http3::cell(*case, client, server, folder.path()));
        (name(case), cells.collect())
    };
    Ok(Table {
        pairs: names(&pairs),
        rows: chosen(&arguments.cases)?.iter().map(row).collect(),
    })
}

/// Returns the name of a case on the command line.
fn name(case: &impl ValueEnum) -> String {
    let value = case.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

fn names(pairs: &[(&Program, &Program)]) -> Vec<String> {
    let name =
        |(client, server): &(&Program, &Program)| format!("{} → {}", client.name, server.name);
    pairs.iter().map(name).collect()
}

fn quinn(path: Option<PathBuf>) -> Result<Program> {
    Ok(Program {
        name: "quinn",
        path: path.map_or_else(beside, Ok)?,
        serve: &["server"],
        get: &["client"],
    })
}

/// Runs the clearway-raw matrix in both roles.
fn raw_matrix(arguments: Arguments) -> Result<Table> {
    let clearway = Program {
        name: "clearway",
        path: arguments
            .clearway
            .context("--clearway is required without --http3")?,
        serve: &["raw", "serve"],
        get: &["raw", "get"],
    };
    let quinn = quinn(arguments.quinn)?;
    let mut pairs = vec![(&clearway, &quinn), (&quinn, &clearway)];
    if arguments.control {
        pairs.extend([(&clearway, &clearway), (&quinn, &quinn)]);
    }
    let cases: Vec<Case> = chosen(&arguments.cases)?;
    let folder = tempfile::tempdir()?;
    certify(&quinn, folder.path())?;
    let row = |case: &Case| {
        let cells = pairs
            .iter()
            .map(|pair| cell(*case, *pair, folder.path()))
            .collect();
        (name(case), cells)
    };
    Ok(Table {
        pairs: names(&pairs),
        rows: cases.iter().map(row).collect(),
    })
}

/// Returns the path of the peer's program beside this one.
fn beside() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("peer-quinn");
    ensure!(
        path.exists(),
        "{} does not exist: build the peers first",
        path.display()
    );
    Ok(path)
}

/// Lets the peer write certificates.
fn certify(quinn: &Program, folder: &Path) -> Result<()> {
    let mut command = Command::new(&quinn.path);
    let status = command.args(["cert", "--out"]).arg(folder).status();
    let status = status.with_context(|| format!("starting {}", quinn.path.display()))?;
    ensure!(
        status.success(),
        "{} failed to write certificates",
        quinn.path.display()
    );
    Ok(())
}

/// Runs the attempts of a case between two programs, and returns the best result.
fn cell(case: Case, (client, server): (&Program, &Program), folder: &Path) -> Verdict {
    let mut verdict = Verdict::Unproven("never tried".to_owned());
    for _ in 0..case.attempts() {
        verdict = attempt(case, client, server, folder)
            .unwrap_or_else(|error| Verdict::Fail(format!("{error:#}")));
        if verdict == Verdict::Pass {
            break;
        }
    }
    verdict
}

/// Runs a case between two programs.
fn attempt(case: Case, client: &Program, server: &Program, folder: &Path) -> Result<Verdict> {
    let running = server.serve(case.server(), folder)?;
    let options: Vec<_> = case
        .requests()
        .into_iter()
        .chain(case.client().map(str::to_owned))
        .collect();
    let report = client.get(&options, &running.address, folder);
    let report = report.with_context(|| format!("server: {}", running.complaint()))?;
    let evidence = Evidence {
        client: &report,
        server: &running.closed(case.connections()),
    };
    Ok(evidence.judge(case))
}
