//! `/proc/net/softnet_stat`: the queue of each processor between devices and protocols.
//!
//! A line of hexadecimal columns per processor, without names; kernels have appended columns over
//! time. Host-wide, not per network namespace.

use crate::counters::Counters;
use crate::error::ParseError;

/// The columns (`net/core/net-procfs.c`). Columns 4 to 8 have been zero since Linux 2.6; the processor's
/// number came with 5.10, the lengths of its two queues with 6.4. Empty names are not counters.
const COLUMNS: [&str; 15] = [
    "processed",
    "dropped",
    "time_squeeze",
    "",
    "",
    "",
    "",
    "",
    "cpu_collision",
    "received_rps",
    "flow_limit_count",
    "",
    "",
    "",
    "",
];

/// Reads the counters, summed over the processors, into `softnet.dropped` and the like.
///
/// # Errors
/// If a column is not a hexadecimal number, or a line has fewer than three.
pub fn parse(text: &str) -> Result<Counters, ParseError> {
    let mut counters = Counters::default();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut columns = 0;
        for (index, word) in line.split_ascii_whitespace().enumerate() {
            let value = u64::from_str_radix(word, 16)
                .map_err(|_| ParseError::new("a hexadecimal number", word))?;
            columns = index + 1;
            match COLUMNS.get(index) {
                Some(&"") => {}
                Some(name) => counters.add(format!("softnet.{name}"), value),
                None => counters.add(format!("softnet.column_{columns}"), value),
            }
        }
        if columns < 3 {
            return Err(ParseError::new("at least three columns", line));
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_summed_and_unknown_columns_kept() {
        let text = "0000000a 00000001 00000002 0 0 0 0 0 0 0 0 5 0 7 7 0000000b\n\
                    00000001 00000001 00000000 0 0 0 0 0 0 0 0 5 1 7 7 00000001\n";
        let counters = parse(text).unwrap();
        assert_eq!(counters.get("softnet.processed"), 11);
        assert_eq!(counters.get("softnet.dropped"), 2);
        assert_eq!(counters.get("softnet.column_16"), 12);
        assert_eq!(counters.iter().count(), 7);
        assert!(parse("1 2\n").is_err());
        assert!(parse("1 2 z\n").is_err());
    }
}
