//! Writing our parameters.

use super::{
    DEFAULT_ACK_DELAY_EXPONENT, DEFAULT_MAX_ACK_DELAY, MAX_UDP_PAYLOAD,
    MIN_ACTIVE_CONNECTION_ID_LIMIT, PreferredAddress, TransportParameters, id,
};
use crate::wire::Writer;
use crate::wire::cursor::VARINT_MAX;

impl TransportParameters {
    /// Appends the extension for the TLS handshake. Default values are omitted, and values over
    /// 2^62 - 1 are sent as 2^62 - 1. With `grease`, which is random, a reserved parameter of up to 8
    /// bytes is added, which peers have to ignore (RFC 9000 §18.1).
    pub fn encode(&self, out: &mut Vec<u8>, grease: Option<[u64; 2]>) {
        self.encode_integers(out);
        self.encode_values(out);
        if let Some([identifier, value]) = grease {
            let value = value.to_be_bytes();
            let len = usize::from(value[0] % 9);
            parameter(
                out,
                id::reserved(identifier),
                value.get(..len).unwrap_or_default(),
            );
        }
    }

    fn encode_integers(&self, out: &mut Vec<u8>) {
        let integers = [
            (id::MAX_IDLE_TIMEOUT, self.max_idle_timeout, 0),
            (
                id::MAX_UDP_PAYLOAD_SIZE,
                self.max_udp_payload_size,
                MAX_UDP_PAYLOAD,
            ),
            (id::INITIAL_MAX_DATA, self.initial_max_data, 0),
            (
                id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL,
                self.initial_max_stream_data_bidi_local,
                0,
            ),
            (
                id::INITIAL_MAX_STREAM_DATA_BIDI_REMOTE,
                self.initial_max_stream_data_bidi_remote,
                0,
            ),
            (
                id::INITIAL_MAX_STREAM_DATA_UNI,
                self.initial_max_stream_data_uni,
                0,
            ),
            (
                id::INITIAL_MAX_STREAMS_BIDI,
                self.initial_max_streams_bidi,
                0,
            ),
            (id::INITIAL_MAX_STREAMS_UNI, self.initial_max_streams_uni, 0),
            (
                id::ACK_DELAY_EXPONENT,
                u64::from(self.ack_delay_exponent),
                u64::from(DEFAULT_ACK_DELAY_EXPONENT),
            ),
            (id::MAX_ACK_DELAY, self.max_ack_delay, DEFAULT_MAX_ACK_DELAY),
            (
                id::ACTIVE_CONNECTION_ID_LIMIT,
                self.active_connection_id_limit,
                MIN_ACTIVE_CONNECTION_ID_LIMIT,
            ),
            (id::MAX_DATAGRAM_FRAME_SIZE, self.max_datagram_frame_size, 0),
        ];
        for (id, value, default) in integers {
            if value != default {
                integer(out, id, value);
            }
        }
        if let Some(micros) = self.min_ack_delay {
            integer(out, id::MIN_ACK_DELAY, micros);
        }
    }

    fn encode_values(&self, out: &mut Vec<u8>) {
        let cids = [
            (
                id::ORIGINAL_DESTINATION_CONNECTION_ID,
                &self.original_destination_connection_id,
            ),
            (
                id::INITIAL_SOURCE_CONNECTION_ID,
                &self.initial_source_connection_id,
            ),
            (
                id::RETRY_SOURCE_CONNECTION_ID,
                &self.retry_source_connection_id,
            ),
        ];
        for (id, cid) in cids {
            if let Some(cid) = cid {
                parameter(out, id, cid);
            }
        }
        let flags = [
            (id::DISABLE_ACTIVE_MIGRATION, self.disable_active_migration),
            (id::GREASE_QUIC_BIT, self.grease_quic_bit),
            (id::RESET_STREAM_AT, self.reset_stream_at),
            (id::RESET_STREAM_AT_07, self.reset_stream_at),
        ];
        for (id, set) in flags {
            if set {
                parameter(out, id, &[]);
            }
        }
        if let Some(token) = &self.stateless_reset_token {
            parameter(out, id::STATELESS_RESET_TOKEN, &token.0);
        }
        if let Some(address) = &self.preferred_address {
            let mut buffer = [0; PreferredAddress::MAX_SIZE];
            let mut w = Writer::new(&mut buffer);
            address.encode(&mut w);
            parameter(out, id::PREFERRED_ADDRESS, w.filled());
        }
        if let Some(information) = &self.version_information {
            let words = information.words();
            let value: Vec<u8> = words.flat_map(|version| version.0.to_be_bytes()).collect();
            parameter(out, id::VERSION_INFORMATION, &value);
        }
    }
}

fn varint(out: &mut Vec<u8>, value: u64) {
    let mut buffer = [0; 8];
    let mut w = Writer::new(&mut buffer);
    w.varint(value);
    out.extend_from_slice(w.filled());
}

fn parameter(out: &mut Vec<u8>, id: u64, value: &[u8]) {
    varint(out, id);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

fn integer(out: &mut Vec<u8>, id: u64, value: u64) {
    let mut buffer = [0; 8];
    let mut w = Writer::new(&mut buffer);
    w.varint(value.min(VARINT_MAX));
    parameter(out, id, w.filled());
}
