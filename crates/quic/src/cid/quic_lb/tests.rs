use core::time::Duration;
use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::cid::generator::{CidGenerator, ShardGenerator, ShardKey, shard_of};
use crate::rng::Rng;

const KEY: &str = "8f95f09245765f80256934e50c66207f";

fn hex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

/// Checks a vector of appendix B: config ID, server ID, nonce, connection ID.
fn check_vector(id: u8, server: &str, nonce: &str, cid: &str, key: Option<&str>) {
    let (server, nonce, cid) = (hex(server), hex(nonce), hex(cid));
    let mut config = Config::new(id, server.len(), nonce.len())
        .unwrap()
        .with_encoded_len();
    if let Some(key) = key {
        config = config.with_key(&hex(key).try_into().unwrap()).unwrap();
    }
    let server = ServerId::new(&server).unwrap();
    assert_eq!(config.is_encrypted(), key.is_some());
    let encoded = config.encode(&server, &nonce, 0xff).unwrap();
    assert_eq!(*encoded, *cid);
    assert_eq!(config.decode(&cid), Some(server));
    // As a short header has it: the packet goes on.
    assert_eq!(config.decode(&[&cid[..], &[9; 40]].concat()), Some(server));
    assert_eq!(config.decode(&cid[..cid.len() - 1]), None);
}

/// The draft prints the nonce of the second vector without its leading zero, and a zero too many
/// and too few in its connection ID.
#[test]
fn plaintext_vectors_of_draft() {
    check_vector(0, "c4605e", "4504cc4f", "07c4605e4504cc4f", None);
    check_vector(
        1,
        "350d28b420",
        "03487d970b",
        "2a350d28b42003487d970b",
        None,
    );
}

/// The draft prints the first octet of the fourth vector with the bits of config 0: with those of
/// config 3 it is 72.
#[test]
fn encrypted_vectors_of_draft() {
    let key = Some(KEY);
    check_vector(0, "ed793a", "ee080dbf", "0720b1d07b359d3c", key);
    let cid = "2fcc381bc74cb4fbad2823a3d1f8fed2";
    check_vector(1, "ed793a51d49b8f5fab65", "ee080dbf48", cid, key);
    let cid = "504dd2d05a7b0de9b2b9907afb5ecf8cc3";
    check_vector(2, "ed793a51d49b8f5f", "ee080dbf48c0d1e5", cid, key);
    let cid = "725779c9cc86beb3a3a4a3ca96fce4bfe0cdbc";
    check_vector(3, "ed793a51d49b8f5fab", "ee080dbf48c0d1e55d", cid, key);
}

#[test]
fn values_out_of_range_are_rejected() {
    assert_eq!(
        Config::new(7, 4, 4).unwrap_err(),
        ConfigError::ConfigId(UNROUTABLE)
    );
    assert_eq!(Config::new(0, 0, 4).unwrap_err(), ConfigError::ServerIdLen);
    assert_eq!(Config::new(0, 1, 3).unwrap_err(), ConfigError::NonceLen(3));
    assert_eq!(Config::new(0, 16, 4).unwrap_err(), ConfigError::TooLong(20));
    assert!(Config::new(6, 15, 4).is_ok());
    assert!(Config::new(6, 1, 18).is_ok());
    assert!(ServerId::new(&[]).is_none());
    assert!(ServerId::new(&[1; 16]).is_none());
}

#[test]
fn server_id_and_nonce_of_other_lengths_are_not_encoded() {
    let config = Config::new(0, 2, 6).unwrap();
    let server = ServerId::new(&[1, 2]).unwrap();
    assert!(config.encode(&server, &[0; 5], 0).is_none());
    assert!(
        config
            .encode(&ServerId::new(&[1]).unwrap(), &[0; 6], 0)
            .is_none()
    );
    assert!(config.encode(&server, &[0; 6], 0).is_some());
}

proptest! {
    /// Every length, with and without a key, one pass and four: the property holds for all 120
    /// pairs of lengths in each case.
    #[test]
    fn decoding_returns_encoded_server_id(
        key in any::<[u8; 16]>(), server in any::<[u8; 15]>(), nonce in any::<[u8; 18]>(),
        id in 0_u8..7, random in any::<u8>(), tail in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        for server_len in 1..=15 {
            for nonce_len in 4..=19 - server_len {
                let plain = Config::new(id, server_len, nonce_len).unwrap();
                let encrypted = plain.clone().with_key(&key).unwrap();
                let server = ServerId::new(&server[..server_len]).unwrap();
                for config in [plain, encrypted] {
                    let cid = config.encode(&server, &nonce[..nonce_len], random).unwrap();
                    prop_assert_eq!(cid.len(), config.cid_len());
                    prop_assert_eq!(cid[0], id << 5 | random & 0x1f);
                    prop_assert_eq!(config.decode(&cid), Some(server));
                    let longer = [&cid[..], &tail].concat();
                    prop_assert_eq!(config.decode(&longer), Some(server));
                    let other = Config::new((id + 1) % 7, server_len, nonce_len).unwrap();
                    prop_assert_eq!(other.decode(&cid), None);
                }
            }
        }
    }

    #[test]
    fn decoding_arbitrary_bytes_does_not_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..30), server_len in 1_usize..16,
        nonce_len in 4_usize..19, key in any::<[u8; 16]>(),
    ) {
        prop_assume!(server_len + nonce_len <= 19);
        for id in 0..7 {
            let config = Config::new(id, server_len, nonce_len).unwrap();
            let config = config.with_key(&key).unwrap();
            let fits = bytes.len() >= config.cid_len() && config.matches(bytes[0]);
            prop_assert_eq!(config.decode(&bytes).is_some(), fits);
        }
    }
}

