//! What `clearway raw` says about its run.

use core::net::SocketAddr;

use serde::Serialize;

/// A client's run, as the JSON object on stdout.
#[derive(Debug, Default, Serialize)]
pub(super) struct Download {
    /// Who speaks: for tables that hold other stacks too.
    pub(super) peer: &'static str,
    /// Everything asked for was done; a run that failed says why instead.
    pub(super) completed: bool,
    /// Content received and found right, over both connections if one resumes
    /// another.
    pub(super) bytes: u64,
    /// Bytes uploaded behind the requests.
    pub(super) uploaded: u64,
    /// From the first request to the last byte.
    pub(super) seconds: f64,
    /// Gigabits (10⁹) of content per second.
    pub(super) gbps: f64,
    /// Requests answered in full.
    pub(super) requests: u64,
    /// From the first datagram to a complete handshake.
    pub(super) handshake_ms: f64,
    /// The measured connection resumed an earlier one.
    pub(super) resumed: bool,
    /// The server took the requests sent in 0-RTT; null if there were none.
    pub(super) zero_rtt_accepted: Option<bool>,
    /// Key updates, either side's.
    pub(super) key_updates: u64,
    /// Times the client moved to another port.
    pub(super) rebinds: u64,
    /// Packets of the client's declared lost.
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

/// A server's first line: where it listens.
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

/// A connection of the server's that is over, as a JSON object on stdout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Closed {
    event: &'static str,
    /// The client's first address.
    pub(super) remote: SocketAddr,
    /// Requests answered in full.
    pub(super) requests: u64,
    /// Requests whose client had enough before the end.
    pub(super) stopped: u64,
    /// Requests that made no sense or lost their connection.
    pub(super) failed: u64,
    /// Content bytes handed to the transport.
    pub(super) sent: u64,
    /// Bytes uploaded to us.
    pub(super) received: u64,
    /// The client had to prove its address first.
    pub(super) retried: bool,
    /// The handshake resumed an earlier session.
    pub(super) resumed: bool,
    /// 0-RTT was taken; null if there was none to take.
    pub(super) zero_rtt_accepted: Option<bool>,
    /// The client's last address is not its first.
    pub(super) migrated: bool,
    /// Key updates, either side's.
    pub(super) key_updates: u64,
    /// Of those, the client's.
    pub(super) peer_key_updates: u64,
    /// Why it ended, in words.
    pub(super) cause: String,
}

impl Closed {
    /// A connection of which nothing else is known yet.
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
pub(super) struct Served {
    event: &'static str,
    /// Connections whose handshake completed.
    pub(super) connections: u64,
    /// Requests answered in full.
    pub(super) requests: u64,
    /// Requests whose client had enough before the end.
    pub(super) stopped: u64,
    /// Requests that made no sense or lost their connection.
    pub(super) failed: u64,
    /// Content bytes handed to the transport.
    pub(super) sent: u64,
    /// Bytes uploaded to us.
    pub(super) received: u64,
}

impl Default for Served {
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

impl Served {
    /// Counts a connection that is over.
    pub(super) fn add(&mut self, closed: &Closed) {
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
pub(super) struct Failed<'a> {
    peer: &'static str,
    completed: bool,
    error: &'a str,
}

impl<'a> Failed<'a> {
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
    fn what_happened_is_said_and_nothing_else() {
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
