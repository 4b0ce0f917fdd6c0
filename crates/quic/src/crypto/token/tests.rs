use super::*;
use proptest::prelude::*;
use rand_chacha::ChaCha20Rng;
use rand_core::SeedableRng;

const NOW: u64 = 1_750_000_000;

fn rng() -> ChaCha20Rng {
    ChaCha20Rng::seed_from_u64(1)
}

fn client() -> SocketAddr {
    "192.0.2.1:4433".parse().unwrap()
}

fn cid(bytes: &[u8]) -> ConnectionId {
    ConnectionId::new(bytes).unwrap()
}

fn retry() -> RetryToken {
    RetryToken {
        version: Version::V1,
        issued: NOW,
        client: client(),
        original_dcid: cid(&[1, 2, 3, 4, 5, 6, 7, 8]),
        retry_scid: cid(&[9; 20]),
    }
}

fn address() -> AddressToken {
    AddressToken {
        version: Version::V1,
        issued: NOW,
        ip: client().ip(),
        id: [7; 16],
        path: None,
    }
}

fn sealed_retry(key: &TokenKey) -> Vec<u8> {
    let mut out = Vec::new();
    key.seal_retry(&retry(), &mut rng(), &mut out);
    out
}

fn sealed_address(key: &TokenKey) -> Vec<u8> {
    let mut out = Vec::new();
    key.seal_address(&address(), &mut rng(), &mut out);
    out
}

#[test]
fn token_is_valid_after_restart_with_same_key() {
    let before = TokenKey::new(&[1; 32]);
    let after = TokenKey::new(&[1; 32]);
    let opened = after.open(&sealed_retry(&before), NOW, client(), Version::V1);
    assert_eq!(opened, Ok(Token::Retry(retry())));
    let opened = after.open(&sealed_address(&before), NOW, client(), Version::V1);
    assert_eq!(opened, Ok(Token::Address(address())));
}

#[test]
fn address_token_carries_what_was_measured_of_the_path() {
    let key = TokenKey::new(&[1; 32]);
    let token = AddressToken {
        path: Some(MeasuredPath {
            saved: SavedPath {
                capacity: 2_500_000,
                rtt: Duration::from_micros(600_123),
            },
            connection: [3; 16],
        }),
        ..address()
    };
    let mut sealed = Vec::new();
    key.seal_address(&token, &mut rng(), &mut sealed);
    assert_eq!(sealed.len(), sealed_address(&key).len() + 32);
    let opened = key.open(&sealed, NOW, client(), Version::V1);
    assert_eq!(opened, Ok(Token::Address(token)));
}

#[test]
fn token_of_other_key_is_rejected() {
    let token = sealed_retry(&TokenKey::new(&[1; 32]));
    let result = TokenKey::new(&[2; 32]).open(&token, NOW, client(), Version::V1);
    assert_eq!(result, Err(TokenError::Forged));
}

#[test]
fn token_is_valid_for_its_lifetime() {
    let key = TokenKey::new(&[1; 32]);
    let (retry, address) = (sealed_retry(&key), sealed_address(&key));
    let open = |token: &[u8], now| key.open(token, now, client(), Version::V1).err();
    assert_eq!(open(&retry, NOW + RETRY_LIFETIME), None);
    assert_eq!(
        open(&retry, NOW + RETRY_LIFETIME + 1),
        Some(TokenError::Expired(TokenKind::Retry))
    );
    assert_eq!(open(&address, NOW + ADDRESS_LIFETIME), None);
    assert_eq!(
        open(&address, NOW + ADDRESS_LIFETIME + 1),
        Some(TokenError::Expired(TokenKind::Address))
    );
    assert_eq!(open(&retry, NOW - CLOCK_SKEW), None);
    assert_eq!(
        open(&retry, NOW - CLOCK_SKEW - 1),
        Some(TokenError::FromTheFuture(TokenKind::Retry))
    );
    let short = TokenKey::new(&[1; 32]).with_lifetimes(1, 2);
    assert!(short.open(&retry, NOW + 1, client(), Version::V1).is_ok());
    assert!(short.open(&retry, NOW + 2, client(), Version::V1).is_err());
    assert!(short.open(&address, NOW + 2, client(), Version::V1).is_ok());
}

