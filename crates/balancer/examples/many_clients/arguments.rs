//! The command line.

use std::time::Duration;

use clearway_balancer::Mode;

pub(crate) const USAGE: &str = "\
usage: many_clients [OPTION VALUE]...
  --clients COUNT        connections, each with an address of its own (10000)
  --seconds COUNT        length of the load (60)
  --interval SECONDS     time between two round trips of a connection (5)
  --ack-delay MS         longest delay of acknowledgements (6000: they travel with the next message)
  --handshakes COUNT     most at a time (256)
  --backends COUNT       servers, a process each (2)
  --shards COUNT         threads of the balancer (1)
  --mode MODE            batched, naive or decoupled (batched)
  --work MICROSECONDS    processor time to waste on each datagram (0)
  --least-loss PERCENT   succeed only if the balancer loses as much (0: only if it loses nothing)
  --sources NETWORK      addresses that the balancer sends from (127.3.0.0/17)
  --per-source COUNT     connections that a server takes from one address (10000)
  --trusted yes|no       whether servers exempt the balancer from limits per source (yes)";

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    pub(crate) clients: usize,
    pub(crate) seconds: u64,
    pub(crate) interval: Duration,
    pub(crate) ack_delay: Duration,
    pub(crate) handshakes: usize,
    pub(crate) backends: u8,
    pub(crate) shards: usize,
    pub(crate) mode: Mode,
    pub(crate) work: Duration,
    pub(crate) least_loss: f64,
    pub(crate) sources: String,
    pub(crate) per_source: usize,
    pub(crate) is_trusted: bool,
    /// The part that this process has, and the addresses of the backends: set for child processes.
    pub(crate) role: Role,
}

/// The part of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The clients; starts the others.
    Clients,
    /// A server, with its number from 1.
    Backend(u8),
    /// The balancer, with the servers' addresses.
    Balancer(String),
}

impl Arguments {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut this = Self {
            clients: 10_000,
            seconds: 60,
            interval: Duration::from_secs(5),
            ack_delay: Duration::from_secs(6),
            handshakes: 256,
            backends: 2,
            shards: 1,
            mode: Mode::Batched,
            work: Duration::ZERO,
            least_loss: 0.0,
            sources: "127.3.0.0/17".to_owned(),
            per_source: 10_000,
            is_trusted: true,
            role: Role::Clients,
        };
        let mut arguments = arguments;
        while let Some(name) = arguments.next() {
            let value = arguments.next().unwrap_or_default();
            let set = this.set(&name, &value);
            if set.is_none() {
                return Err(format!("invalid option {name} {value:?}\n{USAGE}"));
            }
        }
        Ok(this)
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "--clients" => self.clients = value.parse().ok()?,
            "--seconds" => self.seconds = value.parse().ok()?,
            "--interval" => self.interval = Duration::from_secs(value.parse().ok()?),
            "--ack-delay" => self.ack_delay = Duration::from_millis(value.parse().ok()?),
            "--handshakes" => self.handshakes = value.parse().ok()?,
            "--backends" => self.backends = value.parse().ok().filter(|count| *count > 0)?,
            "--shards" => self.shards = value.parse().ok()?,
            "--mode" => {
                self.mode = match value {
                    "batched" => Mode::Batched,
                    "naive" => Mode::Naive,
                    "decoupled" => Mode::Decoupled,
                    _ => return None,
                }
            }
            "--work" => self.work = Duration::from_micros(value.parse().ok()?),
            "--least-loss" => self.least_loss = value.parse().ok()?,
            "--sources" => value.clone_into(&mut self.sources),
            "--per-source" => self.per_source = value.parse().ok()?,
            "--trusted" => self.is_trusted = value == "yes",
            "--backend" => self.role = Role::Backend(value.parse().ok()?),
            "--balancer" => self.role = Role::Balancer(value.to_owned()),
            _ => return None,
        }
        Some(())
    }
}
