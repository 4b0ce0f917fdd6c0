use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

const A: PathId = PathId(0);
const B: PathId = PathId(1);
const C: PathId = PathId(2);

fn cid(n: u64) -> ConnectionId {
    ConnectionId::new(&(n + 1_000).to_be_bytes()).unwrap()
}

fn token(n: u64) -> ResetToken {
    ResetToken(u128::from(n + 1).to_be_bytes())
}

fn new(sequence: u64, retire_prior_to: u64) -> NewCid {
    NewCid {
        sequence,
        retire_prior_to,
        cid: cid(sequence),
        reset_token: token(sequence),
    }
}

/// A peer's numbers `0..count`, limit 4, path A in use.
fn holding(count: u64) -> RemoteCids {
    let mut cids = RemoteCids::new(cid(0), A, 4);
    for n in 1..count {
        cids.on_new(new(n, 0), A).unwrap();
    }
    cids
}

fn code(result: Result<(), TransportError>) -> Code {
    result.unwrap_err().code
}

fn retired(cids: &mut RemoteCids) -> Vec<u64> {
    core::iter::from_fn(|| cids.next_retire()).collect()
}

#[test]
fn handshake_cid_replaces_initial_cid() {
    let mut cids = RemoteCids::new(cid(90), A, 4);
    cids.replace_first(cid(91)); // Retry
    cids.replace_first(cid(0)); // the server's choice
    cids.set_first_reset_token(token(0));
    assert_eq!(cids.cid(A), Some(cid(0)));
    assert!(cids.is_reset(&token(0).0));
    assert_eq!(cids.sequence(A), Some(0));
}

#[test]
fn cids_over_limit_are_an_error() {
    let mut cids = holding(4);
    assert_eq!(
        code(cids.on_new(new(4, 0), A)),
        Code::CONNECTION_ID_LIMIT_ERROR
    );
    // Retiring first makes room (RFC 9000 §5.1.2).
    let mut cids = holding(4);
    assert_eq!(cids.on_new(new(4, 1), A), Ok(()));
}

#[test]
fn duplicate_cid_is_ignored_and_conflicting_cid_is_an_error() {
    let mut cids = holding(3);
    assert_eq!(cids.on_new(new(2, 0), A), Ok(()));
    assert_eq!(cids.unused(), 2);
    let conflicts = [
        NewCid {
            cid: cid(77),
            ..new(2, 0)
        },
        NewCid {
            reset_token: token(77),
            ..new(2, 0)
        },
        NewCid {
            cid: cid(1),
            ..new(3, 0)
        },
        NewCid {
            reset_token: token(1),
            ..new(3, 0)
        },
    ];
    for conflict in conflicts {
        assert_eq!(code(cids.on_new(conflict, A)), Code::PROTOCOL_VIOLATION);
    }
    assert_eq!(code(cids.on_new(new(3, 4), A)), Code::FRAME_ENCODING_ERROR);
    let empty = NewCid {
        cid: ConnectionId::EMPTY,
        ..new(3, 0)
    };
    assert_eq!(code(cids.on_new(empty, A)), Code::FRAME_ENCODING_ERROR);
}

#[test]
fn zero_length_cid_serves_every_path_and_forbids_new_cids() {
    let mut cids = RemoteCids::new(ConnectionId::EMPTY, A, 4);
    assert_eq!(cids.assign(B), Some(ConnectionId::EMPTY));
    cids.release(B);
    assert!(!cids.switch(A));
    assert_eq!(cids.next_retire(), None);
    assert_eq!(code(cids.on_new(new(1, 0), A)), Code::PROTOCOL_VIOLATION);
    assert_eq!(
        code(cids.on_preferred(cid(1), token(1), A)),
        Code::TRANSPORT_PARAMETER_ERROR
    );
}

#[test]
fn cid_of_preferred_address_has_sequence_number_one() {
    let mut cids = holding(1);
    cids.on_preferred(cid(1), token(1), A).unwrap();
    assert_eq!(cids.assign(B), Some(cid(1)));
    assert_eq!(cids.sequence(B), Some(1));
    assert_eq!(
        code(holding(1).on_preferred(ConnectionId::EMPTY, token(1), A)),
        Code::TRANSPORT_PARAMETER_ERROR
    );
}

