//! Runs scenarios, once or many times, and checks the results against their bars.

mod judge;
mod one;
mod plan;
mod pool;
mod row;
mod shard;
mod starved;

pub use judge::{Group, Shortfall, judge};
pub use one::{After, RunObservers, run_case};
pub use plan::{MOST_RUNS, Plan, PlanError, Task, available};
pub use pool::{Settings, Speed, run_all, run_while};
pub use row::{Row, RowFlow};
pub use shard::{Shard, ShardError};
