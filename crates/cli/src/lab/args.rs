//! The arguments of `clearway lab`.

use std::path::PathBuf;

use clearway::SlowStart;
use clearway_lab::run::Shard;
use clearway_lab::scenario::Size;

use serde::{Deserialize, Serialize};

use crate::controller_help::controller_help;
use crate::diagnose;

/// What `clearway lab --help` says.
pub(crate) const ABOUT: &str = "\
Test congestion controllers on simulated networks in virtual time.

Both ends of every connection run the production code, driven by a virtual
clock: seconds of simulated time take milliseconds, and the same seed gives
the same packets at the same times.";

/// Maximum number of seeds of a scenario.
const MOST_SEEDS: u64 = 1_000_000;

/// What to do in the lab.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the scenarios.
    List(List),
    /// Explain a scenario.
    Show(Show),
    /// Run scenarios and check their results against their bars.
    Run(Box<Run>),
    /// Run a grid of paths: rate, RTT, queue, loss.
    Sweep(Box<Sweep>),
    /// Search for the networks in which controllers do worst.
    Hunt(Box<HuntArgs>),
    /// Join the results of the parts of a batch (--shard), and judge them.
    Merge(Merge),
    /// Run controllers through the catalogue and print one table. Other stacks
    /// take part in `lab-rivals league` (cargo run --release -p lab-rivals in peers/).
    League(League),
    /// Run two controllers through the same networks, side by side.
    Compare(Compare),
    /// Find out why a connection was slow, from its trace: the same as clearway diagnose.
    #[command(long_about = diagnose::ABOUT)]
    Diagnose(diagnose::Args),
}

/// `clearway lab list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Print one JSON object per scenario to stdout.
    #[arg(long)]
    pub(super) json: bool,
    /// List the metrics that bars can be set on instead.
    #[arg(long)]
    pub(super) metrics: bool,
}

/// `clearway lab show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// Name, number or file of a scenario.
    pub(super) scenario: String,
}

/// The names of [`SlowStart`] as an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub(crate) enum SlowStartName {
    /// When the RTT rises (RFC 9406).
    Hystart,
    /// When less arrives than was sent a round trip before (draft-chung-ccwg-search).
    Search,
    /// By congestion only (RFC 9002 §7.3.1).
    Standard,
}

impl SlowStartName {
    pub(super) const fn slow_start(self) -> SlowStart {
        match self {
            Self::Hystart => SlowStart::HyStart,
            Self::Search => SlowStart::Search,
            Self::Standard => SlowStart::Standard,
        }
    }
}

/// How much of each scenario, with which controllers and seeds.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub(crate) struct RunSelection {
    /// Controllers to run, instead of those of each scenario.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',',
          help = controller_help("Controllers to run, instead of those of each scenario"))]
    pub(super) controller: Vec<String>,
    /// Number of seeds, instead of that of each scenario.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    pub(super) seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(super) seed: u64,
    /// Run the full size of each scenario.
    #[arg(long, conflicts_with = "ci")]
    pub(super) full: bool,
    /// Run the size for continuous integration (the default).
    #[arg(long)]
    pub(super) ci: bool,
    /// Run only the grid point with this name, or else those whose names have all these words,
    /// or else those whose names contain this text.
    #[arg(long, value_name = "TEXT")]
    pub(super) variant: Option<String>,
    /// How the first slow start of every flow ends, whatever the scenario says.
    #[arg(long, value_name = "NAME")]
    #[serde(default)]
    pub(super) slow_start: Option<SlowStartName>,
    /// Carry every flow as HTTP/3 requests, whatever the scenario says.
    #[arg(long)]
    pub(super) http3: bool,
    /// Number of threads; by default one per core.
    #[arg(long, value_name = "COUNT")]
    #[serde(skip)]
    pub(super) threads: Option<usize>,
    /// Print one JSON object per run to stdout.
    #[arg(long)]
    #[serde(skip)]
    pub(super) json: bool,
}

