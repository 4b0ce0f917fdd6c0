//! The reports of programs: one JSON object per line, with the same names for every peer.

use std::{
    io::{Write, stdout},
    net::SocketAddr,
};

use anyhow::Result;
use serde::Serialize;

/// What is known about a client's connection; null is what the stack does not report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether the handshake resumed an earlier session.
    pub resumed: Option<bool>,
    /// Whether the server accepted early data.
    pub zero_rtt_accepted: Option<bool>,
    /// Whether the connection went through a Retry.
    pub retried: Option<bool>,
    /// Key updates, by either side.
    pub key_updates: Option<u64>,
}

/// The result of a client's run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Run {
    /// The stack's name.
    pub peer: &'static str,
    /// Bytes downloaded and verified, on all connections.
    pub bytes: u64,
    /// Requests completed, or ended by the time limit of a timed run.
    pub requests: u64,
    /// Connections made, if handshakes are measured.
    pub handshakes: u64,
    /// Duration of the transfers in seconds, without the handshakes before them.
    pub seconds: f64,
    /// Download rate in Gbit/s.
    pub gbps: f64,
    /// Whether the second connection resumed the first's session; null without one.
    pub resumed: Option<bool>,
    /// Whether the server accepted the second connection's early data; null if none was requested.
    pub zero_rtt_accepted: Option<bool>,
    /// Whether the last connection went through a Retry.
    pub retried: Option<bool>,
    /// Key updates on the last connection, by either side.
    pub key_updates: Option<u64>,
    /// Responses with the right sum in their trailers.
    pub trailers_seen: u64,
    /// The time within which half of the requests of a timed run were completed, in microseconds.
    pub p50_us: Option<f64>,
    /// The same for 99 of 100.
    pub p99_us: Option<f64>,
    /// The rate of the download beside the requests, in Gbit/s; null without one.
    pub bulk_gbps: Option<f64>,
}

impl Run {
    /// Describes the result in a line for a person.
    #[must_use]
    pub fn sentence(&self) -> String {
        if self.handshakes > 0 {
            return format!("{} handshakes in {:.3} s", self.handshakes, self.seconds);
        }
        let mut line = format!(
            "{} bytes in {} requests, {:.3} s, {:.3} Gbit/s",
            self.bytes, self.requests, self.seconds, self.gbps
        );
        for (fact, words) in [
            (self.retried, "after a Retry"),
            (self.resumed, "resumed"),
            (self.zero_rtt_accepted, "0-RTT accepted"),
        ] {
            if fact == Some(true) {
                line.push_str(", ");
                line.push_str(words);
            }
        }
        line
    }

    /// Prints the result, as an object or for a person.
    ///
    /// # Errors
    /// If standard output is gone.
    pub fn print(&self, json: bool) -> Result<()> {
        let line = if json {
            serde_json::to_string(self)?
        } else {
            self.sentence()
        };
        say(&line)
    }
}

/// What a server knows about a connection, reported when it is closed.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Closed {
    /// The stack's name.
    pub peer: &'static str,
    /// Always `closed`.
    pub event: &'static str,
    /// Whether the client used a Retry token.
    pub retried: Option<bool>,
    /// Whether the handshake resumed an earlier session.
    pub resumed: Option<bool>,
    /// Whether early data was accepted.
    pub zero_rtt_accepted: Option<bool>,
    /// Key updates, by either side.
    pub key_updates: Option<u64>,
    /// Key updates started by the client.
    pub peer_key_updates: Option<u64>,
    /// The client's last address.
    pub remote: Option<SocketAddr>,
    /// Why it was closed.
    pub cause: String,
}

impl Closed {
    /// Creates a report of which nothing is known yet.
    #[must_use]
    pub fn new(peer: &'static str) -> Self {
        Self {
            peer,
            event: "closed",
            ..Self::default()
        }
    }

    /// Prints the report as one line. A closed standard output is ignored.
    pub fn print(&self) {
        if let Ok(line) = serde_json::to_string(self) {
            let _ = say(&line);
        }
    }
}

/// Prints that the server is ready, and its address.
///
/// # Errors
/// If standard output is gone.
pub fn announce(local: SocketAddr) -> Result<()> {
    say(&format!("listening on {local}"))
}

/// One line on standard output, now.
///
/// # Errors
/// If standard output is gone.
pub fn say(line: &str) -> Result<()> {
    let mut stdout = stdout().lock();
    writeln!(stdout, "{line}")?;
    Ok(stdout.flush()?)
}
