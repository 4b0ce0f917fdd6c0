//! What stands for something wrong if the check of it is off.

use crate::wire::{TransportParameters, Version};

/// Streams and bytes of a client whose parameters are taken for harmless.
const HARMLESS_LIMIT: u64 = 100;
const HARMLESS_WINDOW: u64 = 1 << 20;

/// Returns what wrong transport parameters are taken for if the check of them is off.
pub(crate) fn harmless_parameters() -> TransportParameters {
    TransportParameters {
        initial_max_data: HARMLESS_WINDOW,
        initial_max_stream_data_bidi_local: HARMLESS_WINDOW,
        initial_max_stream_data_bidi_remote: HARMLESS_WINDOW,
        initial_max_stream_data_uni: HARMLESS_WINDOW,
        initial_max_streams_bidi: HARMLESS_LIMIT,
        initial_max_streams_uni: HARMLESS_LIMIT,
        ..TransportParameters::default()
    }
}

/// Returns a datagram whose first packet, which has a long header, is of another version.
pub(crate) fn with_version(datagram: &[u8], version: Version) -> Vec<u8> {
    let mut renamed = datagram.to_vec();
    if let Some(bytes) = renamed.get_mut(1..5) {
        bytes.copy_from_slice(&version.0.to_be_bytes());
    }
    renamed
}
