//! Active queue management: which of the waiting packets are dropped or
//! marked before the queue is full, and which goes next.

mod chance;
mod codel;
mod dualq;
mod fq_codel;
mod pie;
#[cfg(test)]
mod tests;
mod ticker;

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

pub use codel::CodelConfig;
pub(crate) use codel::Control;
pub(crate) use dualq::DualQ;
pub use dualq::DualQConfig;
pub(crate) use fq_codel::FqCodel;
pub use fq_codel::FqCodelConfig;
pub(crate) use pie::Pie;
pub use pie::PieConfig;

use crate::spec::{Span, SpecError, ValueOption, options};

/// How the queue before the serialiser is managed.
///
/// Written as a name with options:
///
/// | text | options and their defaults |
/// |---|---|
/// | `none` | |
/// | `codel` | `target=5ms` `interval=100ms` `noecn` |
/// | `fq_codel` | those, `flows=1024` `quantum=1514` |
/// | `pie` | `target=15ms` `update=15ms` `burst=150ms` `noecn` |
/// | `dualq` | `target=15ms` `rtt=100ms` `update=16ms` `coupling=2` `threshold=800us` `ramp=400us` or `step` `shift=50ms` |
///
/// as in `codel:target=20ms:noecn` or `dualq:threshold=1ms:step`. How much
/// may wait at all is [`crate::LinkConfig::queue`]'s business.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Aqm {
    /// Packets leave in order, and packets are dropped only when the queue is full (drop-tail).
    #[default]
    None,
    /// Controlled delay (RFC 8289).
    Codel(CodelConfig),
    /// Flow queueing with CoDel (RFC 8290). A full queue drops from the
    /// fattest flow.
    FqCodel(FqCodelConfig),
    /// Proportional integral controller, enhanced (RFC 8033).
    Pie(PieConfig),
    /// Dual-queue coupled AQM (RFC 9332): packets with ECT(1) and CE in one
    /// queue, the others in another.
    DualQ(DualQConfig),
}

const WHAT: &str = "queue management";
const EXPECTED: &str = "none; codel with target=5ms, interval=100ms, noecn; fq_codel with those and \
                     flows=1024, quantum=1514; pie with target=15ms, update=15ms, burst=150ms, \
                     noecn; or dualq with target=15ms, rtt=100ms, update=16ms, coupling=2, \
                     threshold=800us, ramp=400us or step, shift=50ms; colons between, as in \
                     codel:target=20ms:noecn";

/// Maximum number of queues that flows are hashed to.
const MOST_FLOWS: u32 = 65_536;
/// Maximum quantum, in bytes: more than any datagram.
const MOST_QUANTUM: u32 = 1 << 24;
/// Maximum coupling factor.
const MOST_COUPLING: u32 = 1024;

impl FromStr for Aqm {
    type Err = SpecError;
    fn from_str(text: &str) -> Result<Self, SpecError> {
        let (name, choices) = options(text, WHAT, EXPECTED);
        match name {
            "none" => each(choices, (), |_, choice| Err(choice.unknown())).map(|()| Self::None),
            "codel" => each(choices, CodelConfig::default(), set_codel).map(Self::Codel),
            "fq_codel" => each(choices, FqCodelConfig::default(), set_fq).map(Self::FqCodel),
            "pie" => each(choices, PieConfig::default(), set_pie).map(Self::Pie),
            "dualq" => each(choices, DualQConfig::default(), set_dualq).map(Self::DualQ),
            "" => Err(SpecError::new(WHAT, text, "value is empty", EXPECTED)),
            _ => Err(SpecError::new(WHAT, name, "unknown name", EXPECTED)),
        }
    }
}

/// Applies every option to the defaults.
fn each<'a, T>(
    choices: impl Iterator<Item = ValueOption<'a>>,
    mut config: T,
    set: impl Fn(&mut T, &ValueOption<'a>) -> Result<(), SpecError>,
) -> Result<T, SpecError> {
    for choice in choices {
        set(&mut config, &choice)?;
    }
    Ok(config)
}

