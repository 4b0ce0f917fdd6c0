//! Memory that no account knows: what the allocator keeps, fragments, stacks.
//!
//! The budget counts what connections and requests hold. A flood of small pieces of many sizes made
//! the process half as large again as that. So what the process really uses is looked at now and then:
//! close to the limit, the allocator returns what it can, and as long as it is still too much, more
//! and more is charged to the budget, so that connections are closed for it.

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
    let mut surplus = 0;
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
        let before = surplus;
        surplus = next_surplus(before, used, total, counted);
        if surplus != before {
            drop(charge.take());
            charge = (surplus > 0).then(|| account.charge(surplus));
        }
    }
}

/// What a process with that limit may use before anything is done about it.
fn high(total: u64) -> u64 {
    total / 8 * 7
}

/// Returns what to charge to a budget of `counted` bytes if a process with the limit `total` uses
/// `used` and `surplus` was charged before: a quarter of the difference more, or less, because it takes a
/// second or two until closed connections have an effect, and some of the memory remains in
/// fragments. At most half of the budget.
fn next_surplus(surplus: usize, used: u64, total: u64, counted: usize) -> usize {
    let part = |bytes: u64| usize::try_from(bytes / 4).unwrap_or(usize::MAX);
    match used.checked_sub(high(total)) {
        Some(over) => surplus.saturating_add(part(over)).min(counted / 2),
        None => surplus.saturating_sub(part(high(total).saturating_sub(used))),
    }
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
    fn more_is_charged_as_long_as_too_much_is_used_and_less_afterwards() {
        const MIB: usize = 1 << 20;
        let next = |surplus: usize, used: u64| {
            next_surplus(surplus * MIB, used << 20, 256 << 20, 160 * MIB) / MIB
        };
        assert_eq!([0, 224].map(|used| next(0, used)), [0, 0]);
        assert_eq!([0, 8, 79].map(|surplus| next(surplus, 256)), [8, 16, 80]);
        assert_eq!([40, 8].map(|surplus| next(surplus, 184)), [30, 0]);
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