fn rng() -> Rng {
    Rng::from_seed([9; 32])
}

#[test]
fn server_without_configuration_generates_unroutable_cids_with_their_length() {
    let mut rng = rng();
    let mut generator = Generator::new(Arc::new(Server::unconfigured(None)));
    let cid = generator.generate(&mut rng);
    assert_eq!(cid[0] >> 5, UNROUTABLE);
    assert_eq!(usize::from(cid[0] & LOW_BITS), cid.len() - 1);
    assert_eq!(generator.cid_len(), cid.len());
    assert_eq!(generator.cid_lengths().of(cid[0]), cid.len());
}

#[test]
fn rotation_changes_new_cids_and_keeps_lengths_of_old_ones() {
    let mut rng = rng();
    let server = Arc::new(Server::unconfigured(Some(Duration::from_secs(60))));
    let mut generator = Generator::new(server.clone());
    let id = ServerId::new(&[4, 2]).unwrap();
    let old = Config::new(0, 2, 6).unwrap().with_key(&[1; 16]).unwrap();
    let new = Config::new(1, 2, 10).unwrap().with_key(&[2; 16]).unwrap();

    server.configure(&old, id, [], &mut rng).unwrap();
    let generation = generator.generation();
    let first = generator.generate(&mut rng);
    assert_eq!(old.decode(&first), Some(id));
    assert_eq!(generator.cid_lengths().shortest(), 9);

    server.configure(&new, id, [&old], &mut rng).unwrap();
    assert_ne!(generator.generation(), generation);
    let second = generator.generate(&mut rng);
    assert_eq!(new.decode(&second), Some(id));
    let lengths = generator.cid_lengths();
    assert_eq!((lengths.of(first[0]), lengths.of(second[0])), (9, 13));
    assert_eq!(generator.lifetime(), Some(Duration::from_secs(60)));
}

#[test]
fn config_id_reused_with_other_length_is_rejected_and_changes_nothing() {
    let mut rng = rng();
    let server = Arc::new(Server::unconfigured(None));
    let id = ServerId::new(&[4]).unwrap();
    let old = Config::new(3, 1, 7).unwrap();
    server.configure(&old, id, [], &mut rng).unwrap();
    let generation = Generator::new(server.clone()).generation();
    let other = Config::new(3, 1, 8).unwrap();
    let error = ConfigError::Reused {
        config: 3,
        used: 9,
        found: 10,
    };
    assert_eq!(server.configure(&other, id, [], &mut rng), Err(error));
    let long = ServerId::new(&[4, 4]).unwrap();
    assert!(matches!(
        server.configure(&old, long, [], &mut rng),
        Err(ConfigError::ServerId { .. })
    ));
    let mut generator = Generator::new(server);
    assert_eq!(generator.generation(), generation);
    assert_eq!(old.decode(&generator.generate(&mut rng)), Some(id));
}

#[test]
fn generated_cids_are_unique_and_steer_to_their_shard() {
    let mut rng = rng();
    let key = ShardKey::new(&mut rng);
    for config in [
        Config::new(0, 1, 6).unwrap(),
        Config::new(1, 3, 4).unwrap().with_key(&[5; 16]).unwrap(),
        Config::new(2, 8, 8).unwrap().with_key(&[5; 16]).unwrap(),
        Config::new(3, 15, 4).unwrap().with_key(&[5; 16]).unwrap(),
    ] {
        let id = ServerId::new(&[7; 15][..config.server_id_len()]).unwrap();
        let server = Arc::new(Server::unconfigured(None));
        server.configure(&config, id, [], &mut rng).unwrap();
        let mut seen = HashSet::new();
        for shard in 0..4 {
            let inner = Generator::new(server.clone());
            let mut generator = ShardGenerator::new(inner, key, 4, shard).unwrap();
            for _ in 0..100 {
                let cid = generator.generate(&mut rng);
                assert_eq!(shard_of(&cid, &key, 4), shard);
                assert_eq!(config.decode(&cid), Some(id));
                assert!(seen.insert(cid));
            }
        }
    }
}
