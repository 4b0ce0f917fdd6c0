//! The division of the server's memory.

/// Memory for files and listings that wait for clients, before downloads get smaller pieces: 64 MiB
/// is two pieces each for a hundred downloads at full speed, and more than any disk needs.
const BUFFERED: u64 = 64 << 20;

/// Memory for file names of listings in progress: some sixty directories of 20,000 entries each.
const LISTED: u64 = 32 << 20;

/// Memory of the process without clients: its code, its threads, TLS, the allocator.
const PROCESS: u64 = 16 << 20;

/// Memory of each shard without connections: buffers of its socket and tables.
const PER_SHARD: u64 = 3 << 20;

/// The share of the rest that is accounted, in thirds. The other stays free for memory that is
/// not: what was freed and is kept by the allocator, or fragmented. Under 33 attacks at once that was
/// 43 % of what was accounted.
const COUNTED: u64 = 2;

/// The parts of which [`COUNTED`] are accounted.
const PARTS: u64 = 3;

/// Minimum that must be left for clients: a thousand idle connections.
const LEAST: u64 = 16 << 20;

/// Bytes for each purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::serve) struct Memory {
    /// What the whole process may use; `None` without a limit.
    pub(in crate::serve) total: Option<u64>,
    /// Accounted memory: connections, requests and both of the others. `None` is the library's
    /// default.
    pub(in crate::serve) counted: Option<usize>,
    /// The part of it for pieces of files and listings.
    pub(in crate::serve) buffered: u64,
    /// The part of it for names in listings.
    pub(in crate::serve) listed: u64,
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            total: None,
            counted: None,
            buffered: BUFFERED,
            listed: LISTED,
        }
    }
}

impl Memory {
    /// Divides the memory of the whole process, so that it stays within the limit.
    ///
    /// # Errors
    /// If too little is left for clients; the message says how much is needed.
    pub(in crate::serve) fn divide(total: u64, shards: u16) -> Result<Self, String> {
        let fixed = PROCESS + PER_SHARD * u64::from(shards);
        let counted = total.saturating_sub(fixed) / PARTS * COUNTED;
        if counted < LEAST {
            let needed = fixed + LEAST.div_ceil(COUNTED) * PARTS;
            return Err(format!(
                "--memory is too small for {shards} shard(s): expected at least {} MiB",
                needed.div_ceil(1 << 20)
            ));
        }
        Ok(Self {
            total: Some(total),
            counted: Some(usize::try_from(counted).unwrap_or(usize::MAX)),
            buffered: (counted / 8).min(BUFFERED),
            listed: (counted / 16).min(LISTED),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn memory_parts_fit_the_budget_and_leave_room_for_10000_connections() {
        let memory = Memory::divide(256 * MIB, 1).expect("enough");
        let counted = memory.counted.expect("bounded") as u64;
        assert!(counted + PROCESS + PER_SHARD < 256 * MIB * 7 / 8);
        assert!(counted > 10_000 * (16 << 10), "{counted}");
        assert_eq!(memory.buffered, counted / 8);
        assert_eq!(memory.listed, counted / 16);
        let large = Memory::divide(64 << 30, 8).expect("enough");
        assert_eq!((large.buffered, large.listed), (BUFFERED, LISTED));
    }

    #[test]
    fn too_small_memory_budget_is_rejected_with_the_minimum() {
        for shards in [1, 2, 1024] {
            let error = Memory::divide(MIB, shards).expect_err("too little");
            let needed = error.rsplit(' ').nth(1).and_then(|word| word.parse().ok());
            let needed: u64 = needed.expect("a number of MiB");
            assert!(Memory::divide(needed * MIB, shards).is_ok(), "{error}");
            assert!(
                Memory::divide((needed - 1) * MIB, shards).is_err(),
                "{error}"
            );
        }
    }
}
