//! Running scenarios: once, many times, and what the bars say about it.

mod judge;
mod one;
mod plan;
mod pool;
mod row;

pub use judge::{Group, Shortfall, judge};
pub use one::{After, Extras, run_case};
pub use plan::{MOST_RUNS, Plan, PlanError, Task, available};
pub use pool::{Settings, Speed, run_all, run_while};
pub use row::Row;
