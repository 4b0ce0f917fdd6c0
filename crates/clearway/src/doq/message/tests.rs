use super::*;

/// A query for the A record of example.org.
fn query() -> Vec<u8> {
    let mut query = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    query.extend_from_slice(b"\x07example\x03org\x00\x00\x01\x00\x01");
    query
}

fn with_opt(options: &[u8]) -> Vec<u8> {
    let mut query = query();
    add_opt(&mut query);
    let at = query.len() - 2;
    query.truncate(at);
    query.extend_from_slice(&(options.len() as u16).to_be_bytes());
    query.extend_from_slice(options);
    query
}

#[test]
fn padded_query_is_a_multiple_of_the_block_and_is_restored() {
    for (before, changed) in [
        (query(), Changed::OptAdded),
        (with_opt(&[]), Changed::Padded),
        (with_opt(&[0, 10, 0, 2, 1, 2]), Changed::Padded),
    ] {
        let mut message = before.clone();
        assert_eq!(pad(&mut message, QUERY_BLOCK, true), changed);
        assert_eq!(message.len() % QUERY_BLOCK, 0);
        assert!(asks_for_padding(&message));
        let again = message.clone();
        assert_eq!(pad(&mut message, QUERY_BLOCK, true), Changed::No);
        assert_eq!(message, again);
        unpad(&mut message, changed);
        assert_eq!(message, before);
    }
}

#[test]
fn signed_malformed_and_full_messages_are_not_changed() {
    let mut signed = query();
    signed[11] = 1;
    signed.extend_from_slice(&[0, 0, 250, 0, 255, 0, 0, 0, 0, 0, 0]);
    let mut pointer = query();
    pointer[12] = 0x80;
    let mut more = query();
    more.push(0);
    for message in [signed, pointer, more, vec![0; 5]] {
        let mut padded = message.clone();
        assert_eq!(pad(&mut padded, QUERY_BLOCK, true), Changed::No);
        assert_eq!(padded, message);
        unpad(&mut padded, Changed::OptAdded);
        assert_eq!(padded, message);
    }
    let mut long = with_opt(&[0, 10, 0xff, 0x80]);
    long.truncate(long.len() - 4);
    let at = long.len() - 2;
    let rest = MAX_MESSAGE - long.len();
    long[at..].copy_from_slice(&(rest as u16).to_be_bytes());
    long.extend_from_slice(&[0, 10]);
    long.extend_from_slice(&((rest - 4) as u16).to_be_bytes());
    long.resize(MAX_MESSAGE, 7);
    let before = long.clone();
    pad(&mut long, RESPONSE_BLOCK, true);
    assert_eq!(long, before);
}

#[test]
fn error_response_has_the_question_and_the_code() {
    let response = error_response(&with_opt(&[]), 2);
    assert_eq!(id(&response), Some(0xabcd));
    assert_eq!(response[2] & 0x80, 0x80);
    assert_eq!(response[3] & 0xf, 2);
    assert_eq!(response[4..12], [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(response[12..], query()[12..]);
    assert_eq!(error_response(&[1, 2, 3], 1).len(), HEADER);
    assert_eq!(truncated(&query())[2] & 2, 2);
}

#[test]
fn response_has_the_id_and_the_question_of_its_query() {
    let response = error_response(&query(), 0);
    assert!(is_response_to(&response, &query()));
    assert!(!is_query(&response) && is_query(&query()));
    assert!(!is_query(&query()[..11]));
    assert!(!is_response_to(&query(), &query()), "a query");
    let mut upper = response.clone();
    upper[13] = b'E';
    assert!(is_response_to(&upper, &query()), "names ignore case");
    for at in [0, 13, response.len() - 1] {
        let mut other = response.clone();
        other[at] ^= 1;
        assert!(!is_response_to(&other, &query()), "byte {at}");
    }
    let mut bare = response[..HEADER].to_vec();
    assert!(!is_response_to(&bare, &query()), "the question is missing");
    bare[5] = 0;
    assert!(is_response_to(&bare, &query()), "there is no question");
    assert!(!is_response_to(&bare[..11], &query()));
    assert!(!is_response_to(&response, &bare), "nothing was asked");
}

#[test]
fn udp_size_is_that_of_the_opt_record_and_512_without() {
    assert_eq!(max_udp_size(&query()), 512);
    assert_eq!(max_udp_size(&with_opt(&[])), 1232);
    assert_eq!(max_udp_size(&[]), 512);
}

#[test]
fn keepalive_transfers_and_updates_are_recognised() {
    assert!(has_tcp_keepalive(&with_opt(&[0, 11, 0, 0])));
    assert!(!has_tcp_keepalive(&with_opt(&[0, 11, 0, 9])), "too long");
    assert!(is_replayable(&query()) && !is_transfer(&query()));
    let mut update = query();
    update[2] = 5 << 3;
    assert!(!is_replayable(&update));
    let mut transfer = query();
    let at = transfer.len() - 3;
    transfer[at] = 252;
    assert!(is_transfer(&transfer));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_padded_and_restored_or_left_alone(
        message in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..100),
    ) {
        let mut padded = message.clone();
        let changed = pad(&mut padded, QUERY_BLOCK, true);
        if changed == Changed::OptAdded {
            proptest::prop_assert_eq!(padded.len() % QUERY_BLOCK, 0);
            unpad(&mut padded, changed);
            proptest::prop_assert_eq!(padded, message);
        }
    }
}
