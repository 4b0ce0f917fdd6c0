//! What was sampled, by second.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{SampleDirection, sampled_name};

/// Most counts that wait to be taken. Further ones are left out, and counted.
const MOST: usize = 1 << 16;

/// What one hop saw of a connection in one second: a line of a file of
/// `clearway doctor path`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleLine {
    /// Seconds since 1970.
    pub second: u64,
    /// Who saw it.
    pub hop: &'static str,
    /// Which way the datagrams went.
    pub direction: SampleDirection,
    /// The connection's name.
    pub connection: u64,
    /// Datagrams.
    pub packets: u64,
    /// Bytes of their UDP payload.
    pub bytes: u64,
}

impl fmt::Display for SampleLine {
    /// A JSON object.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{{\"second\":{},\"hop\":\"{}\",\"connection\":\"{:016x}\",\"packets\":{},\"bytes\":{},\
             \"direction\":\"{}\"}}",
            self.second,
            self.hop,
            self.connection,
            self.packets,
            self.bytes,
            self.direction.name()
        )
    }
}

type Key = (u64, &'static str, SampleDirection, u64);

#[derive(Debug, Default)]
struct Counts {
    /// Packets and bytes.
    by_key: BTreeMap<Key, (u64, u64)>,
    left_out: u64,
}

/// Counts the datagrams of sampled connections. A lock is taken for those only.
#[derive(Debug)]
pub struct SampleLog {
    one_in: u64,
    counts: Mutex<Counts>,
}

impl SampleLog {
    /// Samples one connection in `one_in`.
    #[must_use]
    pub fn new(one_in: u64) -> Self {
        Self {
            one_in,
            counts: Mutex::default(),
        }
    }

    /// Counts a datagram that passed `hop` now, if its connection is sampled.
    pub fn count(&self, hop: &'static str, direction: SampleDirection, datagram: &[u8]) {
        if let Some(connection) = sampled_name(datagram, self.one_in) {
            let now = SystemTime::now().duration_since(UNIX_EPOCH);
            let second = now.map_or(0, |since| since.as_secs());
            self.add((second, hop, direction, connection), datagram.len() as u64);
        }
    }

    fn add(&self, key: Key, len: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let full = counts.by_key.len() >= MOST;
        match counts.by_key.get_mut(&key) {
            Some((packets, bytes)) => {
                *packets += 1;
                *bytes += len;
            }
            None if full => counts.left_out += 1,
            None => {
                counts.by_key.insert(key, (1, len));
            }
        }
    }

    /// Removes and returns the counts of seconds before `second`, in order.
    pub fn take_before(&self, second: u64) -> Vec<SampleLine> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let later = counts
            .by_key
            .split_off(&(second, "", SampleDirection::Up, 0));
        let taken = std::mem::replace(&mut counts.by_key, later);
        drop(counts);
        let line = |((second, hop, direction, connection), (packets, bytes))| SampleLine {
            second,
            hop,
            direction,
            connection,
            packets,
            bytes,
        };
        taken.into_iter().map(line).collect()
    }

    /// Returns how many datagrams were left out since the last call, because too many connections
    /// were sampled in one second.
    pub fn take_left_out(&self) -> u64 {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut counts.left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_once_and_in_order() {
        let log = SampleLog::new(1);
        for (second, connection) in [(7, 2), (5, 1), (7, 1), (5, 1)] {
            log.add((second, "hop", SampleDirection::Up, connection), 100);
        }
        let taken = log.take_before(7);
        assert_eq!(taken.len(), 1);
        assert_eq!(
            taken[0].to_string(),
            r#"{"second":5,"hop":"hop","connection":"0000000000000001","packets":2,"bytes":200,"direction":"up"}"#
        );
        let rest = log.take_before(u64::MAX);
        let rest: Vec<_> = rest.iter().map(|line| line.connection).collect();
        assert_eq!(rest, [1, 2]);
        assert!(log.take_before(u64::MAX).is_empty());
    }

    #[test]
    fn full_log_leaves_out_and_counts_new_connections_only() {
        let log = SampleLog::new(1);
        for connection in 0..MOST as u64 + 3 {
            log.add((5, "hop", SampleDirection::Down, connection), 1);
        }
        log.add((5, "hop", SampleDirection::Down, 0), 1);
        assert_eq!((log.take_left_out(), log.take_left_out()), (3, 0));
        let lines = log.take_before(6);
        assert_eq!((lines.len(), lines[0].packets), (MOST, 2));
    }
}
