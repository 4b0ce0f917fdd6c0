use super::*;
use crate::Role;
use crate::crypto::header_key::HeaderKey;
use crate::crypto::initial_keys;
use crate::crypto::packet_key::PacketKey as OurPacketKey;
use crate::crypto::suite::Suite;
use crate::crypto::testing::{appendix_a_dcid, hex};
use crate::wire::Version;
use proptest::prelude::*;

fn direction(suite: Suite, key: &[u8], iv: &[u8], header: &[u8]) -> Direction {
    Direction {
        header: Box::new(HeaderKey::new(suite, header)),
        packet: Box::new(OurPacketKey::new(suite, key, iv.try_into().unwrap())),
    }
}

fn packet(header: &[u8], payload: &[u8]) -> Vec<u8> {
    [header, payload, &[0; TAG_LEN]].concat()
}

/// The payload of the client's Initial packet: RFC 9369 §A.2 takes that of RFC 9001 §A.2.
fn client_hello() -> Vec<u8> {
    let mut payload = hex(
        "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e868
         04fe3a47f06a2b69484c00000413011302010000c000000010000e00000b6578
         616d706c652e636f6dff01000100000a00080006001d00170018001000070005
         04616c706e000500050100000000003300260024001d00209370b2c9caa47fba
         baf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b000302030400
         0d0010000e0403050306030203080408050806002d00020101001c0002400100
         3900320408ffffffffffffffff05048000ffff07048000ffff08011001048000
         75300901100f088394c8f03e51570806048000ffff",
    );
    payload.resize(1162, 0);
    payload
}

/// RFC 9001 §A.2.
#[test]
fn client_initial_matches_rfc9001_appendix_a() {
    let header = hex("c300000001088394c8f03e5157080000449e00000002");
    let payload = client_hello();
    let mut sealed = packet(&header, &payload);
    let client = initial_keys(Version::V1, &appendix_a_dcid(), Role::Client);
    client.local.seal(2, &mut sealed, 22, 4).unwrap();
    assert_eq!(sealed.len(), 1200);
    assert_eq!(
        sealed[..48],
        hex(
            "c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11
             d242b123dc9bd8bab936b47d92ec356c"
        )[..]
    );
    assert_eq!(
        sealed[1200 - 16..],
        hex("e221af44860018ab0856972e194cd934")[..]
    );

    let server = initial_keys(Version::V1, &appendix_a_dcid(), Role::Server);
    let number = server.remote.unprotect_header(&mut sealed, 18).unwrap();
    assert_eq!(
        number,
        Unprotected {
            first: 0xc3,
            truncated: 2,
            len: 4
        }
    );
    let len = server.remote.open(2, &mut sealed, 22).unwrap();
    assert_eq!(sealed[22..22 + len], payload[..]);
}

/// RFC 9369 §A.2.
#[test]
fn client_initial_matches_rfc9369_appendix_a() {
    let header = hex("d36b3343cf088394c8f03e5157080000449e00000002");
    let payload = client_hello();
    let mut sealed = packet(&header, &payload);
    let client = initial_keys(Version::V2, &appendix_a_dcid(), Role::Client);
    client.local.seal(2, &mut sealed, 22, 4).unwrap();
    assert_eq!(sealed.len(), 1200);
    assert_eq!(
        sealed[..48],
        hex(
            "d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485
             dd04de806071bf03dceebfa162e75d6c"
        )[..]
    );
    assert_eq!(
        sealed[1200 - 16..],
        hex("a18b2faa745b6fe189cf772a9f84cbfc")[..]
    );
    let server = initial_keys(Version::V2, &appendix_a_dcid(), Role::Server);
    server.remote.unprotect_header(&mut sealed, 18).unwrap();
    let len = server.remote.open(2, &mut sealed, 22).unwrap();
    assert_eq!(sealed[22..22 + len], payload[..]);
}

/// RFC 9369 §A.3.
#[test]
fn server_initial_matches_rfc9369_appendix_a() {
    let header = hex("d16b3343cf0008f067a5502a4262b50040750001");
    let payload = hex(
        "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf739
         88cfc79825df566dc5430b9a045a1200130100002e00330024001d00209d3c94
         0d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00
         020304",
    );
    let expected = hex(
        "dc6b3343cf0008f067a5502a4262b5004075d92faaf16f05d8a4398c47089698
         baeea26b91eb761d9b89237bbf87263017915358230035f7fd3945d88965cf17
         f9af6e16886c61bfc703106fbaf3cb4cfa52382dd16a393e42757507698075b2
         c984c707f0a0812d8cd5a6881eaf21ceda98f4bd23f6fe1a3e2c43edd9ce7ca8
         4bed8521e2e140",
    );
    let mut sealed = packet(&header, &payload);
    let server = initial_keys(Version::V2, &appendix_a_dcid(), Role::Server);
    server.local.seal(1, &mut sealed, 20, 2).unwrap();
    assert_eq!(sealed, expected);
}

