//! Reading and checking the peer's parameters.

use smallvec::SmallVec;

use super::{
    MAX_ACK_DELAY_EXPONENT, MAX_ACK_DELAY_LIMIT, MIN_ACTIVE_CONNECTION_ID_LIMIT, PreferredAddress,
    TransportParameters, VersionInformation, id, invalid,
};
use crate::Role;
use crate::cid::{ConnectionId, ResetToken};
use crate::error::TransportError;
use crate::wire::stream_id::MAX_STREAM_COUNT;
use crate::wire::{MIN_MTU, Reader};

impl TransportParameters {
    /// Reads the TLS extension with the parameters of `sender`. Unknown parameters are ignored.
    ///
    /// # Errors
    /// TRANSPORT_PARAMETER_ERROR if it is malformed, repeats a parameter, or contains an invalid value
    /// or one that a client may not send (RFC 9000 §7.4, §18.2).
    /// `TransportParameters::authenticate` checks the connection IDs.
    pub fn decode(bytes: &[u8], sender: Role) -> Result<Self, TransportError> {
        let mut parameters = Self::default();
        let mut seen = SmallVec::<[u64; 32]>::new();
        let mut r = Reader::new(bytes);
        while !r.is_empty() {
            let (id, value) = r
                .varint()
                .and_then(|id| Some((id, r.prefixed()?)))
                .ok_or_else(|| invalid("transport parameters truncated"))?;
            if sender == Role::Client && id::is_server_only(id) {
                return Err(invalid(
                    "client sent a transport parameter that only a server may send",
                ));
            }
            parameters.set(id, value, sender)?;
            seen.push(id);
        }
        // Sorting keeps a long list of unknown parameters from costing its square.
        seen.sort_unstable();
        if seen.iter().zip(seen.iter().skip(1)).any(|(a, b)| a == b) {
            return Err(invalid("transport parameter sent twice"));
        }
        parameters.check_together()?;
        Ok(parameters)
    }

    fn set(&mut self, id: u64, value: &[u8], sender: Role) -> Result<(), TransportError> {
        match id {
            id::ORIGINAL_DESTINATION_CONNECTION_ID => {
                self.original_destination_connection_id = Some(connection_id(value)?);
            }
            id::MAX_IDLE_TIMEOUT => self.max_idle_timeout = integer(value)?,
            id::STATELESS_RESET_TOKEN => self.stateless_reset_token = Some(reset_token(value)?),
            id::MAX_UDP_PAYLOAD_SIZE => {
                self.max_udp_payload_size = at_least(value, MIN_MTU.into())?;
            }
            id::INITIAL_MAX_DATA => self.initial_max_data = integer(value)?,
            id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL => {
                self.initial_max_stream_data_bidi_local = integer(value)?;
            }
            id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE => {
                self.initial_max_stream_data_bidi_remote = integer(value)?;
            }
            id::INITIAL_MAX_STREAM_DATA_UNI => self.initial_max_stream_data_uni = integer(value)?,
            id::INITIAL_MAX_STREAMS_BIDI => {
                self.initial_max_streams_bidi = at_most(value, MAX_STREAM_COUNT)?;
            }
            id::INITIAL_MAX_STREAMS_UNI => {
                self.initial_max_streams_uni = at_most(value, MAX_STREAM_COUNT)?;
            }
            id::ACK_DELAY_EXPONENT => {
                self.ack_delay_exponent = at_most(value, u64::from(MAX_ACK_DELAY_EXPONENT))? as u8;
            }
            id::MAX_ACK_DELAY => self.max_ack_delay = at_most(value, MAX_ACK_DELAY_LIMIT - 1)?,
            id::DISABLE_ACTIVE_MIGRATION => self.disable_active_migration = flag(value)?,
            id::PREFERRED_ADDRESS => {
                let address = PreferredAddress::decode(value);
                self.preferred_address =
                    Some(address.ok_or_else(|| invalid("malformed preferred_address"))?);
            }
            id::ACTIVE_CONNECTION_ID_LIMIT => {
                self.active_connection_id_limit = at_least(value, MIN_ACTIVE_CONNECTION_ID_LIMIT)?;
            }
            id::INITIAL_SOURCE_CONNECTION_ID => {
                self.initial_source_connection_id = Some(connection_id(value)?);
            }
            id::RETRY_SOURCE_CONNECTION_ID => {
                self.retry_source_connection_id = Some(connection_id(value)?);
            }
            id::VERSION_INFORMATION => {
                let information = VersionInformation::decode(value, sender);
                self.version_information =
                    Some(information.ok_or_else(|| invalid("malformed version_information"))?);
            }
            id::MAX_DATAGRAM_FRAME_SIZE => self.max_datagram_frame_size = integer(value)?,
            id::GREASE_QUIC_BIT => self.grease_quic_bit = flag(value)?,
            id::RESET_STREAM_AT | id::RESET_STREAM_AT_07 => self.reset_stream_at = flag(value)?,
            id::MIN_ACK_DELAY => self.min_ack_delay = Some(integer(value)?),
            _ => {}
        }
        Ok(())
    }

    /// Checks rules that involve more than one parameter.
    fn check_together(&self) -> Result<(), TransportError> {
        if self
            .min_ack_delay
            .is_some_and(|micros| micros > self.max_ack_delay.saturating_mul(1000))
        {
            return Err(invalid("min_ack_delay above max_ack_delay"));
        }
        let anonymous = |cid: ConnectionId| cid.is_empty();
        if self.preferred_address.is_some()
            && self.initial_source_connection_id.is_some_and(anonymous)
        {
            return Err(invalid(
                "preferred_address from a server without connection IDs",
            ));
        }
        Ok(())
    }
}

/// Reads a value that is one variable-length integer.
fn integer(value: &[u8]) -> Result<u64, TransportError> {
    let mut r = Reader::new(value);
    r.varint()
        .filter(|_| r.is_empty())
        .ok_or_else(|| invalid("transport parameter is not an integer"))
}

fn at_least(value: &[u8], min: u64) -> Result<u64, TransportError> {
    let value = integer(value)?;
    if value < min {
        return Err(invalid("transport parameter below its minimum"));
    }
    Ok(value)
}

fn at_most(value: &[u8], max: u64) -> Result<u64, TransportError> {
    let value = integer(value)?;
    if value > max {
        return Err(invalid("transport parameter above its maximum"));
    }
    Ok(value)
}

/// Reads a parameter without a value, whose presence means true.
fn flag(value: &[u8]) -> Result<bool, TransportError> {
    if value.is_empty() {
        Ok(true)
    } else {
        Err(invalid("transport parameter must be empty"))
    }
}

fn connection_id(value: &[u8]) -> Result<ConnectionId, TransportError> {
    ConnectionId::new(value).ok_or_else(|| invalid("connection ID longer than 20 bytes"))
}

fn reset_token(value: &[u8]) -> Result<ResetToken, TransportError> {
    let token = value.try_into();
    token
        .map(ResetToken)
        .map_err(|_| invalid("stateless_reset_token is not 16 bytes long"))
}
