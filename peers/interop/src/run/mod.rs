//! `interop run`: the tests of the public QUIC interop runner without Docker. Endpoints keep its
//! contract (environment variables, directories, exit codes), the network is a relay in this
//! process with the lab's link models, and its recording is checked as the public runner checks
//! its captures.

mod capture;
mod catalogue;
mod checks;
mod cleanup;
pub(crate) mod control;
mod decrypted;
mod endpoint;
pub(crate) mod inside;
mod jobs;
mod network;
mod report;
mod selection;
mod test;
mod tunnel;

use std::{num::NonZeroUsize, path::PathBuf};

use anyhow::Result;
use clap::Args;

use endpoint::Endpoint;
use jobs::Planned;
use report::Report;

/// Options of `interop run`
#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Run only this test; can be repeated
    #[arg(long = "test")]
    tests: Vec<String>,
    /// Run only pairs of these endpoints; can be repeated
    #[arg(long = "endpoint")]
    endpoints: Vec<String>,
    /// Leave out Clearway with itself
    #[arg(long)]
    others_only: bool,
    /// Also run the tests that take minutes
    #[arg(long)]
    all: bool,
    /// How often each test is run; a cell passes if every run does
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: u32,
    /// Run all repetitions also when one fails, to count how many do
    #[arg(long)]
    count_failures: bool,
    /// The seed of the network in the first run of each test; the next ones have the next numbers
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many tests to run at once; those that measure are run alone
    #[arg(long, default_value = "1")]
    jobs: NonZeroUsize,
    /// Another endpoint: its name, and the program that keeps the runner's contract
    #[arg(long = "with", value_name = "NAME=PROGRAM", value_parser = endpoint::parse)]
    others: Vec<Endpoint>,
    /// Another endpoint, without HTTP/0.9: all tests with it are run over HTTP/3
    #[arg(long, value_name = "NAME=PROGRAM", value_parser = endpoint::parse_http3)]
    with_http3: Vec<Endpoint>,
    /// The congestion controller of Clearway's endpoints
    #[arg(long, value_parser = endpoint::parse_controller)]
    controller: Option<String>,
    /// Replace the table between the markers of this Markdown file. Cells that are not run now
    /// keep what they say there
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Replace the summary of that table between the markers of this Markdown file
    #[arg(long, value_name = "FILE", requires = "markdown")]
    summary: Option<PathBuf>,
    /// Keep the directories of runs that failed, or measured what is not enough, below this one
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// Runs the tests and prints the table as Markdown. Returns the number of failed cells.
pub(crate) fn run(options: &Run) -> Result<usize> {
    let ours = std::env::current_exe()?.with_file_name("interop-endpoint");
    let tests = selection::tests(options)?;
    let endpoints = selection::endpoints(Endpoint::ours(ours), options)?;
    let pairs = selection::pairs(&endpoints, options)?;
    let planned = selection::plan(&tests, &pairs)?;
    selection::check_programs(&endpoints)?;
    report::check_files(options.markdown.as_deref(), options.summary.as_deref())?;
    let names = catalogue::ALL.iter().map(|test| test.name);
    let mut report = Report::new(names);
    for (client, server) in &pairs {
        report.add_pair(&client.name, &server.name);
        let others = catalogue::ALL.iter();
        for test in others.filter(|test| !test.concerns(client, server)) {
            report.leave_out(test.name, (&client.name, &server.name));
        }
    }
    cleanup::on_signals()?;
    let run = |planned: &Planned<'_>, repetition| planned.run(repetition, options);
    jobs::run_all(&planned, options, run, |planned, cell| {
        let (test, client, server) = (
            planned.test.name,
            &planned.client.name,
            &planned.server.name,
        );
        eprintln!("{test} {client} → {server}: {}", cell.last);
        report.set(test, (client, server), cell);
        if let Some(file) = &options.markdown {
            // A signal must not leave half a file.
            let _present = cleanup::present();
            let all = report.update(file)?;
            if let Some(summary) = &options.summary {
                all.update_summary(summary)?;
            }
        }
        Ok(())
    })?;
    print!("{}", report.markdown());
    Ok(report.failed())
}
