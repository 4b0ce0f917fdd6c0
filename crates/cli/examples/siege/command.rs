//! The command: runs the plan and prints the report.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use clap::Parser as _;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::Args;
use crate::attack::KINDS;
use crate::cores::Cores;
use crate::panics;
use crate::plan::{Step, plan};
use crate::report::{Bars, Summary, Verdict, heading};
use crate::server::{ServerCommand, build_command, has_option};
use crate::site::Site;
use crate::slice::{Rates, Target, Testbed};
use crate::table::tables;

/// Exit code after SIGINT, as shells report it.
const INTERRUPTED: u8 = 128 + 2;

/// Rate of all attackers together, as a multiple of the rate of one alone.
const TOGETHER: u64 = 4;

/// Most runs of a step in which only times were missed.
const RUNS: usize = 3;

/// Medians up to this are never too long in CI, whatever the baseline: of four clients
/// on a machine four times slower than a desktop that other jobs use too, its scheduler
/// takes as much at times, and a stall by an attack takes longer.
const BRIEF_IN_CI: Duration = Duration::from_millis(50);

/// The same by hand: five of its slices are all that the scheduler can take.
const BRIEF: Duration = Duration::from_millis(5);

/// Does what the command line asks for and returns the exit code.
pub(crate) fn run() -> ExitCode {
    let args = Args::parse();
    if args.list {
        return match list() {
            Ok(()) => ExitCode::SUCCESS,
            // Standard output is closed.
            Err(_) => ExitCode::FAILURE,
        };
    }
    panics::record();
    match run_plan(&args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("siege: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_plan(args: &Args) -> io::Result<ExitCode> {
    let interrupted = on_signal()?;
    let program = args.server.clone().map_or_else(build_command, Ok)?;
    let cores = Cores::split()?;
    cores.pin_to_client_cores()?;
    raise_descriptors()?;
    let mut options = args.server_arg.clone();
    let has_budget = has_option(&program, "--memory")?;
    if has_budget {
        options.extend(["--memory".to_owned(), format!("{}MiB", args.memory)]);
    }
    print_conditions(args, &cores, has_budget);
    let testbed = Testbed {
        command: ServerCommand {
            program,
            options,
            descriptors: args.descriptors,
        },
        cores,
        site: Arc::new(Site::create()?),
        interrupted,
    };
    let bars = Bars {
        memory: args.memory << 20,
        descriptors: args.descriptors,
        brief: if args.ci { BRIEF_IN_CI } else { BRIEF },
    };
    let steps = plan(&args.kinds(), args.grouping(), args.duration(), !args.bare);
    let mut out = io::stdout();
    if args.markdown {
        eprintln!("{}", heading());
    } else if !args.json {
        writeln!(out, "{}", heading())?;
    }
    let mut summaries = Vec::new();
    for step in &steps {
        let summary = run_step(&testbed, step, args.rate, bars)?;
        if testbed.interrupted.load(Relaxed) {
            eprintln!("siege: interrupted");
            return Ok(ExitCode::from(INTERRUPTED));
        }
        if args.json {
            writeln!(out, "{}", serde_json::to_string(&summary)?)?;
        } else if args.markdown {
            eprintln!("{}", summary.line());
        } else {
            writeln!(out, "{}", summary.line())?;
        }
        summaries.push(summary);
    }
    conclude(args, &summaries)
}

/// Runs the two slices of a step; once or twice more if only times were missed, after
/// which all samples are judged together.
fn run_step(testbed: &Testbed, step: &Step, rate: u64, bars: Bars) -> io::Result<Summary> {
    let part = if step.together {
        (TOGETHER * rate / step.kinds.len() as u64).max(1)
    } else {
        rate
    };
    let rates = Rates { alone: rate, part };
    let run = || {
        let baseline = match step.baseline {
            Some(time) => Some(testbed.run(&step.kinds, Target::Sink, time, rates)?),
            None => None,
        };
        let slice = testbed.run(&step.kinds, Target::Server, step.attack, rates)?;
        io::Result::Ok((baseline, slice))
    };
    let (mut baseline, mut slice) = run()?;
    for _ in 1..RUNS {
        let summary = Summary::new(step, baseline.as_ref(), &slice, bars);
        if !summary.is_only_slow() || testbed.interrupted.load(Relaxed) {
            break;
        }
        let (again, more) = run()?;
        if let (Some(baseline), Some(again)) = (&mut baseline, again) {
            baseline.merge(again);
        }
        slice.merge(more);
    }
    Ok(Summary::new(step, baseline.as_ref(), &slice, bars))
}

/// Says what the figures depend on.
fn print_conditions(args: &Args, cores: &Cores, has_budget: bool) {
    if !cores.apart {
        eprintln!("siege: only one core is available: the server shares it with the attackers");
    }
    if !has_budget {
        eprintln!("siege: this server has no --memory option: it runs without a memory budget");
    }
    eprintln!(
        "siege: {} s; at most {} packets per second and attacker; the server may use {} MiB \
         and {} descriptors",
        args.duration().as_secs(),
        args.rate,
        args.memory,
        args.descriptors
    );
}

/// Prints the verdict and returns the exit code.
fn conclude(args: &Args, summaries: &[Summary]) -> io::Result<ExitCode> {
    let mut out = io::stdout();
    let of = |verdict| summaries.iter().filter(move |one| one.verdict() == verdict);
    let passed = of(Verdict::Passed).count();
    let failed: Vec<_> = of(Verdict::Failed).map(|one| one.kind.as_str()).collect();
    if args.json {
        let verdict = serde_json::json!({ "passed": passed, "failed": failed });
        writeln!(out, "{verdict}")?;
    } else if args.markdown {
        write!(out, "{}", tables(summaries))?;
    } else {
        write!(out, "{passed} of {} steps passed", summaries.len())?;
        if !failed.is_empty() {
            write!(out, "; failed: {}", failed.join(", "))?;
        }
        writeln!(out)?;
    }
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Prints the kinds of attack.
fn list() -> io::Result<()> {
    let mut out = io::stdout();
    KINDS
        .iter()
        .try_for_each(|kind| writeln!(out, "{:20} {}", kind.name, kind.about))
}

/// Raises our own limit of descriptors: attackers need a socket for each source
/// address.
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

/// Returns a flag that SIGINT and SIGTERM set.
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
