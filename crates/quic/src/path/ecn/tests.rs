//! Tests of ECN validation.

use super::*;
use proptest::prelude::*;

const PTO: Duration = Duration::from_millis(100);

fn send(path: &mut PathEcn, space: &mut SpaceEcn, count: u64) -> u64 {
    (0..count)
        .filter(|_| {
            let mark = path.mark();
            path.on_sent(space, mark, Instant::ZERO, PTO);
            mark != Mark::NotEct
        })
        .count() as u64
}

fn ack(newly: u64, ect0: u64, ect1: u64, ce: u64) -> EcnAck {
    EcnAck {
        counts: Some(EcnCounts { ect0, ect1, ce }),
        newly_acked_ect0: newly,
        newly_acked_ect1: 0,
    }
}

fn tested() -> (PathEcn, SpaceEcn) {
    let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
    assert_eq!(send(&mut path, &mut space, 20), TESTING_PACKETS);
    assert_eq!(path.state(), EcnState::Unknown);
    (path, space)
}

#[test]
fn path_that_preserves_marks_becomes_capable() {
    let (mut path, mut space) = tested();
    assert_eq!(path.on_ack(&mut space, &ack(2, 2, 0, 0), Instant::ZERO), 0);
    assert_eq!(path.state(), EcnState::Capable);
    assert_eq!(path.mark(), Mark::Ect0);
    assert_eq!(path.on_ack(&mut space, &ack(8, 7, 0, 3), Instant::ZERO), 3);
    assert_eq!(path.on_ack(&mut space, &ack(0, 7, 0, 3), Instant::ZERO), 0);
}

#[test]
fn ecn_testing_ends_after_three_ptos() {
    let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
    path.on_sent(&mut space, Mark::Ect0, Instant::ZERO, PTO);
    path.on_sent(&mut space, Mark::Ect0, Instant::ZERO + PTO, PTO);
    assert_eq!(path.state(), EcnState::Testing);
    path.on_sent(&mut space, Mark::Ect0, Instant::ZERO + PTO * 3, PTO);
    assert_eq!(path.state(), EcnState::Unknown);
}

#[test]
fn each_kind_of_mark_damage_fails_with_its_reason() {
    let cases = [
        (
            EcnAck {
                counts: None,
                ..ack(1, 0, 0, 0)
            },
            EcnFailure::NotReported,
        ),
        (ack(3, 2, 0, 0), EcnFailure::Bleached),
        (ack(2, 2, 1, 0), EcnFailure::Remarked),
        (ack(2, 11, 0, 0), EcnFailure::Remarked),
        (ack(2, 0, 2, 0), EcnFailure::Bleached),
        (ack(2, 0, 0, 11), EcnFailure::Remarked),
    ];
    for (ack, failure) in cases {
        let (mut path, mut space) = tested();
        assert_eq!(path.on_ack(&mut space, &ack, Instant::ZERO), 0);
        assert_eq!(path.state(), EcnState::Failed(failure), "{ack:?}");
        assert_eq!(path.mark(), Mark::NotEct);
    }
    let (mut path, mut space) = tested();
    path.on_ack(&mut space, &ack(3, 3, 0, 0), Instant::ZERO);
    path.on_ack(&mut space, &ack(0, 2, 0, 0), Instant::ZERO);
    assert_eq!(path.state(), EcnState::Failed(EcnFailure::Decreased));
}

#[test]
fn capable_path_fails_when_marks_are_bleached_later() {
    let (mut path, mut space) = tested();
    path.on_ack(&mut space, &ack(10, 10, 0, 0), Instant::ZERO);
    assert_eq!(send(&mut path, &mut space, 5), 5);
    path.on_ack(&mut space, &ack(5, 11, 0, 0), Instant::ZERO);
    assert_eq!(path.state(), EcnState::Failed(EcnFailure::Bleached));
}

#[test]
fn ack_of_unmarked_packets_leaves_state_unknown() {
    let (mut path, mut space) = tested();
    assert_eq!(
        path.on_ack(&mut space, &EcnAck::default(), Instant::ZERO),
        0
    );
    assert_eq!(path.state(), EcnState::Unknown);
}

