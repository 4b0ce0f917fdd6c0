//! What one direction of a link does to packets.

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use core::time::Duration;

use crate::spec::SpecError;
use crate::{
    Clock, DropList, Gilbert, LossWindows, MarkAt, Probability, QueueLimit, Rate, Schedule, Span,
    Windows,
};

/// Header bytes that the serialiser counts with each UDP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Overhead(pub u32);

impl Overhead {
    /// IPv4 (20) and UDP (8).
    pub const V4: Self = Self(28);
    /// IPv6 (40) and UDP (8).
    pub const V6: Self = Self(48);
}

impl Default for Overhead {
    fn default() -> Self {
        Self::V4
    }
}

impl FromStr for Overhead {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        text.trim().parse().map(Self).map_err(|_| {
            SpecError::new(
                "overhead",
                text,
                "it is not a number",
                "header bytes per datagram such as 28 (IPv4) or 48 (IPv6)",
            )
        })
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An extra delay drawn uniformly from zero to `max` for each packet.
///
/// Written `200us`, or `200us:unordered` if packets may overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Jitter {
    /// The largest extra delay.
    pub max: Duration,
    /// A packet waits for the one sent before it.
    pub keeps_order: bool,
}

impl Default for Jitter {
    fn default() -> Self {
        Self {
            max: Duration::ZERO,
            keeps_order: true,
        }
    }
}

impl FromStr for Jitter {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (max, order) = text.split_once(':').unwrap_or((text, "ordered"));
        let keeps_order = match order.trim() {
            "ordered" => true,
            "unordered" => false,
            _ => {
                return Err(SpecError::new(
                    "jitter",
                    text,
                    format!("{order:?} is unknown"),
                    "the largest extra delay such as 200us, or 200us:unordered",
                ));
            }
        };
        Ok(Self {
            max: max.parse::<Span>()?.0,
            keeps_order,
        })
    }
}

impl fmt::Display for Jitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.max).fmt(f)?;
        f.write_str(if self.keeps_order { "" } else { ":unordered" })
    }
}

/// A fraction of packets takes longer and is overtaken. Written `5%:20ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Reorder {
    /// How many of the packets.
    pub fraction: Probability,
    /// By how much they are late.
    pub extra: Duration,
}

impl FromStr for Reorder {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (fraction, extra) = text.split_once(':').ok_or_else(|| {
            SpecError::new(
                "reordering",
                text,
                "it has no colon",
                "the fraction and its extra delay such as 5%:20ms",
            )
        })?;
        Ok(Self {
            fraction: fraction.parse()?,
            extra: extra.parse::<Span>()?.0,
        })
    }
}

impl fmt::Display for Reorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.fraction, Span(self.extra))
    }
}

/// One direction of a link. The default is perfect: no limit, no delay.
///
/// Written as settings with spaces between them, as
/// `rate=100M delay=5ms queue=250 loss=30%@0s-2s`; see [`LinkConfig::set`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkConfig {
    /// When the clock of windows and steps starts.
    pub clock: Clock,
    /// How much may wait before the serialiser.
    pub queue: QueueLimit,
    /// When the queue marks congestion-experienced.
    pub mark: Option<MarkAt>,
    /// The serialiser's rate. A packet in service keeps the rate it started
    /// with.
    pub rate: Schedule<Rate>,
    /// Header bytes that the serialiser counts per packet.
    pub overhead: Overhead,
    /// Propagation delay.
    pub delay: Schedule<Span>,
    /// A random extra delay for each packet.
    pub jitter: Jitter,
    /// A fixed extra delay for some packets, which are then overtaken.
    pub reorder: Reorder,
    /// Packets arrive only at whole multiples of this; zero: at any time.
    pub tick: Span,
    /// Random loss.
    pub loss: LossWindows,
    /// At most so many packets in a row are lost at random.
    pub burst: Option<NonZeroU32>,
    /// Random loss in bursts.
    pub gilbert: Option<Gilbert>,
    /// Packets to drop by number.
    pub drop: DropList,
    /// Nothing arrives in these windows.
    pub blackhole: Windows,
    /// How many packets arrive twice.
    pub duplicate: Probability,
    /// In how many packets a byte is changed.
    pub corrupt: Probability,
}

