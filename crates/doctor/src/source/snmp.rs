//! `/proc/net/snmp`, `/proc/net/netstat` and `/proc/net/snmp6`: counters of IP and UDP.
//!
//! The first two have pairs of lines, names and values. Kernels differ in which names they have
//! (`InCsumErrors` since 3.10, `IgnoredMulti` since 4.0, `MemErrors` since 5.11), so columns are found
//! by name and every one is kept.

use crate::counters::Counters;
use crate::error::ParseError;

/// Reads pairs of lines into `Udp.RcvbufErrors` and the like.
///
/// # Errors
/// If a line of names is not followed by one with as many numbers.
pub fn parse(text: &str) -> Result<Counters, ParseError> {
    let mut counters = Counters::default();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    while let Some(names) = lines.next() {
        let (group, names) = split(names)?;
        let values = lines.next().unwrap_or_default();
        let (values_group, values) = split(values)?;
        if values_group != group {
            return Err(ParseError::new(
                "a line of values for the names above it",
                values_group,
            ));
        }
        let mut values = values.split_ascii_whitespace();
        for name in names.split_ascii_whitespace() {
            let value = values
                .next()
                .ok_or_else(|| ParseError::new("as many values as names", name))?;
            // Some are limits and may be negative, such as Tcp.MaxConn: not counters.
            if let Some(value) = number(value)? {
                counters.add(format!("{group}.{name}"), value);
            }
        }
        if let Some(extra) = values.next() {
            return Err(ParseError::new("as many values as names", extra));
        }
    }
    Ok(counters)
}

/// Reads lines of a name and a value, such as `Udp6InDatagrams 7`, into `Udp6.InDatagrams`.
///
/// # Errors
/// If a line is not a name and a number.
pub fn parse_v6(text: &str) -> Result<Counters, ParseError> {
    let mut counters = Counters::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let Some(name) = words.next() else { continue };
        let value = words.next().unwrap_or_default();
        let Some(value) = number(value)? else {
            continue;
        };
        counters.add(group_name(name), value);
    }
    Ok(counters)
}

/// `Udp6InDatagrams` is the group `Udp6` and the counter `InDatagrams`.
fn group_name(name: &str) -> String {
    match name.find('6') {
        Some(at) if at + 1 < name.len() => {
            let (group, counter) = name.split_at(at + 1);
            format!("{group}.{counter}")
        }
        Some(_) | None => name.to_owned(),
    }
}

fn split(line: &str) -> Result<(&str, &str), ParseError> {
    line.split_once(':')
        .ok_or_else(|| ParseError::new("a group's name and a colon", line))
}

fn number(text: &str) -> Result<Option<u64>, ParseError> {
    if text
        .strip_prefix('-')
        .is_some_and(|digits| digits.parse::<u64>().is_ok())
    {
        return Ok(None);
    }
    let number = text.parse().map_err(|_| ParseError::new("a number", text));
    number.map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_unknown_ones_are_kept() {
        let text =
            "Tcp: MaxConn InSegs\nTcp: -1 4\nUdp: InDatagrams NewCounter NoPorts\nUdp: 1 2 3\n";
        let counters = parse(text).unwrap();
        assert_eq!(counters.get("Udp.InDatagrams"), 1);
        assert_eq!(counters.get("Udp.NewCounter"), 2);
        assert_eq!(counters.get("Udp.NoPorts"), 3);
        assert_eq!(counters.find("Tcp.MaxConn"), None);
    }

    #[test]
    fn lines_that_do_not_fit_together_are_errors() {
        for text in [
            "Udp: A B\nUdp: 1\n",
            "Udp: A\nUdp: 1 2\n",
            "Udp: A\nIp: 1\n",
            "Udp: A\n",
            "Udp: A\nUdp: x\n",
            "Udp",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn ipv6_names_are_split_into_group_and_counter() {
        let counters =
            parse_v6("Ip6InReceives   \t 4\nUdp6RcvbufErrors\t9\nUdpLite6InErrors 1\n").unwrap();
        assert_eq!(counters.get("Ip6.InReceives"), 4);
        assert_eq!(counters.get("Udp6.RcvbufErrors"), 9);
        assert_eq!(counters.get("UdpLite6.InErrors"), 1);
        assert!(parse_v6("Udp6InErrors\n").is_err());
    }
}