#[test]
fn path_fails_when_all_marked_packets_are_lost_but_not_when_most_are() {
    let (mut path, _) = tested();
    path.on_lost(9, Instant::ZERO);
    assert_eq!(path.state(), EcnState::Unknown);
    let mut lucky = path;
    path.on_lost(1, Instant::ZERO);
    assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllLost));
    let (_, mut space) = tested();
    lucky.on_ack(&mut space, &ack(1, 1, 0, 0), Instant::ZERO);
    assert_eq!(lucky.state(), EcnState::Capable);
}

/// Sends packets one by one, each of which arrives as CE. Returns how many.
fn overwrite(path: &mut PathEcn, space: &mut SpaceEcn, ce: &mut u64, now: Instant) -> u64 {
    let before = *ce;
    for _ in 0..100 {
        let mark = path.begin_train(now);
        if mark == Mark::NotEct {
            break;
        }
        path.on_sent(space, mark, now, PTO);
        *ce += 1;
        assert_eq!(path.on_ack(space, &ack(1, 0, 0, *ce), now), 1, "CE counts");
    }
    *ce - before
}

#[test]
fn test_goes_on_while_all_marks_are_ce_and_ends_with_the_first_intact_one() {
    let (mut path, mut space) = tested();
    let now = Instant::ZERO;
    assert_eq!(path.on_ack(&mut space, &ack(6, 0, 0, 6), now), 6);
    assert_eq!(path.state(), EcnState::Testing);
    assert_eq!(path.mark(), Mark::Ect0);
    path.on_lost(1, now);
    assert_eq!(path.on_ack(&mut space, &ack(3, 0, 0, 9), now), 3);
    assert_eq!(path.state(), EcnState::Testing, "all ten are known");
    assert_eq!(send(&mut path, &mut space, 40), 40);
    assert_eq!(path.on_ack(&mut space, &ack(9, 1, 0, 17), now), 8);
    assert_eq!(path.state(), EcnState::Capable);
    assert_eq!(path.next_test, None);
}

#[test]
fn path_that_overwrites_marks_fails_and_is_tested_again_ever_less_often() {
    let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
    let (mut now, mut ce, mut wait) = (Instant::ZERO, 0, FIRST_RETEST);
    for _ in 0..12 {
        let sent = overwrite(&mut path, &mut space, &mut ce, now);
        assert_eq!(sent, u64::from(ALL_CE_ROUNDS) + 1);
        assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllCe));
        let early = now + (wait - Duration::from_nanos(1));
        assert_eq!(path.begin_train(early), Mark::NotEct);
        now += wait;
        wait = (wait * 2).min(LONGEST_RETEST);
    }
    assert_eq!(wait, LONGEST_RETEST);
    // The path has changed.
    assert_eq!(path.begin_train(now), Mark::Ect0);
    path.on_sent(&mut space, Mark::Ect0, now, PTO);
    path.on_ack(&mut space, &ack(1, 1, 0, ce), now);
    assert_eq!(path.state(), EcnState::Capable);
}

#[test]
fn marks_that_return_after_the_path_failed_count_and_an_intact_one_proves_it() {
    let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
    let (now, mut ce) = (Instant::ZERO, 0);
    path.on_sent(&mut space, Mark::Ect0, now, PTO);
    path.on_sent(&mut space, Mark::Ect0, now, PTO);
    overwrite(&mut path, &mut space, &mut ce, now);
    assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllCe));
    assert_eq!(path.on_ack(&mut space, &ack(1, 0, 0, ce + 1), now), 1);
    assert_eq!(path.state(), EcnState::Failed(EcnFailure::AllCe));
    assert_eq!(path.on_ack(&mut space, &ack(1, 1, 0, ce + 1), now), 0);
    assert_eq!(path.state(), EcnState::Capable);
}

