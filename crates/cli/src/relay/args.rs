//! The command line of `clearway relay`.

use core::net::SocketAddr;
use std::error::Error;

use clearway_lab::scenario::Case;
use clearway_links::{Clock, LinkConfig, PROFILES, Profile, Span, SpecError};

use super::Config;
use super::config::{DEFAULT_IDLE, DEFAULT_MAX_FLOWS};
use crate::address::{self, Remote};

/// What the relay does, for `--help`.
pub(crate) const ABOUT: &str = "\
Put a network with loss, delay and a bottleneck between two UDP programs.

Clients send to --listen; the relay forwards to --to from one socket per client address and \
carries the replies back. Each client has its own link in each direction, whose clock starts with \
its first datagram: loss windows, steps and rebinds count from there.

A link consists of, in this order: policer, queue and its management (--aqm), serialiser (--rate or \
--trace), propagation delay (--delay, one way, so the round trip grows by twice that), jitter, \
slots, reordering, freezes, ticks, then blackholes, loss, thinning, corruption and duplication at \
the receiver. Options apply to both directions; those that end in -up and -down apply to one \
direction, and --up and --down set any link setting for one direction.";

fn examples() -> String {
    let mut text = String::from(
        "Examples:
  # 100 Mbit/s, 10 ms round trip, 30 % loss towards the client for its first 2 seconds
  clearway relay --listen 127.0.0.1:4433 --to 127.0.0.1:4434 \\
      --rate 100M --delay 5ms --queue 250 --loss-down '30%@0s-2s'

  # the same as a named profile, with JSON output, for half a minute
  clearway relay --listen 127.0.0.1:4433 --to 127.0.0.1:4434 \\
      --profile death_spiral --duration 30s --json

  # DSL whose uplink fades, and a client that changes its port twice
  clearway relay --listen 127.0.0.1:4433 --to 127.0.0.1:4434 --profile dsl \\
      --up 'rate=5M,1M@10s,5M@20s jitter=2ms' --rebind 5s,10s

  # a bottleneck with FQ-CoDel down, and ACKs delivered in slots of 25 ms
  clearway relay --listen 127.0.0.1:4433 --to 127.0.0.1:4434 --rate 50M --delay 20ms \
      --down 'aqm=fq_codel queue=1000' --up slot=25ms

Profiles:
",
    );
    for profile in PROFILES {
        text.push_str(&format!("  {:<19} {}\n", profile.name, profile.about));
    }
    text
}

/// Options of `clearway relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = examples())]
pub(crate) struct Args {
    /// Address to listen on for clients, or :PORT for all addresses; port 0 picks a free port.
    #[arg(long, value_name = "ADDR:PORT", value_parser = address::to_listen_on)]
    listen: SocketAddr,
    /// Address of the server.
    #[arg(long, value_name = "HOST:PORT", value_parser = Remote::resolve)]
    to: Remote,
    /// Start from a named network profile (see below); other options override it.
    #[arg(long, value_name = "NAME", value_parser = Profile::named)]
    profile: Option<&'static Profile>,
    /// Start from the links of a lab scenario (`clearway lab list`), given by name, number or
    /// file, with `:VARIANT` for a point of its grid; other options override it.
    #[arg(value_name = "SCENARIO", conflicts_with = "profile", value_parser = crate::lab::network)]
    scenario: Option<Box<Case>>,
    /// Move each client to a new port, as the server sees it, at these times.
    #[arg(long, value_name = "TIME,…", value_delimiter = ',')]
    rebind: Vec<Span>,
    /// Seed of all random decisions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Forget a client address after this long without traffic.
    #[arg(long, value_name = "TIME", default_value_t = Span(DEFAULT_IDLE), value_parser = period)]
    idle: Span,
    /// Maximum number of client addresses at the same time.
    #[arg(long, value_name = "COUNT", default_value_t = DEFAULT_MAX_FLOWS as u64,
          value_parser = clap::value_parser!(u64).range(1..=65_536))]
    max_flows: u64,
    /// Stop after this long; otherwise on SIGINT or SIGTERM.
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub(super) duration: Option<Span>,
    /// Print counters to stderr this often.
    #[arg(long, value_name = "TIME", value_parser = period)]
    pub(super) every: Option<Span>,
    /// Print one JSON object to stdout at the end.
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    both: LinkOptions,
    #[command(flatten)]
    one_way: DirectionOptions,
}

