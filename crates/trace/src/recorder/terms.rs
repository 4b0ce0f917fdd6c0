//! Translates the transport's terms to qlog's.

use core::fmt::Write as _;

use clearway_quic::connection::ConnectionError;
use clearway_quic::event::{ConnectionState, DropReason, LossTrigger, MigrationState};
use clearway_quic::path::ecn::EcnState;
use clearway_quic::wire::TransportParameters;

use crate::event::{Closed, Initiator, Name, Parameters};

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        let _ = write!(out, "{byte:02x}");
    }
    out
}

pub(super) const fn state(state: ConnectionState) -> &'static str {
    match state {
        ConnectionState::Attempted => "attempted",
        ConnectionState::HandshakeComplete => "handshake_complete",
        ConnectionState::HandshakeConfirmed => "handshake_confirmed",
        ConnectionState::Closing => "closing",
        ConnectionState::Draining => "draining",
        ConnectionState::Closed => "closed",
    }
}

pub(super) const fn migration(state: MigrationState) -> &'static str {
    match state {
        MigrationState::ProbingStarted => "probing_started",
        MigrationState::ProbingAbandoned => "probing_abandoned",
        MigrationState::ProbingSuccessful => "probing_successful",
        MigrationState::MigrationStarted => "migration_started",
        MigrationState::MigrationComplete => "migration_complete",
    }
}

pub(super) const fn ecn(state: EcnState) -> &'static str {
    match state {
        EcnState::Testing => "testing",
        EcnState::Unknown => "unknown",
        EcnState::Capable => "capable",
        EcnState::Failed(_) => "failed",
    }
}

pub(super) const fn drop_reason(reason: DropReason) -> &'static str {
    match reason {
        DropReason::Malformed => "invalid",
        DropReason::KeysUnavailable | DropReason::KeysDiscarded => "key_unavailable",
        DropReason::DecryptionFailed => "decryption_failure",
        DropReason::Duplicate => "duplicate",
        DropReason::Unexpected => "connection_unknown",
        DropReason::Closed => "general",
        DropReason::Overload => "rejected",
    }
}

pub(super) const fn loss_trigger(trigger: LossTrigger) -> &'static str {
    match trigger {
        LossTrigger::Reordering => "reordering_threshold",
        LossTrigger::Time => "time_threshold",
        LossTrigger::Withdrawn => "withdrawn",
    }
}

pub(super) fn closed(error: &ConnectionError) -> Closed {
    let closed = |initiator, trigger, code, application| Closed {
        initiator: Some(initiator),
        trigger: Some(Name::Borrowed(trigger)),
        code,
        application,
        reason: Some(error.to_string()),
    };
    match error {
        ConnectionError::Transport(error) => {
            closed(Initiator::Local, "error", Some(error.code.0), false)
        }
        ConnectionError::PeerTransport(error) => {
            closed(Initiator::Remote, "error", Some(error.code.0), false)
        }
        ConnectionError::PeerApplication { code, .. } => {
            closed(Initiator::Remote, "application", Some(*code), true)
        }
        ConnectionError::LocalApplication { code } => {
            closed(Initiator::Local, "application", Some(*code), true)
        }
        ConnectionError::StatelessReset => {
            closed(Initiator::Remote, "stateless_reset", None, false)
        }
        ConnectionError::IdleTimeout => closed(Initiator::Local, "idle_timeout", None, false),
        ConnectionError::HandshakeTimeout => closed(Initiator::Local, "aborted", None, false),
        ConnectionError::VersionMismatch => {
            closed(Initiator::Remote, "version_mismatch", None, false)
        }
        ConnectionError::Refused => closed(Initiator::Remote, "aborted", None, false),
        // Applications match on the error, so the transport may add kinds. The record
        // still says who ended the connection, and the reason in words.
        _ => closed(Initiator::Local, "unspecified", None, false),
    }
}

pub(crate) fn parameters(initiator: Initiator, from: &TransportParameters) -> Parameters {
    Parameters {
        initiator: Some(initiator),
        max_idle_timeout: Some(from.max_idle_timeout),
        max_udp_payload_size: Some(from.max_udp_payload_size),
        ack_delay_exponent: Some(from.ack_delay_exponent.into()),
        max_ack_delay: Some(from.max_ack_delay),
        active_connection_id_limit: Some(from.active_connection_id_limit),
        initial_max_data: Some(from.initial_max_data),
        initial_max_stream_data_bidi_local: Some(from.initial_max_stream_data_bidi_local),
        initial_max_stream_data_bidi_remote: Some(from.initial_max_stream_data_bidi_remote),
        initial_max_stream_data_uni: Some(from.initial_max_stream_data_uni),
        initial_max_streams_bidi: Some(from.initial_max_streams_bidi),
        initial_max_streams_uni: Some(from.initial_max_streams_uni),
        max_datagram_frame_size: Some(from.max_datagram_frame_size),
        disable_active_migration: Some(from.disable_active_migration),
        grease_quic_bit: Some(from.grease_quic_bit),
        reset_stream_at: Some(from.reset_stream_at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_hex() {
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
