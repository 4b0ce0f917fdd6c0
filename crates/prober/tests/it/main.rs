//! The prober against servers: correct ones, and ones with defects.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests")]

mod clearway;
mod defective;
mod unreachable;
mod very_defect;
