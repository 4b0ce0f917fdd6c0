//! The network of a scenario.

use core::time::Duration;

use clearway_links::{LinkConfig, QueueLimit, Rate, Span};

use super::error::{ScenarioError, Source};
use super::tree::{Scalar, Table};
use super::variables::{Assignment, substitute};
use crate::world::{ClockStart, Network};

/// Size of the lab's largest datagram with headers, in bytes: a queue smaller than this could never
/// hold it.
const LARGEST_PACKET: u64 = 1_452 + 28;

/// The network as written in the file.
#[derive(Clone, Debug)]
pub(super) struct NetworkText {
    rtt: Option<Scalar>,
    both: Option<Scalar>,
    up: Option<Scalar>,
    down: Option<Scalar>,
    clock: Option<Scalar>,
}

impl NetworkText {
    pub(super) fn read(mut table: Table, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let this = Self {
            rtt: table.take_leaf(source, "rtt")?,
            both: table.take_leaf(source, "both")?,
            up: table.take_leaf(source, "up")?,
            down: table.take_leaf(source, "down")?,
            clock: table.take_leaf(source, "clock")?,
        };
        table.finish(source, "[network]")?;
        Ok(this)
    }

    pub(super) fn compile(
        &self,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<Network, ScenarioError> {
        let mut links = [LinkConfig::default(), LinkConfig::default()];
        if let Some(rtt) = &self.rtt {
            let rtt = time(rtt, variables, source)?;
            for link in &mut links {
                link.delay = Span(rtt / 2).into();
            }
        }
        let texts = [
            [self.both.as_ref(), self.up.as_ref()],
            [self.both.as_ref(), self.down.as_ref()],
        ];
        let mut queues = Vec::new();
        for (index, (link, texts)) in links.iter_mut().zip(texts).enumerate() {
            for leaf in texts.into_iter().flatten() {
                let settings = substitute(leaf, variables, source)?;
                if let Some(queue) = apply(link, &settings, leaf, source)? {
                    queues.push((index, queue, leaf));
                }
            }
            bursts_are_of_losses(link, texts.into_iter().flatten().last(), source)?;
        }
        let rtt = links[0].delay.at(None).0 + links[1].delay.at(None).0;
        for (index, queue, leaf) in queues {
            set_queue(&mut links[index], &queue, rtt, leaf, source)?;
        }
        let [up, down] = links;
        Ok(Network {
            up,
            down,
            clock: self.clock(variables, source)?,
        })
    }

    fn clock(
        &self,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<ClockStart, ScenarioError> {
        let Some(leaf) = &self.clock else {
            return Ok(ClockStart::default());
        };
        match substitute(leaf, variables, source)?.as_str() {
            "first-datagram" => Ok(ClockStart::FirstDatagram),
            "first-request" => Ok(ClockStart::FirstRequest),
            other => Err(source.error(
                &leaf.span,
                format!("unknown clock start {other:?}"),
                "expected first-datagram or first-request",
            )),
        }
    }
}

/// Applies settings; returns that of the queue, which is applied once rate and delay are known.
pub(super) fn apply(
    link: &mut LinkConfig,
    settings: &str,
    leaf: &Scalar,
    source: &Source<'_>,
) -> Result<Option<String>, ScenarioError> {
    let mut queue = None;
    let mut keys = Vec::new();
    for setting in settings.split_whitespace() {
        let key = setting.split_once('=').map_or(setting, |(key, _)| key);
        if keys.contains(&key) {
            let problem = format!("{key:?} is set more than once");
            return Err(source.error(&leaf.span, problem, "set it once"));
        }
        keys.push(key);
        match setting.split_once('=') {
            Some(("queue", value)) => queue = Some(value.to_owned()),
            Some((key, value)) => link
                .set(key, value)
                .map_err(|error| source.error(&leaf.span, error.to_string(), ""))?,
            None => link
                .apply(setting)
                .map_err(|error| source.error(&leaf.span, error.to_string(), ""))?,
        }
    }
    Ok(queue)
}

/// Rejects a limit on consecutive losses if there are no losses.
pub(super) fn bursts_are_of_losses(
    link: &LinkConfig,
    leaf: Option<&Scalar>,
    source: &Source<'_>,
) -> Result<(), ScenarioError> {
    let (plain, Some(leaf)) = (LinkConfig::default(), leaf) else {
        return Ok(());
    };
    if link.burst.is_none() || link.gilbert.is_some() || link.loss != plain.loss {
        return Ok(());
    }
    let problem = "burst has no effect without random loss";
    let help = "add loss or gilbert, such as loss=1%";
    Err(source.error(&leaf.span, problem, help))
}

/// Sets a queue in packets, bytes, multiples of the bandwidth-delay product (`1.5bdp`), or as the
/// time it takes to drain (`80ms`).
pub(super) fn set_queue(
    link: &mut LinkConfig,
    text: &str,
    rtt: Duration,
    leaf: &Scalar,
    source: &Source<'_>,
) -> Result<(), ScenarioError> {
    let wrong = |problem: String| source.error(&leaf.span, problem, QUEUE_EXPECTED);
    if text.contains(',') {
        let set = link.set("queue", text);
        return set.map_err(|error| {
            wrong(format!(
                "invalid {} {:?}: {}",
                error.what, error.text, error.problem
            ))
        });
    }
    let time = match text.strip_suffix("bdp") {
        Some(factor) => {
            let factor: f64 = factor
                .parse()
                .ok()
                .filter(|factor| *factor > 0.0)
                .ok_or_else(|| {
                    wrong(format!("invalid queue {text:?}: not a multiple of the BDP"))
                })?;
            let time = Duration::try_from_secs_f64(rtt.as_secs_f64() * factor);
            Some(time.map_err(|_| wrong(format!("invalid queue {text:?}: value is too large")))?)
        }
        None if text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u32>().is_err() => {
            let most = u32::MAX;
            return Err(wrong(format!(
                "invalid queue {text:?}: must be at most {most} packets"
            )));
        }
        None if text.parse::<QueueLimit>().is_err() => text.parse::<Span>().ok().map(|span| span.0),
        None => None,
    };
    let limit = match time {
        Some(time) => QueueLimit::Bytes(
            drained(link, time)
                .ok_or_else(|| wrong(format!("invalid queue {text:?}: requires a limited rate")))?,
        ),
        None => text.parse().map_err(|error: clearway_links::SpecError| {
            wrong(format!("invalid queue {text:?}: {}", error.problem))
        })?,
    };
    match limit {
        QueueLimit::Bytes(bytes) if bytes < LARGEST_PACKET => {
            return Err(wrong(format!(
                "invalid queue {text:?}: {bytes} bytes cannot hold a packet of {LARGEST_PACKET}"
            )));
        }
        QueueLimit::Packets(0) => {
            return Err(wrong(format!(
                "invalid queue {text:?}: must be greater than zero"
            )));
        }
        QueueLimit::Bytes(_) | QueueLimit::Packets(_) | QueueLimit::Unlimited => {}
    }
    link.queue = limit.into();
    Ok(())
}

const QUEUE_EXPECTED: &str = "expected packets such as 250, bytes such as 64KB (at least one packet), a \
                           multiple of the BDP such as 1.5bdp, or a time such as 80ms";

fn drained(link: &LinkConfig, time: Duration) -> Option<u64> {
    match link.rate.at(None) {
        Rate::Unlimited => None,
        rate @ (Rate::Stopped | Rate::Bits(_)) => {
            Some((rate.bits()? as f64 * time.as_secs_f64() / 8.0) as u64)
        }
    }
}

/// A time, which may contain variables.
pub(super) fn time(
    leaf: &Scalar,
    variables: &Assignment,
    source: &Source<'_>,
) -> Result<Duration, ScenarioError> {
    let text = substitute(leaf, variables, source)?;
    super::units::time(&text).map_err(|problem| source.error(&leaf.span, problem, ""))
}

/// A count from one to `most`, which may contain variables.
pub(super) fn count(
    leaf: &Scalar,
    most: u32,
    variables: &Assignment,
    source: &Source<'_>,
) -> Result<u32, ScenarioError> {
    let text = substitute(leaf, variables, source)?;
    let found = text.parse().ok();
    found
        .filter(|count| (1..=most).contains(count))
        .ok_or_else(|| {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            let nothing = text.bytes().all(|byte| byte == b'0');
            let problem = match digits && !nothing {
                true => format!("{text:?} is too large"),
                false => format!("{text:?} is not a count"),
            };
            let help = format!("expected a whole number from 1 to {most}");
            source.error(&leaf.span, problem, help)
        })
}
