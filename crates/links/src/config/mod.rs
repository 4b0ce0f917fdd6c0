//! What one direction of a link does to packets.

mod jitter;
mod overhead;

use core::fmt;
use core::num::NonZeroU32;
use core::str::FromStr;
use std::sync::Arc;

pub use jitter::{Jitter, Reorder};
pub use overhead::Overhead;

use crate::spec::{SpecError, positive};
use crate::{
    Aqm, Clock, DropList, Freezes, Gilbert, LossWindows, MarkAt, Policer, Probability, QueueLimit,
    Rate, Schedule, Slots, Span, Thin, Trace, Windows,
};

/// One direction of a link. The default is perfect: no limit, no delay.
///
/// Written as settings with spaces between them, as
/// `rate=100M delay=5ms queue=250 loss=30%@0s-2s`; see [`LinkConfig::set`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkConfig {
    /// When the clock of windows and steps starts.
    pub clock: Clock,
    /// A token bucket before the queue, which drops what exceeds it.
    pub police: Option<Policer>,
    /// The limit of the queue before the serialiser. Packets already queued stay if it shrinks.
    pub queue: Schedule<QueueLimit>,
    /// How the queue is managed.
    pub aqm: Aqm,
    /// When the queue marks packets congestion-experienced, whatever its management.
    pub mark: Option<MarkAt>,
    /// The serialiser's rate. A packet in service keeps the rate it started
    /// with.
    pub rate: Schedule<Rate>,
    /// When the serialiser can deliver, on the link's clock (from time zero while that has not
    /// started). `rate` is not used then.
    pub trace: Option<Arc<Trace>>,
    /// Header bytes that the serialiser counts per packet.
    pub overhead: Overhead,
    /// Propagation delay.
    pub delay: Schedule<Span>,
    /// A random extra delay for each packet.
    pub jitter: Jitter,
    /// Packets arrive together in slots.
    pub slot: Option<Slots>,
    /// A fixed extra delay for some packets, which are then overtaken and
    /// miss their slot.
    pub reorder: Reorder,
    /// Packets that would arrive in these windows arrive at their end.
    pub freeze: Freezes,
    /// Packets arrive only at whole multiples of this; zero means at any time.
    pub tick: Span,
    /// Random loss.
    pub loss: LossWindows,
    /// Maximum number of consecutive random losses.
    pub burst: Option<NonZeroU32>,
    /// Random loss in bursts.
    pub gilbert: Option<Gilbert>,
    /// Packets to drop, by number.
    pub drop: DropList,
    /// Nothing arrives in these windows.
    pub blackhole: Windows,
    /// Drops all but one in n small packets.
    pub thin: Option<Thin>,
    /// The share of packets that arrive twice.
    pub duplicate: Probability,
    /// The share of packets in which one byte is changed.
    pub corrupt: Probability,
}

impl LinkConfig {
    /// The settings that [`LinkConfig::set`] knows.
    pub const KEYS: &'static [&'static str] = &[
        "rate",
        "trace",
        "delay",
        "queue",
        "aqm",
        "mark",
        "police",
        "loss",
        "burst",
        "gilbert",
        "jitter",
        "slot",
        "reorder",
        "freeze",
        "tick",
        "thin",
        "duplicate",
        "corrupt",
        "blackhole",
        "drop",
        "overhead",
        "clock",
    ];

    /// Sets one setting from text. A rate replaces a trace and a trace replaces a rate: the later
    /// one counts.
    ///
    /// # Errors
    /// If there is no such setting, if the value is invalid or has no useful meaning (a
    /// queue limit or tick of zero), or if a trace cannot be read.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), SpecError> {
        match key {
            "rate" => {
                self.rate = value.parse()?;
                self.trace = None;
            }
            "trace" => {
                self.trace = Some(Arc::new(value.parse()?));
                self.rate = Schedule::default();
            }
            "delay" => self.delay = value.parse()?,
            "queue" => self.queue = value.parse()?,
            "aqm" => self.aqm = value.parse()?,
            "police" => self.police = Some(value.parse()?),
            "loss" => self.loss = value.parse()?,
            "burst" => self.burst = Some(parse_burst(value)?),
            "gilbert" => self.gilbert = Some(value.parse()?),
            "jitter" => self.jitter = value.parse()?,
            "reorder" => self.reorder = value.parse()?,
            "slot" => self.slot = Some(value.parse()?),
            "freeze" => self.freeze = value.parse()?,
            "tick" => self.tick = Span(positive(value, "tick", TICK_EXPECTED)?),
            "thin" => self.thin = Some(value.parse()?),
            "duplicate" => self.duplicate = value.parse()?,
            "corrupt" => self.corrupt = value.parse()?,
            "blackhole" => self.blackhole = value.parse()?,
            "drop" => self.drop = value.parse()?,
            "mark" => self.mark = Some(value.parse()?),
            "overhead" => self.overhead = value.parse()?,
            "clock" => self.clock = value.parse()?,
            _ => {
                return Err(SpecError::new(
                    "setting",
                    key,
                    "unknown name",
                    KEYS_EXPECTED,
                ));
            }
        }
        Ok(())
    }

    /// Applies settings written `key=value` with spaces between them.
    ///
    /// # Errors
    /// Names the first setting that is invalid.
    pub fn apply(&mut self, settings: &str) -> Result<(), SpecError> {
        settings.split_whitespace().try_for_each(|setting| {
            let (key, value) = setting.split_once('=').ok_or_else(|| {
                SpecError::new("setting", setting, "missing equals sign", KEYS_EXPECTED)
            })?;
            self.set(key, value)
        })
    }

    /// Whether no packet can overtake another.
    pub(crate) fn keeps_order(&self) -> bool {
        self.jitter.keeps_order && self.reorder.fraction == Probability::NEVER
    }
}