/// Settings for both directions.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Both directions")]
struct LinkOptions {
    /// Bottleneck rate in bit/s: 100M, 64k; with steps 100M,10M@5s.
    #[arg(long, value_name = "RATE", value_parser = setting("rate"), allow_hyphen_values = true)]
    rate: Option<String>,
    /// Instead of a rate, delivery times from a file in mahimahi's format, or generated:
    /// random:mean=12M:swing=10:outage=500ms:length=120s:seed=1.
    #[arg(long, value_name = "FILE", value_parser = setting("trace"), conflicts_with = "rate")]
    trace: Option<String>,
    /// One-way propagation delay: 5ms; with steps 5ms,40ms@3s.
    #[arg(long, value_name = "TIME", value_parser = setting("delay"))]
    delay: Option<String>,
    /// Queue limit at the bottleneck: 250 (packets, the default is 1000), 64KB, unlimited.
    #[arg(long, value_name = "LIMIT", value_parser = setting("queue"))]
    queue: Option<String>,
    /// Active queue management: none, codel, fq_codel, pie or dualq, with options as in
    /// codel:target=20ms:noecn.
    #[arg(long, value_name = "NAME", value_parser = setting("aqm"))]
    aqm: Option<String>,
    /// Drop packets that exceed a token bucket of this rate and size: 10M:100KB.
    #[arg(long, value_name = "RATE:SIZE", value_parser = setting("police"))]
    police: Option<String>,
    /// Random loss: 1%, 30%@0s-2s, 30%@0s-2s,1%.
    #[arg(long, value_name = "LOSS", value_parser = setting("loss"))]
    loss: Option<String>,
    /// Maximum number of random losses in a row.
    #[arg(long, value_name = "COUNT", value_parser = setting("burst"))]
    burst: Option<String>,
    /// Loss in bursts (Gilbert-Elliott): the probabilities good-to-bad and bad-to-good before each
    /// packet, 1%:16.7%, or the mean times in both states, 10s:50ms, and optionally the loss in the bad
    /// and in the good state, 1%:16.7%:50%:0.1%.
    #[arg(long, value_name = "GOOD:BAD", value_parser = setting("gilbert"))]
    gilbert: Option<String>,
    /// Random extra delay up to this, in order: 2ms; out of order: 2ms:unordered.
    #[arg(long, value_name = "TIME", value_parser = setting("jitter"))]
    jitter: Option<String>,
    /// Deliver packets together in slots: 25ms, 10ms-25ms, at most 64 in each 25ms:64.
    #[arg(long, value_name = "TIME", value_parser = setting("slot"))]
    slot: Option<String>,
    /// Delay a share of packets, so that others overtake them: 5%:20ms.
    #[arg(long, value_name = "SHARE:TIME", value_parser = setting("reorder"))]
    reorder: Option<String>,
    /// Hold packets that would arrive in these windows until their end: 1s-1.26s.
    #[arg(long, value_name = "WINDOWS", value_parser = setting("freeze"))]
    freeze: Option<String>,
    /// Release packets only on multiples of this: 1ms.
    #[arg(long, value_name = "TIME", value_parser = setting("tick"))]
    tick: Option<String>,
    /// Keep one of this many small packets (up to 150 bytes; for 200 bytes 10:200B): 10.
    #[arg(long, value_name = "COUNT", value_parser = setting("thin"))]
    thin: Option<String>,
    /// Duplicate a share of packets: 0.1%.
    #[arg(long, value_name = "SHARE", value_parser = setting("duplicate"))]
    duplicate: Option<String>,
    /// Corrupt one byte in a share of packets: 0.1%.
    #[arg(long, value_name = "SHARE", value_parser = setting("corrupt"))]
    corrupt: Option<String>,
    /// Drop everything that would arrive in these windows: 2s-4s,6s-7s.
    #[arg(long, value_name = "WINDOWS", value_parser = setting("blackhole"))]
    blackhole: Option<String>,
    /// Mark ECN-capable packets above this queue length: 20p, 64KB, 242us.
    #[arg(long, value_name = "LIMIT", value_parser = setting("mark"))]
    mark: Option<String>,
}

/// Settings for one direction; up is from client to server.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "One direction (up: to the server, down: to the client)")]
struct DirectionOptions {
    /// Like --rate, for this direction only.
    #[arg(long, value_name = "RATE", value_parser = setting("rate"), allow_hyphen_values = true)]
    rate_up: Option<String>,
    /// Like --rate, for this direction only.
    #[arg(long, value_name = "RATE", value_parser = setting("rate"), allow_hyphen_values = true)]
    rate_down: Option<String>,
    /// Like --delay, for this direction only.
    #[arg(long, value_name = "TIME", value_parser = setting("delay"))]
    delay_up: Option<String>,
    /// Like --delay, for this direction only.
    #[arg(long, value_name = "TIME", value_parser = setting("delay"))]
    delay_down: Option<String>,
    /// Like --queue, for this direction only.
    #[arg(long, value_name = "LIMIT", value_parser = setting("queue"))]
    queue_up: Option<String>,
    /// Like --queue, for this direction only.
    #[arg(long, value_name = "LIMIT", value_parser = setting("queue"))]
    queue_down: Option<String>,
    /// Like --loss, for this direction only.
    #[arg(long, value_name = "LOSS", value_parser = setting("loss"))]
    loss_up: Option<String>,
    /// Like --loss, for this direction only.
    #[arg(long, value_name = "LOSS", value_parser = setting("loss"))]
    loss_down: Option<String>,
    /// Any settings, as key=value separated by spaces: 'rate=5M jitter=2ms drop=2-7'.
    #[arg(long, value_name = "SETTINGS", value_parser = settings)]
    up: Option<String>,
    /// Any settings, as key=value separated by spaces.
    #[arg(long, value_name = "SETTINGS", value_parser = settings)]
    down: Option<String>,
}

