//! Memory that no account knows: what the allocator keeps, fragments, stacks.
//!
//! The budget counts what connections and requests hold. A flood of small pieces of many sizes made
//! the process half as large again as that. So what the process really uses is looked at now and then:
//! close to the limit, the allocator returns what it can, and what is still too much is charged
//! to the budget, so that connections are closed for it.

use std::convert::Infallible;
use std::fs;
use std::time::Duration;

use clearway::MemoryAccount;
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use super::allocator;
use super::limits::Memory;

/// How often it is looked at. A flood that is served allocates some ten MiB in this time.
const INTERVAL: Duration = Duration::from_millis(250);

/// Looks between two calls that have the allocator return memory, for which all threads wait.
const TRIM_EVERY: u32 = 8;

/// Keeps the process within its limit, if it has one.
pub(super) async fn watch(memory: Memory, account: MemoryAccount) -> Infallible {
    let (Some(total), Some(counted)) = (memory.total, memory.counted) else {
        return core::future::pending().await;
    };
    let mut charge = None;
    let mut looks = interval(INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut trim_in = 0_u32;
    loop {
        looks.tick().await;
        trim_in = trim_in.saturating_sub(1);
        let mut used = resident();
        if used > high(total) && trim_in == 0 {
            trim_in = TRIM_EVERY;
            // If the program ends meanwhile, there is nothing to wait for.
            let _ = spawn_blocking(allocator::trim).await;
            used = resident();
        }
        drop(charge.take());
        let surplus = surplus(used, total, counted);
        charge = (surplus > 0).then(|| account.charge(surplus));
    }
}

/// What a process with that limit may use before anything is done about it.
fn high(total: u64) -> u64 {
    total / 8 * 7
}

/// Returns what to charge to a budget of `counted` bytes if a process with the limit `total` uses
/// `used`: at most a quarter of the budget, because fragments remain when connections are closed.
fn surplus(used: u64, total: u64, counted: usize) -> usize {
    let surplus = used.saturating_sub(high(total));
    usize::try_from(surplus)
        .unwrap_or(usize::MAX)
        .min(counted / 4)
}

/// Returns the bytes of memory that the process uses; 0 where that is not known.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    resident_in(&status).unwrap_or(0)
}

/// Finds them in the text of `/proc/self/status` (proc_pid_status(5)).
fn resident_in(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_of_the_process() {
        let status = "Name:\tclearway\nVmHWM:\t    9000 kB\nVmRSS:\t    8192 kB\nThreads:\t3\n";
        assert_eq!(resident_in(status), Some(8 << 20));
        assert_eq!(resident_in("Name:\tclearway\n"), None);
        assert_eq!(resident_in("VmRSS:\tmany kB\n"), None);
    }

    #[test]
    fn what_is_used_above_seven_eighths_of_the_limit_is_charged_within_a_quarter_of_the_budget() {
        let (total, counted) = (256 << 20, 160 << 20);
        assert_eq!(surplus(0, total, counted), 0);
        assert_eq!(surplus(224 << 20, total, counted), 0);
        assert_eq!(surplus(225 << 20, total, counted), 1 << 20);
        assert_eq!(surplus(256 << 20, total, counted), 32 << 20);
        assert_eq!(surplus(400 << 20, total, counted), 40 << 20);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_uses_memory() {
        let before = resident();
        let block = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident() > before.max(32 << 20), "{before}");
        drop(block);
    }
}
