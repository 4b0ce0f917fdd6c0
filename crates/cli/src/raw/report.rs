//! The output of `clearway raw`.

use core::net::SocketAddr;

use serde::Serialize;

/// A client's run, as the JSON object on stdout.
#[derive(Debug, Default, Serialize)]
pub(super) struct Download {
    /// The implementation, for tables that contain other stacks too.
    pub(super) peer: &'static str,
    /// Whether everything was done; a failed run says why instead.
    pub(super) completed: bool,
    /// Content received and verified, over both connections if one resumes another.
    pub(super) bytes: u64,
    /// Bytes uploaded after the requests.
    pub(super) uploaded: u64,
    /// From the first request to the last byte.
    pub(super) seconds: f64,
    /// Gigabits (10⁹) of content per second.
    pub(super) gbps: f64,
    /// Requests answered in full.
    pub(super) requests: u64,
    /// From the first datagram to the complete handshake.
    pub(super) handshake_ms: f64,
    /// The measured connection resumed an earlier one.
    pub(super) resumed: bool,
    /// Whether the server accepted the requests sent in 0-RTT; null if there were none.
    pub(super) zero_rtt_accepted: Option<bool>,
    /// Key updates by either side.
    pub(super) key_updates: u64,
    /// Times the client moved to another port.
    pub(super) rebinds: u64,
    /// Packets of the client declared lost.
    pub(super) losses: u64,
    /// The client's probe timeouts.
    pub(super) ptos: u64,
    /// Smoothed RTT.
    pub(super) rtt_ms: f64,
    /// Largest UDP payload sent.
    pub(super) mtu: u16,
}

impl Download {
    /// One line for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} bytes in {} request(s), {:.3} s, {:.3} Gbit/s; handshake {:.1} ms, RTT {:.2} ms",
            self.bytes, self.requests, self.seconds, self.gbps, self.handshake_ms, self.rtt_ms
        );
        let notes = [
            (self.resumed, "resumed"),
            (self.zero_rtt_accepted == Some(true), "0-RTT accepted"),
            (self.zero_rtt_accepted == Some(false), "0-RTT refused"),
            (self.key_updates > 0, "keys updated"),
            (self.rebinds > 0, "moved to another port"),
        ];
        for (_, note) in notes.into_iter().filter(|&(holds, _)| holds) {
            text.push_str(", ");
            text.push_str(note);
        }
        text
    }
}

/// A server's first line: the address it listens on.
#[derive(Debug, Serialize)]
pub(super) struct Listening {
    event: &'static str,
    address: SocketAddr,
}

impl Listening {
    pub(super) fn on(address: SocketAddr) -> Self {
        Self {
            event: "listening",
            address,
        }
    }
}

/// A connection of the server that has ended, as a JSON object on stdout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ConnectionClosed {
    event: &'static str,
    /// The client's first address.
    pub(super) remote: SocketAddr,
    /// Requests answered in full.
    pub(super) requests: u64,
    /// Requests whose client stopped reading before the end.
    pub(super) stopped: u64,
    /// Requests that were invalid or lost their connection.
    pub(super) failed: u64,
    /// Content bytes handed to the transport.
    pub(super) sent: u64,
    /// Bytes uploaded by the client.
    pub(super) received: u64,
    /// Whether the client had to validate its address first.
    pub(super) retried: bool,
    /// The QUIC version, in words.
    pub(super) version: String,
    /// Whether the handshake resumed an earlier session.
    pub(super) resumed: bool,
    /// Whether 0-RTT was accepted; null if it was not attempted.
    pub(super) zero_rtt_accepted: Option<bool>,
    /// Whether the client's last address differs from its first.
    pub(super) migrated: bool,
    /// Key updates by either side.
    pub(super) key_updates: u64,
    /// Of these, the client's.
    pub(super) peer_key_updates: u64,
    /// Why it ended, in words.
    pub(super) cause: String,
}

impl ConnectionClosed {
    /// A connection without any requests yet.
    pub(super) fn of(remote: SocketAddr) -> Self {
        Self {
            event: "closed",
            remote,
            requests: 0,
            stopped: 0,
            failed: 0,
            sent: 0,
            received: 0,
            retried: false,
            version: String::new(),
            resumed: false,
            zero_rtt_accepted: None,
            migrated: false,
            key_updates: 0,
            peer_key_updates: 0,
            cause: String::new(),
        }
    }
}

/// A server's run, as the last JSON object on stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ServeSummary {
    event: &'static str,
    /// Connections whose handshake completed.
    pub(super) connections: u64,
    /// Requests answered in full.
    pub(super) requests: u64,
    /// Requests whose client stopped reading before the end.
    pub(super) stopped: u64,
    /// Requests that were invalid or lost their connection.
    pub(super) failed: u64,
    /// Content bytes handed to the transport.
    pub(super) sent: u64,
    /// Bytes uploaded by clients.
    pub(super) received: u64,
}

impl Default for ServeSummary {
    fn default() -> Self {
        Self {
            event: "served",
            connections: 0,
            requests: 0,
            stopped: 0,
            failed: 0,
            sent: 0,
            received: 0,
        }
    }
}

impl ServeSummary {
    /// Adds a connection that has ended.
    pub(super) fn add(&mut self, closed: &ConnectionClosed) {
        self.connections += 1;
        self.requests += closed.requests;
        self.stopped += closed.stopped;
        self.failed += closed.failed;
        self.sent += closed.sent;
        self.received += closed.received;
    }
}

/// A client's run that failed, as the JSON object on stdout.
#[derive(Debug, Serialize)]
pub(super) struct FailedRun<'a> {
    peer: &'static str,
    completed: bool,
    error: &'a str,
}

impl<'a> FailedRun<'a> {
    pub(super) fn with(error: &'a str) -> Self {
        Self {
            peer: "clearway",
            completed: false,
            error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_line_mentions_only_what_happened() {
        let mut report = Download {
            peer: "clearway",
            requests: 3,
            resumed: true,
            zero_rtt_accepted: Some(false),
            ..Download::default()
        };
        let text = report.text();
        assert!(text.ends_with("resumed, 0-RTT refused"), "{text}");
        report.resumed = false;
        report.zero_rtt_accepted = None;
        assert!(report.text().ends_with("RTT 0.00 ms"));
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["peer"], "clearway");
        assert!(json["zero_rtt_accepted"].is_null());
    }
}