/// Packets of the handshake whose keys are gone are neither acknowledged nor lost.
#[test]
fn path_without_any_answer_is_tested_again() {
    let (mut path, _) = tested();
    assert_eq!(
        path.begin_train(Instant::ZERO + FIRST_RETEST / 2),
        Mark::NotEct
    );
    assert_eq!(path.begin_train(Instant::ZERO + FIRST_RETEST), Mark::Ect0);
    assert_eq!(path.state(), EcnState::Testing);
}

/// What can happen to a path, as far as the state of validation goes.
const EVENTS: [&str; 8] = [
    "train",
    "late train",
    "intact",
    "CE",
    "lost",
    "bleached",
    "decreased",
    "no marks",
];

fn apply(path: &mut PathEcn, space: &mut SpaceEcn, sent: &mut u64, event: &str) -> u64 {
    let now = path.next_test.unwrap_or(Instant::ZERO);
    let before = space.reported;
    let grown = |intact, ce| ack(1, before.ect0 + intact, before.ect1, before.ce + ce);
    let mut report = |report: EcnAck| path.on_ack(space, &report, Instant::ZERO);
    match event {
        "train" | "late train" => {
            let at = if event == "train" { Instant::ZERO } else { now };
            let mark = path.begin_train(at);
            for _ in 0..TESTING_PACKETS {
                path.on_sent(space, mark, at, PTO);
                *sent += u64::from(mark != Mark::NotEct);
            }
            0
        }
        "intact" => report(grown(1, 0)),
        "CE" => report(grown(0, 1)),
        "bleached" => report(grown(0, 0)),
        "decreased" => report(EcnAck {
            newly_acked_ect0: 0,
            counts: Some(EcnCounts {
                ect1: 0,
                ce: 0,
                ect0: 0,
            }),
            ..EcnAck::default()
        }),
        "no marks" => report(EcnAck::default()),
        "lost" => {
            path.on_lost(1, Instant::ZERO);
            0
        }
        other => panic!("{other}"),
    }
}

/// Every sequence of seven events, of which the first is a train: what each does in each
/// state, as RFC 9000 §13.4.2 and the module's documentation have it.
#[test]
fn every_event_in_every_state_leads_where_it_should() {
    let mut table = std::collections::BTreeSet::new();
    let mut worlds = vec![(PathEcn::new(Mark::Ect0), SpaceEcn::default(), 0_u64)];
    for depth in 0..7 {
        let mut next = Vec::new();
        for (path, space, sent) in worlds {
            for event in EVENTS {
                if depth == 0 && event != "train" {
                    continue;
                }
                let answer = matches!(event, "intact" | "CE" | "bleached" | "lost");
                let (mut then, mut its_space, mut now_sent) = (path, space, sent);
                let known = path.marked_acked + path.marked_lost;
                if answer && known >= path.marked_sent {
                    continue;
                }
                let ce = apply(&mut then, &mut its_space, &mut now_sent, event);
                check(&path, &then, event, ce, &space);
                table.insert(format!("{:?}, {event} -> {:?}", path.state, then.state));
                next.push((then, its_space, now_sent));
            }
        }
        worlds = next;
    }
    let table: Vec<_> = table.into_iter().collect();
    println!("{}", table.join("\n"));
    assert!(table.len() >= 30, "{}", table.len());
}

fn check(before: &PathEcn, after: &PathEcn, event: &str, ce: u64, space: &SpaceEcn) {
    use EcnState::{Capable, Failed, Testing, Unknown};
    let final_failure = |state| matches!(state, Failed(failure) if !failure.may_be_congestion());
    let step = (before.state, after.state);
    let text = format!("{step:?} at {event}");
    if final_failure(before.state) {
        assert_eq!(before.state, after.state, "{text}");
        assert_eq!(ce, 0, "{text}");
        return;
    }
    let expected = match event {
        "train" | "no marks" => !matches!(step, (Failed(_) | Capable, new) if new != step.0),
        "late train" => {
            matches!(after.state, Unknown | Testing | Capable)
                && (before.next_test.is_none() || after.wait() == before.wait() * 2)
        }
        "intact" => after.state == Capable,
        // Every mark is reported to the controller, and takes no state but Unknown.
        "CE" => {
            ce == 1
                && matches!(
                    (step.0, step.1),
                    (Unknown, Testing)
                        | (Testing, Testing | Failed(EcnFailure::AllCe))
                        | (Capable, Capable)
                        | (Failed(_), Failed(_))
                )
        }
        "lost" => step.0 == step.1 || step == (Unknown, Failed(EcnFailure::AllLost)),
        "bleached" => after.state == Failed(EcnFailure::Bleached),
        "decreased" => {
            let fell = space.reported != EcnCounts::default();
            !fell || after.state == Failed(EcnFailure::Decreased)
        }
        other => panic!("{other}"),
    };
    assert!(expected, "{text}");
    // A test is due again exactly where nothing but time can decide.
    let asks = matches!(
        after.state,
        Unknown | Failed(EcnFailure::AllCe | EcnFailure::AllLost)
    );
    assert_eq!(after.next_test.is_some(), asks, "{text}");
}