fn set_codel(config: &mut CodelConfig, choice: &ValueOption<'_>) -> Result<(), SpecError> {
    match choice.key {
        "target" => config.target = choice.time()?,
        "interval" => config.interval = choice.time()?,
        "noecn" => {
            choice.flag()?;
            config.ecn = false;
        }
        _ => return Err(choice.unknown()),
    }
    Ok(())
}

fn set_fq(config: &mut FqCodelConfig, choice: &ValueOption<'_>) -> Result<(), SpecError> {
    match choice.key {
        "flows" => config.flows = choice.count(MOST_FLOWS)?,
        "quantum" => config.quantum = choice.count(MOST_QUANTUM)?,
        _ => return set_codel(&mut config.codel, choice),
    }
    Ok(())
}

fn set_pie(config: &mut PieConfig, choice: &ValueOption<'_>) -> Result<(), SpecError> {
    match choice.key {
        "target" => config.target = choice.time()?,
        "update" => config.update = choice.time()?,
        "burst" => config.burst = choice.time()?,
        "noecn" => {
            choice.flag()?;
            config.ecn = false;
        }
        _ => return Err(choice.unknown()),
    }
    Ok(())
}

fn set_dualq(config: &mut DualQConfig, choice: &ValueOption<'_>) -> Result<(), SpecError> {
    match choice.key {
        "target" => config.target = choice.time()?,
        "rtt" => config.max_rtt = choice.time()?,
        "update" => config.update = choice.time()?,
        "coupling" => config.coupling = choice.count(MOST_COUPLING)?,
        "threshold" => config.threshold = choice.time()?,
        "ramp" => config.ramp = choice.time()?,
        "step" => {
            choice.flag()?;
            config.ramp = Duration::ZERO;
        }
        "shift" => config.shift = choice.time()?,
        _ => return Err(choice.unknown()),
    }
    Ok(())
}

impl fmt::Display for Aqm {
    /// The name, and the options that differ from the defaults.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Codel(config) => {
                f.write_str("codel")?;
                write_codel(f, config)
            }
            Self::FqCodel(config) => {
                let plain = FqCodelConfig::default();
                f.write_str("fq_codel")?;
                write_codel(f, &config.codel)?;
                write_other(f, "flows", &config.flows, &plain.flows)?;
                write_other(f, "quantum", &config.quantum, &plain.quantum)
            }
            Self::Pie(config) => {
                let plain = PieConfig::default();
                f.write_str("pie")?;
                write_time(f, "target", config.target, plain.target)?;
                write_time(f, "update", config.update, plain.update)?;
                write_time(f, "burst", config.burst, plain.burst)?;
                f.write_str(if config.ecn { "" } else { ":noecn" })
            }
            Self::DualQ(config) => write_dualq(f, config),
        }
    }
}

fn write_codel(f: &mut fmt::Formatter<'_>, config: &CodelConfig) -> fmt::Result {
    let plain = CodelConfig::default();
    write_time(f, "target", config.target, plain.target)?;
    write_time(f, "interval", config.interval, plain.interval)?;
    f.write_str(if config.ecn { "" } else { ":noecn" })
}

fn write_dualq(f: &mut fmt::Formatter<'_>, config: &DualQConfig) -> fmt::Result {
    let plain = DualQConfig::default();
    f.write_str("dualq")?;
    write_time(f, "target", config.target, plain.target)?;
    write_time(f, "rtt", config.max_rtt, plain.max_rtt)?;
    write_time(f, "update", config.update, plain.update)?;
    write_other(f, "coupling", &config.coupling, &plain.coupling)?;
    write_time(f, "threshold", config.threshold, plain.threshold)?;
    if config.ramp.is_zero() {
        f.write_str(":step")?;
    } else {
        write_time(f, "ramp", config.ramp, plain.ramp)?;
    }
    write_time(f, "shift", config.shift, plain.shift)
}

fn write_time(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    value: Duration,
    plain: Duration,
) -> fmt::Result {
    write_other(f, key, &Span(value), &Span(plain))
}

fn write_other<T: fmt::Display + PartialEq>(
    f: &mut fmt::Formatter<'_>,
    key: &str,
    value: &T,
    plain: &T,
) -> fmt::Result {
    if value == plain {
        return Ok(());
    }
    write!(f, ":{key}={value}")
}
