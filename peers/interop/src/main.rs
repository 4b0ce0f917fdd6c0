//! Runs Clearway and its peers against each other, both ways, and prints what works.

mod case;
mod program;
mod table;
mod verdict;

use std::{
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, ensure};
use case::Case;
use clap::{Parser, ValueEnum};
use program::Program;
use table::Table;
use verdict::{Evidence, Verdict};

/// Clearway against its peers, both ways; exits with 0 only if nothing failed
#[derive(Debug, Parser)]
#[command(name = "interop", version)]
struct Arguments {
    /// The `clearway` program
    #[arg(long, env = "CLEARWAY")]
    clearway: PathBuf,
    /// The `peer-quinn` program [default: the one beside this program]
    #[arg(long, env = "PEER_QUINN")]
    quinn: Option<PathBuf>,
    /// Run this case only; may be given again
    #[arg(long = "case")]
    cases: Vec<Case>,
    /// Also run each program against itself: what fails there is no matter of interop
    #[arg(long)]
    control: bool,
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
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

fn run(arguments: Arguments) -> Result<Table> {
    let clearway = Program {
        name: "clearway",
        path: arguments.clearway,
        serve: &["raw", "serve"],
        get: &["raw", "get"],
    };
    let quinn = Program {
        name: "quinn",
        path: arguments.quinn.map_or_else(beside, Ok)?,
        serve: &["server"],
        get: &["client"],
    };
    let mut pairs = vec![(&clearway, &quinn), (&quinn, &clearway)];
    if arguments.control {
        pairs.extend([(&clearway, &clearway), (&quinn, &quinn)]);
    }
    let cases = match arguments.cases.as_slice() {
        [] => Case::value_variants(),
        chosen => chosen,
    };
    let folder = tempfile::tempdir()?;
    certify(&quinn, folder.path())?;
    let row = |case: &Case| {
        let cells = pairs
            .iter()
            .map(|pair| cell(*case, *pair, folder.path()))
            .collect();
        (*case, cells)
    };
    Ok(Table {
        pairs: pairs
            .iter()
            .map(|(client, server)| format!("{} → {}", client.name, server.name))
            .collect(),
        rows: cases.iter().map(row).collect(),
    })
}

/// The peer's program in the folder this one is in.
fn beside() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("peer-quinn");
    ensure!(
        path.exists(),
        "no {}: build the peers first",
        path.display()
    );
    Ok(path)
}

/// Has the peer write certificates.
fn certify(quinn: &Program, folder: &Path) -> Result<()> {
    let mut command = Command::new(&quinn.path);
    let status = command.args(["cert", "--out"]).arg(folder).status();
    let status = status.with_context(|| format!("starting {}", quinn.path.display()))?;
    ensure!(
        status.success(),
        "{} made no certificates",
        quinn.path.display()
    );
    Ok(())
}

/// The best of a case's attempts between two programs.
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

/// One case between two programs.
fn attempt(case: Case, client: &Program, server: &Program, folder: &Path) -> Result<Verdict> {
    let running = server.serve(case, folder)?;
    let report = client.get(case, &running.address, folder);
    let report = report.with_context(|| format!("server: {}", running.complaint()))?;
    let evidence = Evidence {
        client: &report,
        server: &running.closed(case.connections()),
    };
    Ok(evidence.judge(case))
}