/// Trap: a new connection ID per path.
#[test]
fn each_path_uses_its_own_cid() {
    let mut cids = holding(3);
    assert_eq!(cids.assign(B), Some(cid(1)));
    assert_eq!(
        cids.assign(B),
        Some(cid(1)),
        "asking twice consumes nothing"
    );
    assert_eq!(cids.assign(C), Some(cid(2)));
    assert_eq!(cids.cid(A), Some(cid(0)));
    let fourth = PathId(3);
    assert_eq!(cids.assign(fourth), None);
    cids.release(B);
    assert_eq!(cids.cid(fourth), None, "a used one is not handed on");
    assert_eq!(retired(&mut cids), [1]);
    cids.on_new(new(3, 0), A).unwrap();
    assert_eq!(cids.cid(fourth), Some(cid(3)), "served on arrival");
}

#[test]
fn switching_cid_retires_previous_one() {
    let mut cids = holding(2);
    assert!(cids.switch(A));
    assert_eq!(cids.cid(A), Some(cid(1)));
    assert_eq!(retired(&mut cids), [0]);
    assert!(!cids.switch(A), "no other to switch to");
    assert_eq!(cids.cid(A), Some(cid(1)));
}

#[test]
fn late_copy_of_retired_cid_is_ignored() {
    let mut cids = holding(3);
    assert!(cids.switch(A));
    assert_eq!(retired(&mut cids), [0]);
    cids.release(A);
    assert_eq!(retired(&mut cids), [1]);
    cids.on_retire_acked(1);
    cids.on_new(new(1, 0), A).unwrap();
    assert_eq!(cids.unused(), 1);
    assert_eq!(cids.assign(A), Some(cid(2)));
}

#[test]
fn retire_prior_to_replaces_cids_of_all_paths_active_path_first() {
    let mut cids = holding(3);
    cids.assign(B);
    cids.set_active(B);
    cids.on_new(new(3, 3), B).unwrap();
    assert_eq!(cids.cid(B), Some(cid(3)));
    assert_eq!(cids.cid(A), None);
    assert_eq!(retired(&mut cids), [0, 1, 2]);
    cids.on_new(new(4, 0), B).unwrap();
    assert_eq!(cids.cid(A), Some(cid(4)));
}

#[test]
fn cid_below_retire_prior_to_is_retired_on_arrival() {
    let mut cids = holding(1);
    cids.on_new(new(5, 4), A).unwrap();
    assert_eq!(retired(&mut cids), [0]);
    cids.on_new(new(2, 0), A).unwrap();
    assert_eq!(cids.unused(), 0);
    assert_eq!(retired(&mut cids), [2]);
    cids.on_new(new(2, 0), A).unwrap();
    assert_eq!(retired(&mut cids), [], "one is on its way");
    cids.on_retire_lost(2);
    assert_eq!(retired(&mut cids), [2]);
    cids.on_retire_acked(2);
    cids.on_retire_lost(2);
    assert!(!cids.has_frames());
}

/// A peer that issues and retires without end, and acknowledges nothing.
#[test]
fn excessive_retirements_close_connection() {
    let mut cids = holding(1);
    let mut accepted = 0;
    let failed = loop {
        accepted += 1;
        match cids.on_new(new(accepted, accepted), A) {
            Ok(()) => assert!(accepted <= 16),
            Err(error) => break error,
        }
    };
    assert_eq!(failed.code, Code::CONNECTION_ID_LIMIT_ERROR);
    // One jump over 2^61 numbers retires only what we hold.
    let mut cids = holding(4);
    cids.on_new(new(1 << 61, 1 << 61), A).unwrap();
    assert_eq!(retired(&mut cids), [0, 1, 2, 3]);
}

#[test]
fn excessive_sequence_number_gaps_close_connection() {
    let mut cids = holding(1);
    let failed = (1..200)
        .map(|n| {
            let result = cids.on_new(new(2 * n, 0), A);
            assert!(cids.seen.len() <= MAX_GAPS + 1);
            cids.switch(A);
            if let Some(sequence) = cids.next_retire() {
                cids.on_retire_acked(sequence);
            }
            result
        })
        .find_map(Result::err)
        .unwrap();
    assert_eq!(failed.code, Code::PROTOCOL_VIOLATION);
}

/// Trap: a stateless reset is matched against every token in use, and no
/// other (RFC 9000 §10.3.1).
#[test]
fn reset_matches_token_of_every_used_cid() {
    let mut cids = holding(4);
    cids.set_first_reset_token(token(0));
    cids.assign(B);
    let matches = |cids: &RemoteCids| -> Vec<u64> {
        (0..5).filter(|&n| cids.is_reset(&token(n).0)).collect()
    };
    assert_eq!(matches(&cids), [0, 1]);
    cids.assign(C);
    cids.release(A);
    assert_eq!(matches(&cids), [1, 2]);
}

