//! A siege: every attack that we know of against the built `clearway serve`, alone and
//! together, while clients that behave well use it and are timed.
//!
//! ```sh
//! cargo run --release -p clearway-cli --example siege                # ten minutes
//! cargo run --release -p clearway-cli --example siege -- --ci        # one
//! cargo run --release -p clearway-cli --example siege -- --list
//! cargo run --release -p clearway-cli --example siege -- --kind icmp --seconds 15
//! ```
//!
//! The server has a core to itself; attackers and clients share the others, where
//! attackers run at the lowest priority: they take what the clients leave. Each step
//! has two slices with a new server each. In the first, the baseline, the attackers
//! aim at a sink, a second server on their own core, so that they cost the clients as
//! much; in the second they aim at the server. What differs is what the attack does to
//! the server. An attacker sends at most `--rate` packets a second of its own accord;
//! all together share four times that, which is more than their core can do.
//!
//! A line a step: packets and bytes sent; connections or handshakes that the server
//! kept for attackers; requests of well-behaved clients, and how many failed; their
//! median and 95th percentile; the ratio of the median to the baseline's, of the kind
//! of request (small, large, upload, newcomer) where it is worst; the server's peak
//! memory and descriptors; how much of a core the server and the attackers used. Below
//! it what the attackers achieved, and each bar that was missed.
//!
//! The bars: every byte arrives, within ten seconds a request; no median is more than
//! twice the baseline's; memory stays under `--memory` and descriptors under
//! `--descriptors`; the server lives, and answers a newcomer within five seconds of the
//! end of the attack; so do clients that are attacked themselves. Exit code 1 if one of
//! them is missed, 130 after a signal.
//!
//! ICMP needs root, and is left out with a sentence without it. Linux only: sources in
//! 127.0.0.0/8, `/proc`, processor affinity.

mod args;
mod attack;
mod cores;
mod honest;
mod panics;
mod plan;
mod report;
mod server;
mod site;
mod slice;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::attack::KINDS;
use crate::cores::Cores;
use crate::plan::{Step, plan};
use crate::report::{Bars, Summary, heading};
use crate::server::{Build, build_command, has_option};
use crate::site::Site;
use crate::slice::{Aim, Ground, Rates};

/// What shells report of a command that a signal ended.
const INTERRUPTED: u8 = 128 + 2;

/// What all attackers together send at most, as a multiple of what one does alone.
const TOGETHER: u64 = 4;

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        return match list() {
            Ok(()) => ExitCode::SUCCESS,
            // Nobody reads on.
            Err(_) => ExitCode::FAILURE,
        };
    }
    panics::record();
    match besiege(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("siege: {error}");
            ExitCode::FAILURE
        }
    }
}

fn besiege(args: &Args) -> io::Result<ExitCode> {
    let program = args.server.clone().map_or_else(build_command, Ok)?;
    let cores = Cores::split()?;
    cores.keep_off()?;
    raise_descriptors()?;
    let mut options = args.server_arg.clone();
    let has_budget = has_option(&program, "--memory")?;
    if has_budget {
        options.extend(["--memory".to_owned(), format!("{}M", args.memory)]);
    }
    introduce(args, &cores, has_budget);
    let ground = Ground {
        build: Build {
            program,
            options,
            descriptors: args.descriptors,
        },
        cores,
        site: Arc::new(Site::create()?),
        interrupted: on_signal()?,
    };
    let bars = Bars {
        memory: args.memory << 20,
        descriptors: args.descriptors,
    };
    let steps = plan(&args.kinds(), args.company(), args.duration(), !args.bare);
    let mut out = io::stdout();
    if !args.json {
        writeln!(out, "{}", heading())?;
    }
    let mut fallen = Vec::new();
    for step in &steps {
        let summary = carry_out(&ground, step, args.rate, bars)?;
        if ground.interrupted.load(Relaxed) {
            eprintln!("siege: interrupted");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&summary)?)?;
        } else {
            writeln!(out, "{}", summary.line())?;
        }
        if !summary.missed.is_empty() {
            fallen.push(summary.kind);
        }
    }
    conclude(args, steps.len(), &fallen)
}

/// A step's two slices.
fn carry_out(ground: &Ground, step: &Step, rate: u64, bars: Bars) -> io::Result<Summary> {
    let part = if step.together {
        (TOGETHER * rate / step.kinds.len() as u64).max(1)
    } else {
        rate
    };
    let rates = Rates { alone: rate, part };
    let baseline = match step.baseline {
        Some(time) => Some(ground.run(&step.kinds, Aim::Sink, time, rates)?),
        None => None,
    };
    let slice = ground.run(&step.kinds, Aim::Server, step.attack, rates)?;
    Ok(Summary::new(step, baseline.as_ref(), &slice, bars))
}

/// What the figures depend on.
fn introduce(args: &Args, cores: &Cores, has_budget: bool) {
    if !cores.apart {
        eprintln!("siege: there is a single core: the server shares it with the attackers");
    }
    if !has_budget {
        eprintln!("siege: this server has no option --memory, and is told no budget");
    }
    eprintln!(
        "siege: {} s, at most {} packets a second from an attacker, {} MiB and {} descriptors \
         for the server",
        args.duration().as_secs(),
        args.rate,
        args.memory,
        args.descriptors
    );
}

/// The verdict.
fn conclude(args: &Args, steps: usize, fallen: &[String]) -> io::Result<ExitCode> {
    let held = steps - fallen.len();
    let mut out = io::stdout();
    if args.json {
        let verdict = serde_json::json!({ "held": held, "fallen": fallen });
        writeln!(out, "{verdict}")?;
    } else if fallen.is_empty() {
        writeln!(out, "{held} of {steps} held")?;
    } else {
        writeln!(out, "{held} of {steps} held; fell to {}", fallen.join(", "))?;
    }
    Ok(if fallen.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn list() -> io::Result<()> {
    let mut out = io::stdout();
    KINDS
        .iter()
        .try_for_each(|kind| writeln!(out, "{:20} {}", kind.name, kind.about))
}

/// Attackers need a socket for each source address.
fn raise_descriptors() -> io::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(())
}

/// Set once SIGINT or SIGTERM has come.
fn on_signal() -> io::Result<Arc<AtomicBool>> {
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let _guard = runtime.enter();
    let (mut interrupt, mut terminate) = (
        signal(SignalKind::interrupt())?,
        signal(SignalKind::terminate())?,
    );
    drop(_guard);
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        });
        flag.store(true, Relaxed);
    });
    Ok(interrupted)
}
