//! What a run says of itself: one JSON object a line, in the words every peer shares.

use serde::Serialize;

/// The stack's name in every object.
pub(crate) const PEER: &str = "quinn";

/// What a client's run moved and saw.
#[derive(Debug, Serialize)]
pub(crate) struct Run {
    /// [`PEER`].
    pub(crate) peer: &'static str,
    /// Bytes downloaded and verified, on all connections.
    pub(crate) bytes: u64,
    /// Bytes uploaded, on all connections.
    pub(crate) uploaded: u64,
    /// Time the transfers took, without the handshakes that came before them.
    pub(crate) seconds: f64,
    /// Downloaded Gbit/s.
    pub(crate) gbps: f64,
    /// Requests answered, or cut short by the clock of a timed run.
    pub(crate) requests: u64,
    /// Whether the second connection resumed the first's session; null without one.
    pub(crate) resumed: Option<bool>,
    /// Whether the server took the second connection's early data; null if none was asked for.
    pub(crate) zero_rtt_accepted: Option<bool>,
    /// Whether the last connection went through a Retry.
    pub(crate) retried: bool,
    /// Key updates on the last connection, by either side. quinn starts one by itself, at a
    /// random packet among its first thousand.
    pub(crate) key_updates: u64,
}

impl Run {
    /// One line for a person.
    pub(crate) fn sentence(&self) -> String {
        let mut line = format!(
            "{} bytes in {} requests, {:.3} s, {:.3} Gbit/s",
            self.bytes, self.requests, self.seconds, self.gbps
        );
        let facts = [
            (self.retried, "after a Retry".to_owned()),
            (
                self.key_updates > 0,
                format!("{} key updates", self.key_updates),
            ),
            (self.resumed == Some(true), "resumed".to_owned()),
            (self.resumed == Some(false), "not resumed".to_owned()),
            (
                self.zero_rtt_accepted == Some(true),
                "0-RTT accepted".to_owned(),
            ),
            (
                self.zero_rtt_accepted == Some(false),
                "0-RTT not accepted".to_owned(),
            ),
        ];
        for (_, words) in facts.iter().filter(|(holds, _)| *holds) {
            line.push_str(", ");
            line.push_str(words);
        }
        line
    }
}

/// What a server saw of one connection, said when it is closed.
#[derive(Debug, Serialize)]
pub(crate) struct Closed {
    /// [`PEER`].
    pub(crate) peer: &'static str,
    /// Always `closed`.
    pub(crate) event: &'static str,
    /// The client's last address.
    pub(crate) remote: String,
    /// Answer bytes handed to the transport.
    pub(crate) sent: u64,
    /// Upload bytes received.
    pub(crate) received: u64,
    /// Requests read to their end.
    pub(crate) requests: u64,
    /// Whether the client came with a Retry token.
    pub(crate) retried: bool,
    /// Whether early data was accepted.
    pub(crate) zero_rtt_accepted: bool,
    /// Whether the client's last address is not its first.
    pub(crate) migrated: bool,
    /// Key updates, by either side; see [`Run::key_updates`].
    pub(crate) key_updates: u64,
    /// Those of them the client started.
    pub(crate) peer_key_updates: u64,
    /// Why it was closed.
    pub(crate) cause: String,
}
