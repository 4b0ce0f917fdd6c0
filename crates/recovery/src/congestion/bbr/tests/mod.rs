//! BBR against its draft: the example test cases of the appendix (each names its
//! title there), the constants and formulas one by one, and extremes.

mod bounds;
mod driver;
mod ecn;
mod extremes;
mod formulas;
mod paths;
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