/// A new path starts from the counts of the space and not from zero, and late packets
/// of the old path do not make it fail.
#[test]
fn new_path_starts_from_the_counts_of_the_space() {
    let (mut old, mut space) = tested();
    old.on_ack(&mut space, &ack(4, 4, 0, 0), Instant::ZERO);
    let mut new = PathEcn::new(Mark::Ect0);
    send(&mut new, &mut space, 3);
    // Six late packets of the old path and two of the new.
    assert_eq!(new.on_ack(&mut space, &ack(2, 12, 0, 0), Instant::ZERO), 0);
    assert_eq!(new.state(), EcnState::Capable);
}

#[test]
fn ect1_is_validated_by_the_ect1_count() {
    let (mut path, mut space) = (PathEcn::new(Mark::Ect1), SpaceEcn::default());
    send(&mut path, &mut space, 10);
    let report = |ect0, ect1| EcnAck {
        counts: Some(EcnCounts { ect0, ect1, ce: 0 }),
        newly_acked_ect0: 0,
        newly_acked_ect1: 2,
    };
    let (mut remarked, mut its_space) = (path, space);
    path.on_ack(&mut space, &report(0, 2), Instant::ZERO);
    assert_eq!(path.state(), EcnState::Capable);
    remarked.on_ack(&mut its_space, &report(2, 0), Instant::ZERO);
    assert_eq!(remarked.state(), EcnState::Failed(EcnFailure::Bleached));
}

#[test]
fn disabled_ecn_marks_nothing() {
    let (mut path, mut space) = (PathEcn::new(Mark::NotEct), SpaceEcn::default());
    assert_eq!(send(&mut path, &mut space, 5), 0);
    assert_eq!(path.mark(), Mark::NotEct);
    assert_eq!(path.state(), EcnState::Failed(EcnFailure::Disabled));
}

proptest! {
    /// A path that only turns some ECT(0) into CE and loses some packets stays capable
    /// once an ECT(0) mark arrived, and every CE counts.
    #[test]
    fn path_that_only_adds_ce_stays_capable(
        fates in proptest::collection::vec(0..4_u8, 1..200),
        ack_every in 1..7_usize,
    ) {
        let (mut path, mut space) = (PathEcn::new(Mark::Ect0), SpaceEcn::default());
        send(&mut path, &mut space, 1);
        let mut counts = EcnCounts { ect0: 1, ..EcnCounts::default() };
        path.on_ack(&mut space, &ack(1, 1, 0, 0), Instant::ZERO);
        let (mut newly, mut told) = (0, 0);
        for (n, fate) in fates.iter().enumerate() {
            prop_assert_eq!(send(&mut path, &mut space, 1), 1);
            match fate {
                0 => path.on_lost(1, Instant::ZERO),
                1 => { counts.ce += 1; newly += 1; }
                _ => { counts.ect0 += 1; newly += 1; }
            }
            if n % ack_every == 0 {
                let report = ack(newly, counts.ect0, 0, counts.ce);
                told += path.on_ack(&mut space, &report, Instant::ZERO);
                newly = 0;
                prop_assert_eq!(told, counts.ce);
            }
            prop_assert_eq!(path.state(), EcnState::Capable);
        }
    }
}
