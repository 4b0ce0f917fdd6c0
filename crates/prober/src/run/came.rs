//! What came, in words.

use super::Session;
use crate::raw::RawConnection;
use crate::wire::codes::{ErrorCode, ErrorSpace};

impl Session<'_> {
    /// Returns what came, as one phrase.
    pub(crate) fn came(&self) -> String {
        let observed = &self.observed;
        let mut parts = Vec::new();
        if let Some(closed) = &observed.closed {
            let mut text = format!("connection closed with {}", closed.code);
            if closed.level != crate::wire::packet::Level::OneRtt {
                text = format!("{text} in {} packet", closed.level.name());
            }
            if let Some(kind) = closed.frame_type.filter(|kind| *kind != 0) {
                text = format!("{text}, frame type {kind:#x}");
            }
            if !closed.reason.is_empty() {
                text = format!("{text}: {:?}", closed.reason);
            }
            parts.push(text);
        }
        if let Some(received) = &observed.version_negotiation {
            let versions: Vec<_> = received
                .versions
                .iter()
                .map(|v| format!("{v:#x}"))
                .collect();
            parts.push(format!("Version Negotiation with {}", versions.join(", ")));
        }
        if observed.stateless_reset == Some(true) {
            parts.push("stateless reset".to_owned());
        }
        if observed.retries > 0 && observed.closed.is_none() && !observed.handshake_done {
            parts.push("Retry".to_owned());
        }
        if observed.refused {
            parts.push("nobody listens on the port (ICMP)".to_owned());
        }
        parts.extend(self.resets());
        for (name, status) in self.statuses() {
            parts.push(format!("status {status} on stream {name:?}"));
        }
        if observed.closed.is_none() {
            self.quieter_parts(&mut parts);
        }
        match parts.is_empty() {
            true => "nothing".to_owned(),
            false => parts.join("; "),
        }
    }

    fn resets(&self) -> impl Iterator<Item = String> {
        self.observed.resets.iter().map(|reset| {
            let code = ErrorCode {
                space: ErrorSpace::Application,
                code: reset.code,
            };
            let what = match reset.stop {
                true => "STOP_SENDING",
                false => "RESET_STREAM",
            };
            match self.stream_name(reset.stream) {
                Some(name) => format!("{what} of stream {name:?} with {code}"),
                None => format!("{what} of stream {} with {code}", reset.stream),
            }
        })
    }

    fn quieter_parts(&self, parts: &mut Vec<String>) {
        let observed = &self.observed;
        let sent = self.last_datagram.as_ref().map_or(0, |(sent, _, _)| *sent);
        match observed.undecryptable.as_slice() {
            [] => {}
            [size] => parts.push(format!(
                "a datagram of {size} bytes that cannot be decrypted (sent: {sent})"
            )),
            [first, ..] => parts.push(format!(
                "{} datagrams that cannot be decrypted, the first of {first} bytes (sent: {sent})",
                observed.undecryptable.len()
            )),
        }
        if self.bytes_sent > 0 && !observed.handshake_done && observed.bytes > 0 {
            parts.push(format!(
                "{} bytes received for {} sent",
                observed.bytes, self.bytes_sent
            ));
        }
        let Some(raw) = &self.raw else { return };
        if let Some(failure) = raw.tls().failure() {
            parts.push(format!("TLS failed on our side: {failure}"));
        } else if raw.hold_tls && raw.has_server_hello() {
            parts.push("the server answered the ClientHello with TLS messages".to_owned());
        }
        let frames = observed.frame_names();
        if !frames.is_empty() {
            parts.push(format!("frames since the last step: {}", frames.join(", ")));
        }
        if raw.peer_key_updates() > 0 {
            parts.push("the server updated its keys".to_owned());
        }
        parts.push(match RawConnection::is_acked(raw) {
            true => "everything was acknowledged".to_owned(),
            false => "not everything was acknowledged".to_owned(),
        });
    }
}