/// A part of a batch that several machines do.
#[derive(Clone, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize)]
pub(crate) struct BatchPart {
    /// Do only the runs of this part, such as 1/4 for the first of four, and judge nothing:
    /// `clearway lab merge` joins the results of all parts.
    #[arg(long, value_name = "I/N", requires = "results")]
    #[serde(skip)]
    pub(super) shard: Option<Shard>,
    /// The file for the results of --shard.
    #[arg(long, value_name = "FILE", requires = "shard")]
    #[serde(skip)]
    pub(super) results: Option<PathBuf>,
}

impl RunSelection {
    pub(super) const fn size(&self) -> Size {
        if self.full { Size::Full } else { Size::Ci }
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        })
    }
}

/// `clearway lab run`.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub(crate) struct Run {
    /// Names, numbers or files of scenarios; if omitted, the whole catalogue.
    #[arg(value_name = "NAME|FILE")]
    pub(super) scenarios: Vec<String>,
    #[command(flatten)]
    pub(super) extent: RunSelection,
    #[command(flatten)]
    #[serde(skip)]
    pub(super) part: BatchPart,
    /// Write the packets of the first run to a pcapng file, with the TLS secrets, as seen by
    /// the end that sends the bulk of the data.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub(super) pcap: Option<PathBuf>,
    /// Write a qlog file for each end of every run.
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub(super) qlog: Option<PathBuf>,
    /// Write an HTML report of the first run.
    #[arg(long, value_name = "FILE.html")]
    #[serde(skip)]
    pub(super) report: Option<PathBuf>,
    /// Give both ends a known bug of another stack (requires the cargo feature `specimens`);
    /// without a scenario, runs the one made to show it.
    #[arg(long, value_name = "NAME")]
    pub(super) specimen: Option<String>,
    /// Run the detectors on every run; by default only on the first seed of each case.
    #[arg(long)]
    pub(super) detect: bool,
    /// Draw a new first seed and print it. Runs twenty seeds of each case unless --seeds says
    /// otherwise; a bar counts as missed if more than a tenth of them miss it.
    #[arg(long, conflicts_with_all = ["seed", "shard"])]
    #[serde(skip)]
    pub(super) fresh: bool,
}

/// Values between commas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ValueList(pub(super) Vec<String>);

impl core::str::FromStr for ValueList {
    type Err = core::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let values = text.split(',').map(str::trim);
        Ok(Self(values.map(str::to_owned).collect()))
    }
}

/// `clearway lab sweep`.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub(crate) struct Sweep {
    /// Bottleneck rates in bit/s.
    #[arg(long, value_name = "RATE,…", default_value = "10M,100M")]
    pub(super) rate: ValueList,
    /// Two-way propagation delays.
    #[arg(long, value_name = "TIME,…", default_value = "10ms,100ms")]
    pub(super) rtt: ValueList,
    /// Queue limits: 25 (packets), 64KB, 1bdp, 80ms.
    #[arg(long, value_name = "LIMIT,…", default_value = "1bdp")]
    pub(super) queue: ValueList,
    /// Random loss rates, in both directions.
    #[arg(long, value_name = "SHARE,…", default_value = "0%,1%")]
    pub(super) loss: ValueList,
    /// More settings for both directions: 'jitter=1ms reorder=5%:20ms'.
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    pub(super) also: String,
    /// Kind of traffic.
    #[arg(long, default_value = "download", value_parser = ["download", "upload", "both"])]
    pub(super) traffic: String,
    /// Bytes to transfer.
    #[arg(long, value_name = "BYTES", default_value = "10MB")]
    pub(super) bytes: String,
    /// Maximum virtual time of a run.
    #[arg(long, value_name = "TIME", default_value = "300s")]
    pub(super) duration: String,
    /// Number of flows that start together.
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(super) flows: u32,
    /// Begin to measure after this time.
    #[arg(long, value_name = "TIME", default_value = "0s")]
    pub(super) warmup: String,
    /// Write a qlog file for each end of every run.
    #[arg(long, value_name = "DIR")]
    #[serde(skip)]
    pub(super) qlog: Option<PathBuf>,
    /// Run the detectors on every run: what they find fails the sweep.
    #[arg(long)]
    pub(super) detect: bool,
    /// Print the sweep as a scenario file instead of running it.
    #[arg(long)]
    #[serde(skip)]
    pub(super) print: bool,
    #[command(flatten)]
    pub(super) extent: RunSelection,
    #[command(flatten)]
    #[serde(skip)]
    pub(super) part: BatchPart,
}