#[derive(Clone, Debug)]
enum Step {
    New(u64, u64),
    Assign(u32),
    Release(u32),
    Switch(u32),
    Activate(u32),
    Send,
    Acked(u64),
    Lost(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let path = 0..4_u32;
    prop_oneof![
        4 => (0..24_u64, 0..24_u64).prop_map(|(n, back)| Step::New(n, n.saturating_sub(back))),
        2 => path.clone().prop_map(Step::Assign),
        1 => path.clone().prop_map(Step::Release),
        1 => path.clone().prop_map(Step::Switch),
        1 => path.prop_map(Step::Activate),
        2 => Just(Step::Send),
        1 => (0..24_u64).prop_map(Step::Acked),
        1 => (0..24_u64).prop_map(Step::Lost),
    ]
}

proptest! {
    /// Never the same connection ID on two paths, never one that was retired,
    /// never one forgotten without retiring it, always bounded.
    #[test]
    fn each_cid_is_used_on_one_path_and_retired_after_use(
        steps in proptest::collection::vec(step(), 0..150),
    ) {
        let mut cids = RemoteCids::new(cid(0), A, 4);
        let mut received = BTreeSet::from([0]);
        let mut retired = BTreeSet::new();
        let mut acked = BTreeSet::new();
        let mut active = A;
        for step in steps {
            match step {
                Step::New(sequence, prior) => {
                    received.insert(sequence);
                    if cids.on_new(new(sequence, prior), active).is_err() {
                        return Ok(());
                    }
                }
                Step::Assign(path) => {
                    cids.assign(PathId(path));
                }
                Step::Release(path) => cids.release(PathId(path)),
                Step::Switch(path) => {
                    cids.switch(PathId(path));
                }
                Step::Activate(path) => {
                    active = PathId(path);
                    cids.set_active(active);
                }
                Step::Send => {
                    if let Some(sequence) = cids.next_retire() {
                        prop_assert!(received.contains(&sequence));
                        retired.insert(sequence);
                    }
                }
                Step::Acked(sequence) => {
                    if retired.contains(&sequence) {
                        acked.insert(sequence);
                        cids.on_retire_acked(sequence);
                    }
                }
                Step::Lost(sequence) => cids.on_retire_lost(sequence),
            }
            let used: Vec<_> = (0..4).filter_map(|p| cids.sequence(PathId(p))).collect();
            let distinct: BTreeSet<_> = used.iter().collect();
            prop_assert_eq!(used.len(), distinct.len());
            let held: BTreeSet<_> = cids.cids.iter().map(|h| h.sequence).collect();
            let retiring: BTreeSet<_> = cids.retiring.iter().map(|r| r.sequence).collect();
            prop_assert!(held.is_disjoint(&retired));
            prop_assert!(held.is_disjoint(&retiring));
            prop_assert!(held.len() <= 4);
            for sequence in &received {
                prop_assert!(
                    held.contains(sequence)
                        || retiring.contains(sequence)
                        || acked.contains(sequence),
                    "{} was forgotten", sequence
                );
            }
        }
    }
}

/// Trap: the peer rotated its connection IDs, the replacements are lost, and it
/// moves: the one that is left goes to where it is.
#[test]
fn active_path_gets_last_unused_cid() {
    let mut cids = RemoteCids::new(cid(0), PathId(0), 8);
    assert_eq!(cids.assign(PathId(1)), None);
    cids.set_active(PathId(1));
    assert_eq!(cids.cid(PathId(1)), Some(cid(0)));
    assert_eq!(cids.cid(PathId(0)), None);
    cids.on_new(new(1, 0), PathId(1)).unwrap();
    assert_eq!(
        cids.cid(PathId(0)),
        Some(cid(1)),
        "the other is served next"
    );
}

#[test]
fn spin_bit_is_a_random_bit_for_each_cid() {
    let mut cids = holding(4);
    let spin_bits = |cids: &mut RemoteCids| {
        (0..4).fold(0_u8, |bits, path| {
            cids.assign(PathId(path));
            let (cid, spin) = cids.cid_and_spin(PathId(path));
            assert!(!cid.is_empty(), "path {path}");
            bits | u8::from(spin) << path
        })
    };
    for random in [0b0110, 0b1001, 0b0000] {
        cids.set_spin(random);
        assert_eq!(spin_bits(&mut cids), random);
    }
}
