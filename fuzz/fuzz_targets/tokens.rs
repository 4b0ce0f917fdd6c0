//! Address validation tokens: only genuine tokens can be opened.
#![no_main]

use std::net::{IpAddr, SocketAddr};
use std::sync::LazyLock;

use clearway_quic::cid::ConnectionId;
use clearway_quic::crypto::{AddressToken, RetryToken, TokenKey};
use clearway_quic::rng::Rng;
use clearway_quic::wire::Version;
use libfuzzer_sys::fuzz_target;

const NOW: u64 = 1_800_000_000;

static KEY: LazyLock<TokenKey> = LazyLock::new(|| TokenKey::new(&[7; 32]));

#[derive(arbitrary::Arbitrary, Debug)]
struct Input<'a> {
    raw: &'a [u8],
    retry: bool,
    v6: bool,
    flip: u16,
    cut: u16,
    later: u32,
}

fuzz_target!(|input: Input<'_>| {
    let ip: IpAddr = if input.v6 {
        [1; 16].into()
    } else {
        [192, 0, 2, 1].into()
    };
    let client = SocketAddr::new(ip, 4433);
    assert!(
        KEY.open(input.raw, NOW, client, Version::V1).is_err(),
        "a forged token"
    );

    let mut rng = Rng::from_seed([3; 32]);
    let mut token = Vec::new();
    let cid = |len: u16| ConnectionId::new(&[5; 20][..usize::from(len % 21)]).expect("short");
    if input.retry {
        let content = RetryToken {
            version: Version::V1,
            issued: NOW,
            client,
            original_dcid: cid(input.flip),
            retry_scid: cid(input.cut),
        };
        KEY.seal_retry(&content, &mut rng, &mut token);
    } else {
        let content = AddressToken {
            version: Version::V1,
            issued: NOW,
            ip,
            id: rng.array(),
            path: None,
        };
        KEY.seal_address(&content, &mut rng, &mut token);
    }
    KEY.open(&token, NOW, client, Version::V1)
        .expect("our own token");
    let _ = KEY.open(&token, NOW + u64::from(input.later), client, Version::V1);
    let mut bent = token.clone();
    let at = usize::from(input.flip) / 8 % bent.len();
    bent[at] ^= 1 << (input.flip % 8);
    assert!(
        KEY.open(&bent, NOW, client, Version::V1).is_err(),
        "a changed token"
    );
    let cut = usize::from(input.cut) % token.len();
    assert!(
        KEY.open(&token[..cut], NOW, client, Version::V1).is_err(),
        "a cut token"
    );
});
