//! BBR against its draft: the example test cases of the appendix (each names its
//! title there), the constants and formulas one by one, and extremes.

mod bench;
mod bounds;
mod checklist;
mod cycle;
mod extremes;
mod figures;
mod marks;
mod paths;
mod round_trip;
mod saved;
mod shared;
mod sim;
#[cfg(feature = "specimens")]
mod specimens;
mod spurious;
mod startup;
