//! `/proc/net/sockstat` and `udp_mem`: memory of all UDP sockets, in pages, and its limits.

use crate::error::ParseError;

/// Reads the pages that the host's UDP sockets hold (`UDP: inuse 4 mem 12`).
///
/// # Errors
/// If there is no such line.
pub fn udp_pages(text: &str) -> Result<u64, ParseError> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("UDP:"))
        .ok_or_else(|| ParseError::new("a line that begins with \"UDP:\"", text))?;
    let mut words = line.split_ascii_whitespace();
    while let Some(name) = words.next() {
        let value = words.next().unwrap_or_default();
        if name == "mem" {
            return value
                .parse()
                .map_err(|_| ParseError::new("a number", value));
        }
    }
    Err(ParseError::new("the value \"mem\"", line))
}

/// Reads the three limits of `udp_mem`, in pages: below the first all is well, between the second and
/// the third sockets beyond their minimum lose, beyond the third all do.
///
/// # Errors
/// If there are not three numbers.
pub fn udp_mem(text: &str) -> Result<[u64; 3], ParseError> {
    let mut words = text.split_ascii_whitespace();
    let mut next = || {
        let word = words.next().unwrap_or_default();
        word.parse()
            .map_err(|_| ParseError::new("three numbers", text))
    };
    Ok([next()?, next()?, next()?])
}

/// Reads a file that is one number.
///
/// # Errors
/// If it is not.
pub fn number(text: &str) -> Result<u64, ParseError> {
    let text = text.trim();
    text.parse().map_err(|_| ParseError::new("a number", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_and_limits_are_read_in_pages() {
        let text = "sockets: used 14\nUDP: inuse 3 mem 162\nUDPLITE: inuse 0\n";
        assert_eq!(udp_pages(text).unwrap(), 162);
        assert!(udp_pages("UDP: inuse 3\n").is_err());
        assert_eq!(udp_mem("1\t2\t3\n").unwrap(), [1, 2, 3]);
        assert!(udp_mem("1 2").is_err());
    }
}