impl LinkOptions {
    fn settings(&self) -> [(&'static str, Option<&String>); 19] {
        [
            ("rate", self.rate.as_ref()),
            ("trace", self.trace.as_ref()),
            ("delay", self.delay.as_ref()),
            ("queue", self.queue.as_ref()),
            ("aqm", self.aqm.as_ref()),
            ("police", self.police.as_ref()),
            ("loss", self.loss.as_ref()),
            ("burst", self.burst.as_ref()),
            ("gilbert", self.gilbert.as_ref()),
            ("jitter", self.jitter.as_ref()),
            ("slot", self.slot.as_ref()),
            ("reorder", self.reorder.as_ref()),
            ("freeze", self.freeze.as_ref()),
            ("tick", self.tick.as_ref()),
            ("thin", self.thin.as_ref()),
            ("duplicate", self.duplicate.as_ref()),
            ("corrupt", self.corrupt.as_ref()),
            ("blackhole", self.blackhole.as_ref()),
            ("mark", self.mark.as_ref()),
        ]
    }
}

impl DirectionOptions {
    fn up(&self) -> [(&'static str, Option<&String>); 4] {
        [
            ("rate", self.rate_up.as_ref()),
            ("delay", self.delay_up.as_ref()),
            ("queue", self.queue_up.as_ref()),
            ("loss", self.loss_up.as_ref()),
        ]
    }

    fn down(&self) -> [(&'static str, Option<&String>); 4] {
        [
            ("rate", self.rate_down.as_ref()),
            ("delay", self.delay_down.as_ref()),
            ("queue", self.queue_down.as_ref()),
            ("loss", self.loss_down.as_ref()),
        ]
    }
}

impl Args {
    /// The configuration of the relay. More specific options override others: profile, then both
    /// directions, then one direction, then `--up` and `--down`.
    pub(super) fn config(&self) -> Result<Config, Box<dyn Error>> {
        let to = self.to.reachable_from(self.listen);
        let to = to.ok_or("--to: the host has no address")?;
        let mut config = Config::new(self.listen, to);
        if self.listen == to {
            return Err("--listen and --to must differ: the relay would forward to itself".into());
        }
        if let Some(profile) = self.profile {
            config.up.apply(profile.up_settings())?;
            config.down.apply(profile.down_settings())?;
        }
        if let Some(case) = &self.scenario {
            config.take_scenario(case);
        }
        for link in [&mut config.up, &mut config.down] {
            set_all(link, &self.both.settings())?;
        }
        set_all(&mut config.up, &self.one_way.up())?;
        set_all(&mut config.down, &self.one_way.down())?;
        config.up.apply(self.one_way.up.as_deref().unwrap_or(""))?;
        config
            .down
            .apply(self.one_way.down.as_deref().unwrap_or(""))?;
        for (name, link) in [("--up", &config.up), ("--down", &config.down)] {
            if link.clock == Clock::Explicit {
                return Err(format!(
                    "{name} sets clock=explicit, which the relay never starts; use \
                     clock=first-packet or clock=absolute (the relay's start)"
                )
                .into());
            }
        }
        config.rebind = self.rebind.iter().map(|span| span.0).collect();
        if !config.rebind.is_sorted() {
            return Err("--rebind times must be in increasing order such as 5s,10s".into());
        }
        config.seed = self.seed;
        config.idle = self.idle.0;
        config.max_flows = usize::try_from(self.max_flows)?;
        Ok(config)
    }
}

fn set_all(
    link: &mut LinkConfig,
    settings: &[(&'static str, Option<&String>)],
) -> Result<(), SpecError> {
    settings
        .iter()
        .filter_map(|(key, value)| value.map(|value| (key, value)))
        .try_for_each(|(key, value)| link.set(key, value))
}

/// Checks a value for the setting `key` at once, so that the error names the option.
fn setting(key: &'static str) -> impl Fn(&str) -> Result<String, SpecError> + Clone {
    move |value| {
        LinkConfig::default().set(key, value)?;
        Ok(value.to_owned())
    }
}

fn settings(text: &str) -> Result<String, SpecError> {
    LinkConfig::default().apply(text)?;
    Ok(text.to_owned())
}

fn period(text: &str) -> Result<Span, String> {
    match text.parse::<Span>() {
        Ok(Span::ZERO) => Err("must be greater than zero, such as 1s".to_owned()),
        Ok(span) => Ok(span),
        Err(error) => Err(error.to_string()),
    }
}
