//! Measures Clearway and other stacks side by side. Each server and client is a process pinned to a
//! core of its own; loads run one after the other, and stacks in turns. Prints a table.

mod disturbance;
mod load;
mod process;
mod stack;
mod table;

use std::{path::PathBuf, process::ExitCode};

use anyhow::{Result, ensure};
use clap::Parser;
use disturbance::Disturbance;
use load::{Case, Load, Sample, Size};
use process::Cores;
use stack::Stack;
use table::{Row, Table};

/// Clearway and its rivals side by side
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
struct Arguments {
    /// Quick check: one round of one second, 200 idle connections
    #[arg(long)]
    quick: bool,
    /// Runs of each load for each stack [default: 5]
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds of a timed load [default: 5]
    #[arg(long)]
    seconds: Option<f64>,
    /// Idle connections [default: 10000]
    #[arg(long)]
    idle: Option<u64>,
    /// Only this load; can be repeated
    #[arg(long = "load")]
    loads: Vec<Load>,
    /// Only this stack; can be repeated
    #[arg(long = "stack")]
    stacks: Vec<String>,
    /// Requests under way at once
    #[arg(long, value_delimiter = ',', default_value = "100")]
    in_flight: Vec<u64>,
    /// Connections that share them
    #[arg(long, value_delimiter = ',', default_value = "1")]
    connections: Vec<u64>,
    /// Measure beside a load that takes a fifth of each core in bursts of 5 ms
    #[arg(long)]
    disturb: bool,
    /// Also measure other stacks with their best settings
    #[arg(long)]
    tuned: bool,
    /// Core of the servers
    #[arg(long, default_value_t = 0)]
    server_core: usize,
    /// Core of the clients
    #[arg(long, default_value_t = 1)]
    client_core: usize,
    /// Folder of the programs that cargo does not build here
    /// [default: ~/.cache/clearway/bin]
    #[arg(long, env = "CLEARWAY_PEERS")]
    programs: Option<PathBuf>,
    /// Print every sample as JSON instead of the table
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Measures, prints, and returns how many samples failed.
fn run(arguments: &Arguments) -> Result<usize> {
    let (rounds, seconds, idle) = if arguments.quick {
        (1, 1.0, 200)
    } else {
        (5, 5.0, 10_000)
    };
    let rounds = arguments.rounds.unwrap_or(rounds);
    let size = Size {
        seconds: arguments.seconds.unwrap_or(seconds),
        idle: arguments.idle.unwrap_or(idle),
    };
    let mut stacks = stack::found(arguments.programs.clone(), arguments.tuned)?;
    stacks.retain(|stack| {
        arguments.stacks.is_empty() || arguments.stacks.iter().any(|name| name == stack.name)
    });
    ensure!(!stacks.is_empty(), "no stack is built: run peers/build.sh");
    let loads = match arguments.loads.as_slice() {
        [] => Load::ALL.to_vec(),
        chosen => chosen.to_vec(),
    };
    let cores = Cores {
        server: arguments.server_core,
        client: arguments.client_core,
    };
    ensure!(
        arguments
            .connections
            .iter()
            .chain(&arguments.in_flight)
            .all(|&count| count > 0),
        "--in-flight and --connections must be greater than zero"
    );
    let cases = loads
        .into_iter()
        .flat_map(|load| Case::of(load, &arguments.in_flight, &arguments.connections));
    let _disturbance = arguments.disturb.then(|| Disturbance::start(2));
    let folder = tempfile::tempdir()?;
    stack::certify(folder.path())?;
    let mut table = Table::default();
    for case in cases {
        let able: Vec<&Stack> = stacks
            .iter()
            .filter(|stack| case.load.suits(stack))
            .collect();
        let mut rows: Vec<Row> = able
            .iter()
            .map(|stack| Row::new(case, stack.name))
            .collect();
        for round in 1..=rounds {
            for (stack, row) in able.iter().zip(&mut rows) {
                eprintln!("{}, {}, {round} of {rounds}", case.name(), stack.name);
                match case.measure(stack, &size, cores, folder.path()) {
                    Ok(sample) => row.samples.push(sample),
                    Err(error) => row.failures.push(format!("{error:#}")),
                }
            }
        }
        table.rows.extend(rows);
    }
    if arguments.json {
        println!("{}", table.json()?);
    } else {
        print!("{table}");
    }
    Ok(table.failures())
}
