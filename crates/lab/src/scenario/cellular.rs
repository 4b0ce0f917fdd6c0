//! A rate that varies as a cellular link's does.

use core::time::Duration;

use clearway_links::{Dice, Rate, Schedule};

use super::error::{ScenarioError, Source};
use super::tree::{Leaf, Table};
use super::units::Unit;

/// The generator: a random walk of the rate's logarithm in steps of `period`,
/// bound to a factor of `swing` above and below the mean, with outages. A walk
/// of equal steps up and down has the geometric mean in the middle; the
/// schedule is scaled afterwards so that its arithmetic mean is `mean`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cellular {
    seed: u64,
    mean: f64,
    period: Duration,
    swing: f64,
    outage: Duration,
}

impl Cellular {
    pub(super) fn read(mut table: Table, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let number = |leaf: &Leaf, unit: Unit| {
            unit.parse(&leaf.text)
                .map_err(|problem| source.error(&leaf.span, problem, ""))
        };
        let seed = table.require(source, "seed", "1")?;
        let mean = table.require(source, "mean", "\"12M\"")?;
        let period = table.require(source, "period", "\"100ms\"")?;
        let swing = table.require(source, "swing", "3.2")?;
        let outage = table.require(source, "outage", "\"500ms\"")?;
        table.finish(source, "[network.cellular]")?;
        let this = Self {
            seed: number(&seed, Unit::Number)? as u64,
            mean: number(&mean, Unit::Rate)?,
            period: Duration::from_secs_f64(number(&period, Unit::Time)?),
            swing: number(&swing, Unit::Number)?,
            outage: Duration::from_secs_f64(number(&outage, Unit::Time)?),
        };
        if this.period.is_zero() {
            return Err(source.error(&period.span, "a period of zero", "write one such as 100ms"));
        }
        Ok(this)
    }

    /// The rates over `length`.
    pub(super) fn schedule(&self, length: Duration) -> Schedule<Rate> {
        /// Steps from the middle to the edge of the swing.
        const EDGE: i64 = 4;
        /// One step in so many begins an outage.
        const OUTAGES: u64 = 150;
        let steps = (length.as_nanos() / self.period.as_nanos().max(1)) as usize + 1;
        let mut dice = Dice::new(self.seed, 0);
        let mut level = 0_i64;
        let mut dead = 0_u64;
        let longest = (self.outage.as_nanos() / self.period.as_nanos().max(1)) as u64;
        let mut rates = Vec::with_capacity(steps);
        for _ in 0..steps {
            level = (level + dice.below(5) as i64 - 2).clamp(-EDGE, EDGE);
            if dead > 0 {
                dead -= 1;
            } else if longest > 0 && dice.below(OUTAGES) == 0 {
                dead = 1 + dice.below(longest);
            }
            let factor = self.swing.powf(level as f64 / EDGE as f64);
            rates.push(if dead > 0 { 0.0 } else { factor });
        }
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let rate = |factor: f64| Rate::from_bits((self.mean * factor / mean) as u64);
        let mut schedule = Schedule::fixed(rate(rates[0]));
        for (index, pair) in rates.windows(2).enumerate() {
            if (pair[0] - pair[1]).abs() > f64::EPSILON {
                let at = self.period * (index as u32 + 1);
                schedule = schedule.then(at, rate(pair[1]));
            }
        }
        schedule
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_as_asked_and_outages_are_short() {
        let cellular = Cellular {
            seed: 24,
            mean: 12e6,
            period: Duration::from_millis(100),
            swing: 3.2,
            outage: Duration::from_millis(500),
        };
        let schedule = cellular.schedule(Duration::from_secs(120));
        let at = |step: u32| schedule.at(Some(Duration::from_millis(100) * step + Duration::from_millis(1)));
        let bits: Vec<u64> = (0..1_200).map(|n| at(n).bits().unwrap()).collect();
        let mean = bits.iter().sum::<u64>() / 1_200;
        assert!((11_900_000..12_100_000).contains(&mean), "{mean}");
        let most = bits.iter().max().unwrap();
        let least = bits.iter().filter(|&&rate| rate > 0).min().unwrap();
        assert!((8..12).contains(&(most / least)), "{most} / {least}");
        let outage = bits.split(|&rate| rate > 0).map(<[u64]>::len).max().unwrap();
        assert!((1..=5).contains(&outage), "{outage}");
    }
}
