use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn cid(n: u64) -> ConnectionId {
    ConnectionId::new(&n.to_be_bytes()).unwrap()
}

fn token(n: u64) -> ResetToken {
    ResetToken(u128::from(n).to_be_bytes())
}

fn mint(next: &mut u64) -> impl FnMut() -> (ConnectionId, ResetToken) + '_ {
    || {
        *next += 1;
        (cid(*next), token(*next))
    }
}

fn issued(limit: u64) -> LocalCids {
    let mut cids = LocalCids::new(cid(0), token(0), 4);
    cids.set_peer_limit(limit);
    cids.replenish(mint(&mut 0));
    cids
}

fn sent(cids: &mut LocalCids) -> Vec<(u64, u64)> {
    core::iter::from_fn(|| cids.next_to_send())
        .map(|f| (f.sequence, f.retire_prior_to))
        .collect()
}

#[test]
fn issues_cids_up_to_lower_of_both_limits() {
    assert_eq!(sent(&mut issued(2)), [(1, 0)]);
    assert_eq!(sent(&mut issued(1_000_000)), [(1, 0), (2, 0), (3, 0)]);
    let mut cids = issued(4);
    let mut calls = 100;
    cids.replenish(mint(&mut calls));
    assert_eq!(calls, 100, "full: nothing is minted");
}

#[test]
fn lost_new_connection_id_is_resent_unless_retired_or_acknowledged() {
    let mut cids = issued(4);
    assert_eq!(sent(&mut cids).len(), 3);
    assert!(!cids.has_frames());
    for sequence in [1, 2, 3, 99] {
        if sequence == 2 {
            cids.on_acked(2);
        }
        if sequence == 3 {
            cids.on_retire(3, &cid(0)).unwrap();
        }
        cids.on_lost(sequence);
    }
    assert_eq!(sent(&mut cids), [(1, 0)]);
}

#[test]
fn retired_cid_is_replaced_and_its_route_removed() {
    let mut cids = issued(3);
    sent(&mut cids);
    while cids.routing_change().is_some() {}
    cids.on_retire(1, &cid(2)).unwrap();
    cids.on_retire(1, &cid(2)).unwrap();
    cids.replenish(mint(&mut 50));
    assert_eq!(cids.routing_change(), Some(RoutingChange::Remove(cid(1))));
    assert_eq!(cids.routing_change(), Some(RoutingChange::Add(cid(51))));
    assert_eq!(cids.routing_change(), None);
    assert_eq!(sent(&mut cids), [(3, 0)]);
}

#[test]
fn invalid_retire_connection_id_is_protocol_violation() {
    let mut cids = issued(4);
    let code = |r: Result<(), TransportError>| r.unwrap_err().code;
    // Issued but not yet sent: the peer cannot know it.
    assert_eq!(code(cids.on_retire(1, &cid(0))), Code::PROTOCOL_VIOLATION);
    sent(&mut cids);
    assert_eq!(code(cids.on_retire(4, &cid(0))), Code::PROTOCOL_VIOLATION);
    assert_eq!(code(cids.on_retire(2, &cid(2))), Code::PROTOCOL_VIOLATION);
    assert_eq!(cids.on_retire(2, &cid(0)), Ok(()));
    assert_eq!(
        code(cids.issue_preferred(cid(9), token(9))),
        Code::INTERNAL_ERROR
    );
}

#[test]
fn zero_length_cids_are_never_replaced() {
    let mut cids = LocalCids::new(ConnectionId::EMPTY, token(0), 4);
    cids.set_peer_limit(8);
    cids.replenish(mint(&mut 0));
    assert!(!cids.rotate());
    assert_eq!(cids.next_to_send(), None);
    assert_eq!(cids.routing_change(), None);
    assert_eq!(
        cids.on_retire(0, &ConnectionId::EMPTY).unwrap_err().code,
        Code::PROTOCOL_VIOLATION
    );
}

#[test]
fn preferred_address_cid_has_sequence_number_one() {
    let mut cids = LocalCids::new(cid(0), token(0), 4);
    cids.issue_preferred(cid(7), token(7)).unwrap();
    cids.set_peer_limit(4);
    cids.replenish(mint(&mut 20));
    assert_eq!(sent(&mut cids), [(2, 0), (3, 0)]);
    cids.on_retire(1, &cid(0)).unwrap();
    assert_eq!(cids.issued().next(), Some(cid(0)));
}

#[test]
fn rotation_replaces_all_cids_and_waits_for_peer() {
    let mut cids = issued(4);
    sent(&mut cids);
    cids.on_lost(3);
    assert!(cids.rotate());
    cids.replenish(mint(&mut 10));
    // The lost one cannot carry a Retire Prior To above its own number.
    assert_eq!(sent(&mut cids), [(3, 3), (4, 4), (5, 4), (6, 4), (7, 4)]);
    assert!(!cids.rotate(), "the peer has not complied yet");
    for old in 0..4 {
        assert!(cids.issued().any(|c| c == cid(old)));
        cids.on_retire(old, &cid(11)).unwrap();
    }
    assert!(cids.rotate());
}

#[derive(Clone, Debug)]
enum Step {
    Retire(u64, u64),
    Send,
    Lose(u64),
    Ack(u64),
    Rotate,
    Replenish,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (0..40_u64, 0..40_u64).prop_map(|(a, b)| Step::Retire(a, b)),
        Just(Step::Send),
        (0..40_u64).prop_map(Step::Lose),
        (0..40_u64).prop_map(Step::Ack),
        Just(Step::Rotate),
        Just(Step::Replenish),
    ]
}

proptest! {
    /// Whatever a peer does: bounded, within its limit, the table in step.
    #[test]
    fn issued_cids_never_exceed_limits(
        limit in 2..12_u64,
        steps in proptest::collection::vec(step(), 0..200),
    ) {
        let mut cids = issued(limit);
        let mut table = BTreeSet::new();
        let mut next = 1_000;
        for step in steps {
            match step {
                Step::Retire(sequence, by) => {
                    let _ = cids.on_retire(sequence, &cid(by));
                }
                Step::Send => {
                    if let Some(frame) = cids.next_to_send() {
                        prop_assert!(frame.retire_prior_to <= frame.sequence);
                    }
                }
                Step::Lose(sequence) => cids.on_lost(sequence),
                Step::Ack(sequence) => cids.on_acked(sequence),
                Step::Rotate => {
                    cids.rotate();
                }
                Step::Replenish => cids.replenish(mint(&mut next)),
            }
            while let Some(change) = cids.routing_change() {
                match change {
                    RoutingChange::Add(c) => prop_assert!(table.insert(c.to_vec())),
                    RoutingChange::Remove(c) => prop_assert!(table.remove(&c.to_vec())),
                }
            }
            prop_assert!(cids.usable() as u64 <= limit.min(4));
            prop_assert!(cids.issued().count() <= 2 * MAX_ISSUED);
            let live: BTreeSet<_> = cids.issued().map(|c| c.to_vec()).collect();
            prop_assert_eq!(&live, &table);
        }
    }
}
