//! Processes and threads: who has a socket open, and how much time each thread gets.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::ParseError;

/// A process with UDP sockets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The name that the kernel has for it, at most 15 characters.
    pub name: String,
    /// Its command line, shortened.
    pub command: String,
    /// Inodes of its UDP sockets.
    pub sockets: Vec<u64>,
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// A thread and the time it had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// `R` running, `S` sleeping, `D` waiting for a disk, `T` stopped, …: proc(5).
    pub state: char,
    /// Time on a processor since it began.
    pub run: Duration,
    /// Time that it was ready to run and had no processor. `None` if the kernel does not say.
    pub wait: Option<Duration>,
}

/// What `/proc/PID/task/TID/stat` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The thread's name.
    pub name: String,
    /// Its state.
    pub state: char,
    /// Time on a processor, in ticks of the clock.
    pub ticks: u64,
}

/// Reads `/proc/PID/task/TID/stat`. The name may contain anything, spaces and parentheses too.
///
/// # Errors
/// If it does not have the expected fields.
pub fn parse_stat(text: &str) -> Result<Stat, ParseError> {
    let wrong = || ParseError::new("a thread's name in parentheses and its times", text);
    let (head, rest) = text.rsplit_once(')').ok_or_else(wrong)?;
    let (_, name) = head.split_once('(').ok_or_else(wrong)?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let number = |index: usize| {
        fields
            .get(index)
            .and_then(|field| field.parse::<u64>().ok())
    };
    let state = fields.first().and_then(|field| field.chars().next());
    // Fields 14 and 15 of proc(5), `utime` and `stime`; what is left here begins with the third.
    let user = number(11).ok_or_else(wrong)?;
    let system = number(12).ok_or_else(wrong)?;
    Ok(Stat {
        name: name.to_owned(),
        state: state.ok_or_else(wrong)?,
        ticks: user.saturating_add(system),
    })
}

/// Reads `/proc/PID/task/TID/schedstat`: nanoseconds on a processor, and waiting for one.
///
/// # Errors
/// If there are not two numbers.
pub fn parse_schedstat(text: &str) -> Result<(Duration, Duration), ParseError> {
    let mut words = text.split_ascii_whitespace();
    let mut next = || {
        let word = words.next().unwrap_or_default();
        word.parse()
            .map(Duration::from_nanos)
            .map_err(|_| ParseError::new("nanoseconds", word))
    };
    Ok((next()?, next()?))
}

/// Reads the inode from the target of a descriptor's link, such as `socket:[32144]`.
#[must_use]
pub fn parse_socket_link(target: &str) -> Option<u64> {
    target
        .strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_may_contain_parentheses_and_spaces() {
        let text = "42 (a) b (c)) R 1 1 1 0 -1 4194304 1 0 0 0 70 30 0 0 20 0 1 0 5 0 0";
        let stat = parse_stat(text).unwrap();
        assert_eq!(
            (stat.name.as_str(), stat.state, stat.ticks),
            ("a) b (c)", 'R', 100)
        );
        for text in ["", "42 (a", "42 (a) R 1 2", ") R ("] {
            assert!(parse_stat(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn times_and_links_are_read() {
        let (run, wait) = parse_schedstat("1500 20 3\n").unwrap();
        assert_eq!((run.as_nanos(), wait.as_nanos()), (1_500, 20));
        assert!(parse_schedstat("1500").is_err());
        assert_eq!(parse_socket_link("socket:[77]"), Some(77));
        assert_eq!(parse_socket_link("pipe:[77]"), None);
    }
}
