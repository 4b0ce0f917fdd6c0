//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::attack::{KINDS, Kind, find};
use crate::plan::Grouping;

/// Default length of a siege by hand and in CI, seconds.
const BY_HAND: u64 = 600;
const IN_CI: u64 = 60;

/// Attacks the built `clearway serve` in every way we know of, and checks that
/// well-behaved clients do not suffer.
#[derive(Debug, Parser)]
#[command(name = "siege")]
pub(crate) struct Args {
    /// Length of the whole siege in seconds [default: 600, with --ci 60].
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// A short siege: attackers attack in groups instead of one by one.
    #[arg(long)]
    pub(crate) ci: bool,
    /// Run only this attacker; can be repeated.
    #[arg(long, value_name = "NAME", value_parser = kind)]
    kind: Vec<&'static Kind>,
    /// Run the attackers together only, not one after the other.
    #[arg(long)]
    pub(crate) together: bool,
    /// With --ci: only in groups, never all of them together.
    #[arg(long, requires = "ci", conflicts_with_all = ["together", "kind"])]
    groups: bool,
    /// List the attackers.
    #[arg(long)]
    pub(crate) list: bool,
    /// Skip the baselines; response times are then not judged.
    #[arg(long)]
    pub(crate) bare: bool,
    /// Most packets a second that an attacker sends of its own accord.
    #[arg(long, value_name = "PACKETS", default_value_t = 20_000)]
    pub(crate) rate: u64,
    /// The clearway command to attack [default: the one of this build].
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// Another argument for `clearway serve`; can be repeated.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) server_arg: Vec<String>,
    /// Most memory that the server may use, in MiB; passed on as `serve --memory` if the
    /// server has that option.
    #[arg(long, value_name = "MEBIBYTES", default_value_t = 256)]
    pub(crate) memory: u64,
    /// The server's limit of open descriptors (RLIMIT_NOFILE).
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub(crate) descriptors: u64,
    /// Print each summary as a JSON object on a line of its own.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the tables of docs/measurements/siege.md, and the lines for people to standard error.
    #[arg(long, conflicts_with = "json")]
    pub(crate) markdown: bool,
}

impl Args {
    /// Length of the whole siege.
    pub(crate) fn duration(&self) -> Duration {
        let usual = if self.ci { IN_CI } else { BY_HAND };
        Duration::from_secs(self.seconds.unwrap_or(usual))
    }

    /// The attackers to run.
    pub(crate) fn kinds(&self) -> Vec<&'static Kind> {
        if self.kind.is_empty() {
            KINDS.iter().collect()
        } else {
            self.kind.clone()
        }
    }

    /// How they are grouped.
    pub(crate) fn grouping(&self) -> Grouping {
        if self.groups {
            return Grouping::Groups;
        }
        match (self.together, self.kind.is_empty(), self.ci) {
            (true, _, _) => Grouping::Together,
            (false, false, _) => Grouping::Alone,
            (false, true, false) => Grouping::AloneThenTogether,
            (false, true, true) => Grouping::GroupsThenTogether,
        }
    }
}

fn kind(name: &str) -> Result<&'static Kind, String> {
    find(name).ok_or_else(|| "unknown attacker; --list shows all of them".to_owned())
}
