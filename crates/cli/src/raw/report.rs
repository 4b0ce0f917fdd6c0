//! What `clearway raw` says about its run.

use serde::Serialize;

/// A client's run, as the JSON object on stdout.
#[derive(Debug, Default, Serialize)]
pub(super) struct Download {
    /// Who speaks: for tables that hold other stacks too.
    pub(super) peer: &'static str,
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

/// A server's run, as the JSON object on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Served {
    /// Connections whose handshake completed.
    pub(super) connections: u64,
    /// Requests answered in full.
    pub(super) requests: u64,
    /// Requests whose client had enough before the end.
    pub(super) stopped: u64,
    /// Requests that made no sense or lost their connection.
    pub(super) failed: u64,
    /// Content bytes handed to the transport.
    pub(super) bytes: u64,
    /// Bytes uploaded to us.
    pub(super) uploaded: u64,
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
