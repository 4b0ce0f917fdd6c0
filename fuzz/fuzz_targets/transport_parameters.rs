//! Transport parameters: decoded parameters round-trip.
#![no_main]

use clearway_quic::Role;
use clearway_quic::wire::TransportParameters;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for sender in [Role::Client, Role::Server] {
        let Ok(parameters) = TransportParameters::decode(data, sender) else {
            continue;
        };
        assert!(parameters.ack_delay_exponent <= 20);
        assert!(parameters.max_ack_delay < 1 << 14);
        assert!(parameters.active_connection_id_limit >= 2);
        assert!(parameters.max_udp_payload_size >= 1200);
        let mut out = Vec::new();
        parameters.encode(&mut out, None);
        let again = TransportParameters::decode(&out, sender).expect("our own encoding");
        assert_eq!(format!("{again:?}"), format!("{parameters:?}"));
        let _ = parameters.check_not_reduced(&parameters.remembered_for_0rtt());
    }
});
