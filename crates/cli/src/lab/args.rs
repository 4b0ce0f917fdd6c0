//! The arguments of `clearway lab`.

use std::path::PathBuf;

use clearway_lab::scenario::Size;

/// What `clearway lab --help` says.
pub(crate) const ABOUT: &str = "\
Put congestion controllers through networks in virtual time.

Both ends of every connection are the production code, driven by a virtual
clock: seconds of simulated network take milliseconds, and the same seed gives
the same packets at the same times.";

/// Seeds of a scenario at most.
const MOST_SEEDS: u64 = 1_000_000;

/// What to do in the lab.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List the scenarios.
    List(List),
    /// Explain a scenario.
    Show(Show),
    /// Run scenarios and judge them by their bars.
    Run(Box<Run>),
    /// Run a grid of paths: rate, RTT, queue, loss.
    Sweep(Box<Sweep>),
    /// Run controllers through the catalogue and print one table. Other stacks
    /// take part in `lab-rivals league` (cargo run --release -p lab-rivals in peers/).
    League(League),
    /// Run two controllers through the same networks, side by side.
    Compare(Compare),
    /// Say what is wrong with a connection, from its qlog.
    Diagnose(Diagnose),
}

/// `clearway lab list`.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// One JSON object per scenario, to stdout.
    #[arg(long)]
    pub(super) json: bool,
    /// List the figures that bars can be set on instead.
    #[arg(long)]
    pub(super) metrics: bool,
}

/// `clearway lab show`.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    /// A scenario's name or number, or a file.
    pub(super) scenario: String,
}

/// How much of each scenario, with which controllers and seeds.
#[derive(Debug, clap::Args)]
pub(crate) struct Extent {
    /// Controllers, rather than each scenario's own.
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    pub(super) controller: Vec<String>,
    /// Seeds, rather than each scenario's own number.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=MOST_SEEDS))]
    pub(super) seeds: Option<u64>,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 1)]
    pub(super) seed: u64,
    /// The full size of each scenario.
    #[arg(long, conflicts_with = "ci")]
    pub(super) full: bool,
    /// The size that continuous integration runs (the default).
    #[arg(long)]
    pub(super) ci: bool,
    /// Only the point of the grid with this name, or those that have all these words in it, or
    /// those that contain this.
    #[arg(long, value_name = "TEXT")]
    pub(super) variant: Option<String>,
    /// Carry every flow as requests of HTTP/3, whatever the scenario says.
    #[arg(long)]
    pub(super) http3: bool,
    /// Threads; by default one per core.
    #[arg(long, value_name = "COUNT")]
    pub(super) threads: Option<usize>,
    /// One JSON object per run, to stdout.
    #[arg(long)]
    pub(super) json: bool,
}

impl Extent {
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
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// Names, numbers or files of scenarios; none for the whole catalogue.
    #[arg(value_name = "NAME|FILE")]
    pub(super) scenarios: Vec<String>,
    #[command(flatten)]
    pub(super) extent: Extent,
    /// Write the packets of the first run as the end with the bulk sends and
    /// receives them, readable with their secrets.
    #[arg(long, value_name = "FILE")]
    pub(super) pcap: Option<PathBuf>,
    /// Write a qlog file for each end of every run.
    #[arg(long, value_name = "DIR")]
    pub(super) qlog: Option<PathBuf>,
    /// Write a page that shows the first run.
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
    /// Give both ends a known bug of another stack (builds with the feature
    /// `specimens` only); without a scenario, the one made to show it.
    #[arg(long, value_name = "NAME")]
    pub(super) specimen: Option<String>,
    /// Let the detectors look at every run; by default at each first seed.
    #[arg(long)]
    pub(super) detect: bool,
}

/// Values between commas.
#[derive(Clone, Debug)]
pub(crate) struct Values(pub(super) Vec<String>);

impl core::str::FromStr for Values {
    type Err = core::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let values = text.split(',').map(str::trim);
        Ok(Self(values.map(str::to_owned).collect()))
    }
}

/// `clearway lab sweep`.
#[derive(Debug, clap::Args)]
pub(crate) struct Sweep {
    /// Bit/s of the bottleneck.
    #[arg(long, value_name = "RATE,…", default_value = "10M,100M")]
    pub(super) rate: Values,
    /// Two-way propagation delay.
    #[arg(long, value_name = "TIME,…", default_value = "10ms,100ms")]
    pub(super) rtt: Values,
    /// What may wait: 25 (packets), 64KB, 1bdp, 80ms.
    #[arg(long, value_name = "LIMIT,…", default_value = "1bdp")]
    pub(super) queue: Values,
    /// Random loss both ways.
    #[arg(long, value_name = "SHARE,…", default_value = "0%,1%")]
    pub(super) loss: Values,
    /// Settings for both directions beside these: 'jitter=1ms reorder=5%:20ms'.
    #[arg(long, value_name = "SETTINGS", default_value = "")]
    pub(super) also: String,
    /// What is carried.
    #[arg(long, default_value = "download", value_parser = ["download", "upload", "both"])]
    pub(super) traffic: String,
    /// How much.
    #[arg(long, value_name = "BYTES", default_value = "10MB")]
    pub(super) bytes: String,
    /// Virtual time at most.
    #[arg(long, value_name = "TIME", default_value = "300s")]
    pub(super) duration: String,
    /// Print the sweep as a scenario file instead of running it.
    #[arg(long)]
    pub(super) print: bool,
    #[command(flatten)]
    pub(super) extent: Extent,
}

/// `clearway lab league`.
#[derive(Debug, clap::Args)]
pub(crate) struct League {
    /// Scenarios; none for the whole catalogue.
    #[arg(value_name = "NAME|FILE")]
    pub(super) scenarios: Vec<String>,
    #[command(flatten)]
    pub(super) extent: Extent,
}

/// `clearway lab compare`.
#[derive(Debug, clap::Args)]
#[command(mut_arg("controller", |it| it.hide(true)))]
pub(crate) struct Compare {
    /// A controller.
    pub(super) a: String,
    /// Another.
    pub(super) b: String,
    /// Scenarios; none for the whole catalogue.
    #[arg(value_name = "NAME|FILE")]
    pub(super) scenarios: Vec<String>,
    #[command(flatten)]
    pub(super) extent: Extent,
}

/// `clearway lab diagnose`.
#[derive(Debug, clap::Args)]
pub(crate) struct Diagnose {
    /// A qlog file of any stack: JSON text sequences, JSON lines, or one JSON.
    #[arg(value_name = "FILE.sqlog")]
    pub(super) file: PathBuf,
    /// One JSON object, to stdout.
    #[arg(long)]
    pub(super) json: bool,
    /// Write a page that shows the trace.
    #[arg(long, value_name = "FILE.html")]
    pub(super) report: Option<PathBuf>,
}
