//! Tests of BBR against its draft: the example test cases of the appendix (each with its
//! title there), the constants and formulas, and extremes.

mod bounds;
mod driver;
mod ecn;
mod extremes;
mod formulas;
mod paths;
mod pauses;
mod probe_bw;
mod probe_rtt;
mod shared;
mod sim;
#[cfg(feature = "specimens")]
mod specimens;
mod spurious;
mod startup;
mod thresholds;
mod undo;