#[test]
fn retry_token_binds_ip_and_port_and_address_token_only_ip() {
    let key = TokenKey::new(&[1; 32]);
    let (retry, address) = (sealed_retry(&key), sealed_address(&key));
    let other_port = SocketAddr::new(client().ip(), 1);
    let other_host = SocketAddr::new([192, 0, 2, 2].into(), client().port());
    let wrong = |kind| Err(TokenError::WrongAddress(kind));
    assert_eq!(
        key.open(&retry, NOW, other_port, Version::V1),
        wrong(TokenKind::Retry)
    );
    assert_eq!(
        key.open(&retry, NOW, other_host, Version::V1),
        wrong(TokenKind::Retry)
    );
    assert!(key.open(&address, NOW, other_port, Version::V1).is_ok());
    assert_eq!(
        key.open(&address, NOW, other_host, Version::V1),
        wrong(TokenKind::Address)
    );
}

#[test]
fn ipv4_mapped_address_matches_ipv4_token() {
    let key = TokenKey::new(&[1; 32]);
    let mapped: SocketAddr = "[::ffff:192.0.2.1]:4433".parse().unwrap();
    assert!(
        key.open(&sealed_retry(&key), NOW, mapped, Version::V1)
            .is_ok()
    );
    let mut token = Vec::new();
    let from_mapped = RetryToken {
        client: mapped,
        ..retry()
    };
    key.seal_retry(&from_mapped, &mut rng(), &mut token);
    assert!(key.open(&token, NOW, client(), Version::V1).is_ok());
}

#[test]
fn only_invalid_retry_token_closes_connection() {
    let key = TokenKey::new(&[1; 32]);
    let error = |token: &[u8], now| key.open(token, now, client(), Version::V1).unwrap_err();
    assert!(error(&sealed_retry(&key), NOW + 99).is_invalid_retry());
    assert!(!error(&sealed_address(&key), u64::MAX).is_invalid_retry());
    let mut forged = sealed_retry(&key);
    forged[20] ^= 1;
    assert!(!error(&forged, NOW).is_invalid_retry());
    assert!(!error(b"somebody else's", NOW).is_invalid_retry());
}

#[test]
fn token_of_one_kind_is_rejected_as_the_other() {
    let key = TokenKey::new(&[1; 32]);
    let mut token = sealed_address(&key);
    token[0] = TokenKind::Retry.byte();
    assert_eq!(
        key.open(&token, NOW, client(), Version::V1),
        Err(TokenError::Forged)
    );
}

#[test]
fn longest_token_has_documented_length() {
    let key = TokenKey::new(&[1; 32]);
    let mut token = Vec::new();
    let longest = RetryToken {
        client: "[2001:db8::1]:1".parse().unwrap(),
        original_dcid: cid(&[1; 20]),
        ..retry()
    };
    key.seal_retry(&longest, &mut rng(), &mut token);
    assert_eq!(token.len(), MAX_TOKEN_LEN);
}

proptest! {
    #[test]
    fn token_with_changed_bit_is_rejected(at in any::<prop::sample::Index>(), bit in 0u8..8, retry: bool) {
        let key = TokenKey::new(&[1; 32]);
        let mut token = if retry { sealed_retry(&key) } else { sealed_address(&key) };
        let at = at.index(token.len());
        token[at] ^= 1 << bit;
        let error = key.open(&token, NOW, client(), Version::V1).unwrap_err();
        prop_assert!(matches!(error, TokenError::Forged | TokenError::Malformed));
    }

    #[test]
    fn truncated_or_random_token_is_rejected(len in 0usize..100, random in prop::collection::vec(any::<u8>(), 0..200)) {
        let key = TokenKey::new(&[1; 32]);
        let token = sealed_retry(&key);
        let len = len.min(token.len() - 1);
        prop_assert!(key.open(&token[..len], NOW, client(), Version::V1).is_err());
        prop_assert!(key.open(&random, NOW, client(), Version::V1).is_err());
    }
}
