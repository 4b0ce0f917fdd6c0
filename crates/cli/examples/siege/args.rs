//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use crate::attack::{KINDS, Kind, find};
use crate::plan::Company;

/// Seconds of a siege by hand, and of one in CI.
const BY_HAND: u64 = 600;
const IN_CI: u64 = 60;

/// Attacks the built `clearway serve` with everything at hand, and looks whether
/// clients that behave well notice.
#[derive(Debug, Parser)]
#[command(name = "siege")]
pub(crate) struct Args {
    /// How long the whole siege takes, seconds; 600 by default, 60 with --ci.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// A short siege: kinds attack in groups instead of one by one.
    #[arg(long)]
    pub(crate) ci: bool,
    /// Only this kind of attack; may be given several times, for one after the other.
    #[arg(long, value_name = "NAME", value_parser = kind)]
    kind: Vec<&'static Kind>,
    /// Those that are to attack do so together only.
    #[arg(long)]
    pub(crate) together: bool,
    /// The kinds of attack there are.
    #[arg(long)]
    pub(crate) list: bool,
    /// No baseline: no times are judged.
    #[arg(long)]
    pub(crate) bare: bool,
    /// Packets a second that an attacker sends of its own accord at most.
    #[arg(long, value_name = "PACKETS", default_value_t = 20_000)]
    pub(crate) rate: u64,
    /// The command whose `serve` is attacked; built and taken from beside the siege by
    /// default.
    #[arg(long, value_name = "FILE")]
    pub(crate) server: Option<PathBuf>,
    /// A further argument for `clearway serve`; may be given several times.
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub(crate) server_arg: Vec<String>,
    /// Most memory that the server may use, MiB; it is told so by --memory if it has
    /// that option.
    #[arg(long, value_name = "MEBIBYTES", default_value_t = 256)]
    pub(crate) memory: u64,
    /// Descriptors that the server may have open (RLIMIT_NOFILE).
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    pub(crate) descriptors: u64,
    /// Print one JSON object a line.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Args {
    /// How long all of it takes.
    pub(crate) fn duration(&self) -> Duration {
        let usual = if self.ci { IN_CI } else { BY_HAND };
        Duration::from_secs(self.seconds.unwrap_or(usual))
    }

    /// The kinds that attack.
    pub(crate) fn kinds(&self) -> Vec<&'static Kind> {
        if self.kind.is_empty() {
            KINDS.iter().collect()
        } else {
            self.kind.clone()
        }
    }

    /// Who attacks with whom.
    pub(crate) fn company(&self) -> Company {
        match (self.together, self.kind.is_empty(), self.ci) {
            (true, _, _) => Company::Together,
            (false, false, _) => Company::Alone,
            (false, true, false) => Company::AloneThenTogether,
            (false, true, true) => Company::GroupsThenTogether,
        }
    }
}

fn kind(name: &str) -> Result<&'static Kind, String> {
    find(name).ok_or_else(|| "unknown kind of attack; --list shows those there are".to_owned())
}