/// RFC 9001 §A.3.
#[test]
fn server_initial_matches_rfc9001_appendix_a() {
    let header = hex("c1000000010008f067a5502a4262b50040750001");
    let payload = hex(
        "02000000000600405a020000560303eefce7f7b37ba1d1632e96677825ddf739
         88cfc79825df566dc5430b9a045a1200130100002e00330024001d00209d3c94
         0d89690b84d08a60993c144eca684d1081287c834d5311bcf32bb9da1a002b00
         020304",
    );
    let expected = hex(
        "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a
         5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf73c3ec2493a1839b3
         dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84
         022f8ef4cdd93795d77d06edbb7aaf2f58891850abbdca3d20398c276456cbc4
         2158407dd074ee",
    );
    let mut sealed = packet(&header, &payload);
    let server = initial_keys(Version::V1, &appendix_a_dcid(), Role::Server);
    server.local.seal(1, &mut sealed, 20, 2).unwrap();
    assert_eq!(sealed, expected);

    let client = initial_keys(Version::V1, &appendix_a_dcid(), Role::Client);
    let number = client.remote.unprotect_header(&mut sealed, 18).unwrap();
    assert_eq!((number.truncated, number.len), (1, 2));
    let len = client.remote.open(1, &mut sealed, 20).unwrap();
    assert_eq!(sealed[20..20 + len], payload[..]);
}

/// RFC 9001 §A.5.
#[test]
fn chacha20_short_header_matches_rfc9001_appendix_a() {
    let keys = direction(
        Suite::ChaCha20Poly1305,
        &hex("c6d98ff3441c3fe1b2182094f69caa2ed4b716b65488960a7a984979fb23e1c8"),
        &hex("e0459b3474bdd0e44a41c144"),
        &hex("25a282b9e82f06f21f488917a4fc8f1b73573685608597d0efcb076b0ab7a7a4"),
    );
    let mut sealed = packet(&hex("4200bff4"), &[0x01]);
    keys.seal(654_360_564, &mut sealed, 4, 3).unwrap();
    assert_eq!(sealed, hex("4cfe4189655e5cd55c41f69080575d7999c25a5bfb"));
    let number = keys.unprotect_header(&mut sealed, 1).unwrap();
    assert_eq!((number.first, number.truncated), (0x42, 49_140));
    assert_eq!(keys.open(654_360_564, &mut sealed, 4), Some(1));
    assert_eq!(sealed[4], 0x01);
}

#[test]
fn packet_too_short_for_sample_is_rejected_both_ways() {
    let keys = initial_keys(Version::V1, &[1], Role::Client).local;
    // One byte of packet number and two of payload: the sample would end
    // beyond the tag.
    let error = keys.seal(0, &mut packet(&[0x40, 0], &[1, 1]), 2, 1);
    assert_eq!(error.unwrap_err().code, Code::INTERNAL_ERROR);
    assert!(keys.seal(0, &mut packet(&[0x40, 0], &[1; 3]), 2, 1).is_ok());
    let mut short = [0x40; 1 + 4 + 15];
    assert_eq!(keys.unprotect_header(&mut short, 1), None);
    assert_eq!(short, [0x40; 20]);
    assert_eq!(keys.unprotect_header(&mut [0x40; 64], usize::MAX), None);
    assert_eq!(keys.unprotect_header(&mut [0x40; 64], 0), None);
    assert_eq!(keys.open(0, &mut [0x40; 10], 20), None);
    assert_eq!(keys.open(0, &mut [0x40; 10], 2), None);
}

#[test]
fn sealing_stops_at_the_confidentiality_limit() {
    let keys = initial_keys(Version::V1, &[1], Role::Client).local;
    let mut buffer = packet(&[0x40, 0], &[1; 10]);
    assert!(keys.seal((1 << 23) - 1, &mut buffer, 2, 1).is_ok());
    let error = keys.seal(1 << 23, &mut buffer, 2, 1).unwrap_err();
    assert_eq!(error.code, Code::AEAD_LIMIT_REACHED);
}

proptest! {
    #[test]
    fn sealed_packet_opens_and_altered_packet_does_not(
        suite in prop::sample::select(&Suite::ALL[..]),
        secret in any::<[u8; 32]>(),
        pn in 0u64..(1 << 23),
        pn_len in 1usize..5,
        cid_len in 0usize..21,
        long in any::<bool>(),
        payload in prop::collection::vec(any::<u8>(), 3..200),
        flip in any::<prop::sample::Index>(),
        bit in 0u8..8,
    ) {
        let key = &secret[..suite.key_len()];
        let keys = direction(suite, key, &[9; 12], key);
        let first = (if long { 0xc0 } else { 0x40 }) | (pn_len - 1) as u8;
        let number = (pn as u32).to_be_bytes();
        let header = [&[first][..], &vec![7; cid_len], &number[4 - pn_len..]].concat();
        let mut sealed = packet(&header, &payload);
        keys.seal(pn, &mut sealed, header.len(), pn_len).unwrap();

        let try_open = |mut bytes: Vec<u8>| {
            let found = keys.unprotect_header(&mut bytes, 1 + cid_len)?;
            let header_len = 1 + cid_len + found.len;
            let len = keys.open(pn, &mut bytes, header_len)?;
            (found.truncated == (pn & (u64::MAX >> (64 - 8 * found.len))) as u32)
                .then(|| bytes[header_len..header_len + len].to_vec())
        };
        prop_assert_eq!(try_open(sealed.clone()), Some(payload));
        let at = flip.index(sealed.len());
        sealed[at] ^= 1 << bit;
        prop_assert_eq!(try_open(sealed), None, "byte {} bit {}", at, bit);
    }
}
