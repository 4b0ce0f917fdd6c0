//! The parameters of a server that a client remembers for 0-RTT (RFC 9000 §7.4.1).

use super::TransportParameters;
use crate::error::{Code, TransportError};

impl TransportParameters {
    /// Returns the parameters that a client stores with a session ticket and applies to 0-RTT:
    /// everything except what describes one connection or must not be remembered
    /// (RFC 9000 §7.4.1, RFC 9287 §3.1, ACK frequency §3).
    #[must_use]
    pub fn remembered_for_0rtt(&self) -> Self {
        Self {
            max_idle_timeout: self.max_idle_timeout,
            max_udp_payload_size: self.max_udp_payload_size,
            initial_max_data: self.initial_max_data,
            initial_max_stream_data_bidi_local: self.initial_max_stream_data_bidi_local,
            initial_max_stream_data_bidi_remote: self.initial_max_stream_data_bidi_remote,
            initial_max_stream_data_uni: self.initial_max_stream_data_uni,
            initial_max_streams_bidi: self.initial_max_streams_bidi,
            initial_max_streams_uni: self.initial_max_streams_uni,
            disable_active_migration: self.disable_active_migration,
            active_connection_id_limit: self.active_connection_id_limit,
            max_datagram_frame_size: self.max_datagram_frame_size,
            ..Self::default()
        }
    }

    /// Checks that these parameters, from a server that has accepted 0-RTT, reduce none of the
    /// `remembered` ones. A server makes the same check before it accepts 0-RTT.
    ///
    /// # Errors
    /// PROTOCOL_VIOLATION (RFC 9000 §7.4.1, RFC 9221 §3).
    pub fn check_not_reduced(&self, remembered: &Self) -> Result<(), TransportError> {
        let limits = |p: &Self| {
            [
                p.active_connection_id_limit,
                p.initial_max_data,
                p.initial_max_stream_data_bidi_local,
                p.initial_max_stream_data_bidi_remote,
                p.initial_max_stream_data_uni,
                p.initial_max_streams_bidi,
                p.initial_max_streams_uni,
                p.max_datagram_frame_size,
            ]
        };
        let reduced = limits(self)
            .into_iter()
            .zip(limits(remembered))
            .any(|(new, old)| new < old);
        if reduced {
            return Err(TransportError::new(
                Code::PROTOCOL_VIOLATION,
                "server accepted 0-RTT but reduced a limit",
            ));
        }
        Ok(())
    }
}