/// `clearway lab hunt`.
#[derive(Debug, clap::Args)]
pub(crate) struct HuntArgs {
    /// Controllers, each searched for by itself; by default newreno, cubic, bbr and prague.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) controller: Vec<String>,
    /// The seed of the search: the same seed and number of evaluations give the same cases.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(super) seed: u64,
    /// Stop after this many runs, over all controllers [default: 2000].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) evaluations: Option<u64>,
    /// Stop after this much processor time, over all threads: 15 (seconds) or 900s.
    #[arg(long, value_name = "TIME", value_parser = crate::seconds::limit)]
    pub(super) cpu: Option<clearway_links::Span>,
    /// The size for continuous integration: few evaluations, always the same.
    #[arg(long, conflicts_with_all = ["evaluations", "cpu", "seed"])]
    pub(super) ci: bool,
    /// How extreme the networks may be: a TOML file with any of rate, rtt, queue, duration
    /// (each a smallest and a largest value), marking, loss, late, outage, flows, traffic, without.
    #[arg(long, value_name = "FILE")]
    pub(super) bounds: Option<PathBuf>,
    /// What each controller has to reach, instead of the built-in file
    /// crates/lab/hunt/envelopes.toml.
    #[arg(long, value_name = "FILE")]
    pub(super) envelopes: Option<PathBuf>,
    /// Cases that are known, with their reasons, instead of crates/lab/hunt/known.toml.
    #[arg(long, value_name = "FILE")]
    pub(super) known: Option<PathBuf>,
    /// Write every run and every case to this file, a JSON object a line.
    #[arg(long, value_name = "FILE")]
    pub(super) results: Option<PathBuf>,
    /// Go on with the search that --results has.
    #[arg(long, requires = "results")]
    pub(super) resume: bool,
    /// Write a scenario file and an HTML report of each case to this directory.
    #[arg(long, value_name = "DIR")]
    pub(super) cases: Option<PathBuf>,
    /// Give both ends a known bug of another stack (requires the cargo feature `specimens`).
    #[arg(long, value_name = "NAME")]
    pub(super) specimen: Option<String>,
    /// One of several searches with different seeds, such as 1/4; `clearway lab merge` joins
    /// their results.
    #[arg(long, value_name = "I/N", requires = "results")]
    pub(super) shard: Option<Shard>,
    /// Number of threads; by default one per core.
    #[arg(long, value_name = "COUNT")]
    pub(super) threads: Option<usize>,
    /// Print one JSON object per case to stdout.
    #[arg(long)]
    pub(super) json: bool,
}

/// `clearway lab merge`.
#[derive(Debug, clap::Args)]
pub(crate) struct Merge {
    /// The results of every part of one run, sweep or hunt.
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,
    /// Print one JSON object per run, or per case of a hunt, to stdout.
    #[arg(long)]
    pub(super) json: bool,
    /// Write a scenario file and an HTML report of each case of a hunt to this directory.
    #[arg(long, value_name = "DIR")]
    pub(super) cases: Option<PathBuf>,
}

/// `clearway lab league`.
#[derive(Debug, clap::Args)]
pub(crate) struct League {
    /// Scenarios; if omitted, the whole catalogue.
    #[arg(value_name = "NAME|FILE")]
    pub(super) scenarios: Vec<String>,
    #[command(flatten)]
    pub(super) extent: RunSelection,
}

/// `clearway lab compare`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("controller", |it| it.hide(true)))]
pub(crate) struct Compare {
    /// First controller.
    pub(super) a: String,
    /// Second controller.
    pub(super) b: String,
    /// Scenarios; if omitted, the whole catalogue.
    #[arg(value_name = "NAME|FILE")]
    pub(super) scenarios: Vec<String>,
    #[command(flatten)]
    pub(super) extent: RunSelection,
}
