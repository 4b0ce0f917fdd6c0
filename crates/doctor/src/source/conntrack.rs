//! `/proc/net/stat/nf_conntrack`: counters of connection tracking, of one network namespace.
//!
//! A line of names, then one of hexadecimal values per processor. Names have changed over time
//! (`searched` became `clashres`, `delete_list` became `chainlength`).

use crate::counters::Counters;
use crate::error::ParseError;

/// Reads the counters, summed over the processors, into `conntrack.drop` and the like. The first
/// column, the number of entries, is not a counter and is left out.
///
/// # Errors
/// If a value is not hexadecimal, or a line has more values than there are names.
pub fn parse(text: &str) -> Result<Counters, ParseError> {
    let mut counters = Counters::default();
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    if names.first() != Some(&"entries") {
        return Err(ParseError::new(
            "names of columns that begin with \"entries\"",
            text,
        ));
    }
    for line in lines {
        for (index, word) in line.split_ascii_whitespace().enumerate() {
            let value = u64::from_str_radix(word, 16)
                .map_err(|_| ParseError::new("a hexadecimal number", word))?;
            let name = names
                .get(index)
                .ok_or_else(|| ParseError::new("as many values as names", line))?;
            if index > 0 {
                counters.add(format!("conntrack.{name}"), value);
            }
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_summed_and_entries_left_out() {
        let counters = parse("entries clashres drop\n0000000a 1 2\n0000000a 0 10\n").unwrap();
        assert_eq!(counters.get("conntrack.drop"), 18);
        assert_eq!(counters.get("conntrack.clashres"), 1);
        assert_eq!(counters.find("conntrack.entries"), None);
        assert!(parse("").is_err());
        assert!(parse("entries drop\n1 2 3\n").is_err());
    }
}
