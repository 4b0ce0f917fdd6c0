//! The results of a run: samples, outcomes, and metrics.

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
