//! The default memory budget of a server.

use std::fs;
use std::sync::OnceLock;

/// 1 GiB: what is in flight and buffered for 80 Gbit/s at 100 ms. A faster network, or
/// 100,000 idle connections beside busy ones, needs a higher setting.
const MAX_DEFAULT: usize = 1 << 30;

/// On small machines, the default is one part in this many of the memory of the machine or
/// of its control group.
const FRACTION: usize = 4;

/// Returns a quarter of the available memory, at most [`MAX_DEFAULT`], in bytes. Read once in
/// the life of the process.
pub(super) fn default_budget() -> usize {
    static BUDGET: OnceLock<usize> = OnceLock::new();
    *BUDGET.get_or_init(|| {
        available().map_or(MAX_DEFAULT, |bytes| (bytes / FRACTION).min(MAX_DEFAULT))
    })
}

/// Returns the bytes of memory that the process may use, if Linux reports it.
fn available() -> Option<usize> {
    let machine = fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.and_then(|text| parse_meminfo(&text));
    let groups = [
        "/sys/fs/cgroup/memory.max",
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
    ];
    let groups = groups.map(|path| parse_limit(&fs::read_to_string(path).ok()?));
    groups.into_iter().chain([machine]).flatten().min()
}

/// Returns `MemTotal` of /proc/meminfo, in bytes.
fn parse_meminfo(meminfo: &str) -> Option<usize> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Returns the limit of a control group, in bytes; `None` if it has no limit.
fn parse_limit(text: &str) -> Option<usize> {
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meminfo_and_control_group_limits_are_parsed() {
        let meminfo = "MemTotal:       24599432 kB\nMemFree:          500000 kB\n";
        assert_eq!(parse_meminfo(meminfo), Some(24_599_432 * 1024));
        assert_eq!(parse_meminfo("MemFree: 1 kB\n"), None);
        assert_eq!(parse_limit("536870912\n"), Some(512 << 20));
        assert_eq!(parse_limit("max\n"), None);
    }

    #[test]
    fn default_budget_is_between_one_mebibyte_and_one_gibibyte() {
        assert!((1 << 20..=MAX_DEFAULT).contains(&default_budget()));
    }
}
