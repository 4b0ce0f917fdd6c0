//! QUIC-LB connection IDs: what is encoded is decoded, whatever follows it, and any bytes decode to a server
//! ID of the right length or to none.
#![no_main]

use clearway_quic::cid::quic_lb::{Config, ServerId};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (
    u8,
    u8,
    u8,
    Option<[u8; 16]>,
    [u8; 15],
    [u8; 18],
    u8,
    Vec<u8>
)| {
    let (id, server_len, nonce_len, key, server, nonce, random, bytes) = input;
    let Ok(config) = Config::new(id % 8, (server_len % 17).into(), (nonce_len % 20).into()) else {
        return;
    };
    let config = match key {
        Some(key) => config.with_key(&key).expect("16 bytes"),
        None => config,
    };
    if let Some(found) = config.decode(&bytes) {
        assert_eq!(found.len(), usize::from(server_len % 17));
    }
    let Some(server) = server
        .get(..usize::from(server_len % 17))
        .and_then(ServerId::new)
    else {
        return;
    };
    let Some(nonce) = nonce.get(..usize::from(nonce_len % 20)) else {
        return;
    };
    let cid = config
        .encode(&server, nonce, random)
        .expect("lengths that fit");
    assert_eq!(cid.len(), config.cid_len());
    let followed = [&cid[..], &bytes].concat();
    assert_eq!(config.decode(&followed), Some(server));
    assert_eq!(config.decode(&cid[..cid.len() - 1]), None);
});