impl LinkConfig {
    /// The settings that [`LinkConfig::set`] knows.
    pub const KEYS: &'static [&'static str] = &[
        "rate",
        "delay",
        "queue",
        "loss",
        "burst",
        "gilbert",
        "jitter",
        "reorder",
        "tick",
        "duplicate",
        "corrupt",
        "blackhole",
        "drop",
        "mark",
        "overhead",
        "clock",
    ];

    /// Sets one thing from text.
    ///
    /// # Errors
    /// If there is no such setting or the value cannot be understood.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        match key {
            "rate" => self.rate = value.parse()?,
            "delay" => self.delay = value.parse()?,
            "queue" => self.queue = value.parse()?,
            "loss" => self.loss = value.parse()?,
            "burst" => self.burst = Some(parse_burst(value)?),
            "gilbert" => self.gilbert = Some(value.parse()?),
            "jitter" => self.jitter = value.parse()?,
            "reorder" => self.reorder = value.parse()?,
            "tick" => self.tick = value.parse()?,
            "duplicate" => self.duplicate = value.parse()?,
            "corrupt" => self.corrupt = value.parse()?,
            "blackhole" => self.blackhole = value.parse()?,
            "drop" => self.drop = value.parse()?,
            "mark" => self.mark = Some(value.parse()?),
            "overhead" => self.overhead = value.parse()?,
            "clock" => self.clock = value.parse()?,
            _ => return Err(SpecError::new("setting", key, "it is unknown", KEYS_RIGHT)),
        }
        Ok(())
    }

    /// Applies settings written `key=value` with spaces between them.
    ///
    /// # Errors
    /// Names the first setting that cannot be understood.
    pub fn apply(&mut self, settings: &str) -> Result<(), SpecError> {
        settings.split_whitespace().try_for_each(|setting| {
            let (key, value) = setting.split_once('=').ok_or_else(|| {
                SpecError::new("setting", setting, "it has no equals sign", KEYS_RIGHT)
            })?;
            self.set(key, value)
        })
    }

    /// Can no packet overtake another?
    pub(crate) fn keeps_order(&self) -> bool {
        self.jitter.keeps_order && self.reorder.fraction == Probability::NEVER
    }
}

const KEYS_RIGHT: &str = "key=value with one of rate, delay, queue, loss, burst, gilbert, \
                          jitter, reorder, tick, duplicate, corrupt, blackhole, drop, mark, \
                          overhead, clock";

fn parse_burst(text: &str) -> Result<NonZeroU32, SpecError> {
    text.trim().parse().map_err(|_| {
        SpecError::new(
            "burst",
            text,
            "it is not a number above zero",
            "the most packets lost in a row, such as 3",
        )
    })
}

impl FromStr for LinkConfig {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut config = Self::default();
        config.apply(text)?;
        Ok(config)
    }
}

impl fmt::Display for LinkConfig {
    /// The settings that differ from the default, in the pipeline's order.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::default();
        let mut settings = Settings { f, first: true };
        settings.value("clock", &self.clock, &plain.clock)?;
        settings.value("queue", &self.queue, &plain.queue)?;
        settings.option("mark", self.mark.as_ref())?;
        settings.value("rate", &self.rate, &plain.rate)?;
        settings.value("overhead", &self.overhead, &plain.overhead)?;
        settings.value("delay", &self.delay, &plain.delay)?;
        settings.value("jitter", &self.jitter, &plain.jitter)?;
        settings.value("reorder", &self.reorder, &plain.reorder)?;
        settings.value("tick", &self.tick, &plain.tick)?;
        settings.value("loss", &self.loss, &plain.loss)?;
        settings.option("burst", self.burst.as_ref())?;
        settings.option("gilbert", self.gilbert.as_ref())?;
        settings.value("drop", &self.drop, &plain.drop)?;
        settings.value("blackhole", &self.blackhole, &plain.blackhole)?;
        settings.value("duplicate", &self.duplicate, &plain.duplicate)?;
        settings.value("corrupt", &self.corrupt, &plain.corrupt)
    }
}

/// Writes settings with spaces between them.
struct Settings<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    first: bool,
}

impl Settings<'_, '_> {
    fn value<T: fmt::Display + PartialEq>(
        &mut self,
        key: &str,
        value: &T,
        plain: &T,
    ) -> fmt::Result {
        self.option(key, (value != plain).then_some(value))
    }

    fn option<T: fmt::Display>(&mut self, key: &str, value: Option<&T>) -> fmt::Result {
        let Some(value) = value else {
            return Ok(());
        };
        let space = if self.first { "" } else { " " };
        self.first = false;
        write!(self.f, "{space}{key}={value}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYTHING: &str = "clock=first-packet queue=250p mark=242us rate=100M,10M@10s \
        overhead=48 delay=5ms,20ms@3s jitter=200us:unordered reorder=5%:20ms tick=1ms \
        loss=30%@0s-2s,1% burst=3 gilbert=1%:16.7% drop=2-7,9 blackhole=2s-4s duplicate=0.1% \
        corrupt=0.01%";

    #[test]
    fn every_setting_round_trips() {
        let config: LinkConfig = EVERYTHING.parse().unwrap();
        assert_eq!(config.to_string(), EVERYTHING);
        for key in LinkConfig::KEYS {
            assert!(EVERYTHING.contains(&format!("{key}=")), "{key}");
            assert!(KEYS_RIGHT.contains(key), "{key}");
        }
        assert_eq!(LinkConfig::default().to_string(), "");
        assert_eq!("".parse(), Ok(LinkConfig::default()));
    }

    #[test]
    fn errors_name_the_setting() {
        let message = |text: &str| text.parse::<LinkConfig>().unwrap_err().to_string();
        assert!(message("rat=1M").starts_with("bad setting \"rat\": it is unknown; write key="));
        assert!(message("rate").contains("no equals sign"));
        assert!(message("burst=0").contains("not a number above zero"));
        assert!(message("jitter=1ms:wild").contains("\"wild\" is unknown"));
        assert!(message("reorder=5%").contains("no colon"));
        assert!(message("overhead=x").contains("not a number"));
    }
}