const KEYS_EXPECTED: &str = "key=value with one of rate, trace, delay, queue, aqm, mark, police, \
                          loss, burst, gilbert, jitter, slot, reorder, freeze, tick, thin, \
                          duplicate, corrupt, blackhole, drop, overhead, clock";
const TICK_EXPECTED: &str = "the time between ticks such as 1ms";

fn parse_burst(text: &str) -> Result<NonZeroU32, SpecError> {
    text.trim().parse().map_err(|_| {
        SpecError::new(
            "burst",
            text,
            "must be a number greater than zero",
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
        settings.option("police", self.police.as_ref())?;
        settings.value("queue", &self.queue, &plain.queue)?;
        settings.value("aqm", &self.aqm, &plain.aqm)?;
        settings.option("mark", self.mark.as_ref())?;
        settings.value("rate", &self.rate, &plain.rate)?;
        settings.option("trace", self.trace.as_ref())?;
        settings.value("overhead", &self.overhead, &plain.overhead)?;
        settings.value("delay", &self.delay, &plain.delay)?;
        settings.value("jitter", &self.jitter, &plain.jitter)?;
        settings.option("slot", self.slot.as_ref())?;
        settings.value("reorder", &self.reorder, &plain.reorder)?;
        settings.value("freeze", &self.freeze, &plain.freeze)?;
        settings.value("tick", &self.tick, &plain.tick)?;
        settings.value("loss", &self.loss, &plain.loss)?;
        settings.option("burst", self.burst.as_ref())?;
        settings.option("gilbert", self.gilbert.as_ref())?;
        settings.value("drop", &self.drop, &plain.drop)?;
        settings.value("blackhole", &self.blackhole, &plain.blackhole)?;
        settings.option("thin", self.thin.as_ref())?;
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

    const EVERYTHING: &str = "clock=first-packet police=10M:100KB queue=250p,50p@10s \
        aqm=fq_codel:target=10ms:noecn:flows=32 mark=242us rate=100M,10M@10s \
        overhead=48 delay=5ms,20ms@3s jitter=200us:unordered slot=10ms-25ms:64 reorder=5%:20ms \
        freeze=1s-1.26s tick=1ms loss=30%@0s-2s,1% burst=3 gilbert=1%:16.7% drop=2-7,9 \
        blackhole=2s-4s thin=10 duplicate=0.1% corrupt=0.01%";
    const TRACE: &str = "trace=random:mean=12M:swing=10:outage=500ms:length=2s:seed=24";

    #[test]
    fn every_setting_round_trips() {
        for text in [EVERYTHING, TRACE, ""] {
            let config: LinkConfig = text.parse().unwrap();
            assert_eq!(config.to_string(), text);
        }
        for key in LinkConfig::KEYS {
            let somewhere = format!(" {EVERYTHING} {TRACE}");
            assert!(somewhere.contains(&format!(" {key}=")), "{key}");
            assert!(KEYS_EXPECTED.contains(&format!(" {key}")), "{key}");
        }
        assert_eq!("".parse(), Ok(LinkConfig::default()));
    }

    #[test]
    fn later_of_rate_and_trace_wins() {
        let mut config: LinkConfig = TRACE.parse().unwrap();
        config.apply("rate=1M").unwrap();
        assert_eq!(config.to_string(), "rate=1M");
        config.apply(TRACE).unwrap();
        assert_eq!(config.to_string(), TRACE);
    }

    #[test]
    fn error_names_the_setting() {
        let message = |text: &str| text.parse::<LinkConfig>().unwrap_err().to_string();
        assert!(
            message("rat=1M").starts_with("invalid setting \"rat\": unknown name; expected key=")
        );
        assert!(message("rate").contains("missing equals sign"));
        assert!(message("burst=0").contains("must be a number greater than zero"));
        assert!(message("jitter=1ms:wild").contains("unknown order \"wild\""));
        assert!(message("reorder=5%").contains("missing colon"));
        assert!(message("overhead=x").contains("not a number"));
        assert!(message("rate=-1M").contains("must not be negative"));
        assert!(message("queue=0").contains("must be greater than zero"));
        assert!(message("queue=250,0@1s").contains("must be greater than zero"));
        assert!(message("queue=250,50").contains("step without a time"));
        assert!(
            message("tick=0ms")
                .contains("must be greater than zero; expected the time between ticks")
        );
        assert!(message("slot=0ms").contains("must be greater than zero"));
        assert!(message("thin=0").contains("must be a number greater than zero"));
        assert!(message("freeze=2s-").contains("has no end"));
        assert!(message("trace=/no/such/file").contains("cannot read"));
        assert!(message("trace=/").contains("not a regular file"));
        assert!(message("aqm=red").contains("\"red\": unknown name; expected none; codel"));
        assert!(message("aqm=codel:target=0ms").contains("must be greater than zero"));
    }
}
