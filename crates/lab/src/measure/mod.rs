//! What a run showed: samples, outcomes, and the figures made of them.

mod capacity;
mod metric;
mod outcome;
mod statistics;
#[cfg(test)]
mod tests;

pub use capacity::capacity_bits;
pub use metric::{METRICS, Metric, metric};
pub use outcome::{Bulk, FlowOutcome, Outcome, Sample};
pub use statistics::{jain, percentile};
