//! A siege from start to end.

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
use crate::panics;
use crate::plan::{Step, plan};
use crate::report::{Bars, Summary, Verdict, heading};
use crate::server::{Build, build_command, has_option};
use crate::site::Site;
use crate::slice::{Aim, Ground, Rates};

/// What shells report of a command that a signal ended.
const INTERRUPTED: u8 = 128 + 2;

/// What all attackers together send at most, as a multiple of what one does alone.
const TOGETHER: u64 = 4;

/// What the command line asks for: the exit code.
pub(crate) fn run() -> ExitCode {
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
    let (mut held, mut fallen) = (0, Vec::new());
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
        match summary.verdict() {
            Verdict::Held => held += 1,
            Verdict::Fell => fallen.push(summary.kind),
            Verdict::LeftOut => {}
        }
    }
    conclude(args, held, steps.len(), &fallen)
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
fn conclude(args: &Args, held: usize, steps: usize, fallen: &[String]) -> io::Result<ExitCode> {
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
