use proptest::prelude::*;

use super::*;

const OWN: SessionLimits = SessionLimits {
    data: 800,
    bidi_streams: 2,
    uni_streams: 16,
};
const BIDI: Directionality = Directionality::Bidirectional;
const UNI: Directionality = Directionality::Unidirectional;
const BOTH: [Directionality; 2] = [BIDI, UNI];

fn flow() -> SessionFlow {
    SessionFlow::new(OWN, OWN, [0, 0])
}

fn read(flow: &mut SessionFlow, kind: u64, value: u64) -> Result<FlowUpdate, Code> {
    let value = capsule(kind, value).value;
    flow.on_capsule(kind, &value).map_err(|error| error.code)
}

fn value(capsule: &Capsule) -> u64 {
    Reader::new(&capsule.value).varint().expect("an integer")
}

#[test]
fn limit_on_data_rises_by_an_eighth_of_the_window() {
    let mut flow = flow();
    assert_eq!(flow.grant_data(99, 0), None);
    assert_eq!(flow.marks().consumed, 100);
    assert_eq!(flow.grant_data(100, 0), Some(capsule(MAX_DATA, 900)));
    assert_eq!(flow.marks().received, 900);
    assert_eq!(flow.grant_data(150, 0), None);
    assert_eq!(flow.marks().consumed, 200);
    assert_eq!(flow.grant_data(150, 1_600), Some(capsule(MAX_DATA, 1_750)));
    assert!(flow.check_received(1_750).is_ok());
    let code = flow.check_received(1_751).unwrap_err().code;
    assert_eq!(code, Code::WEBTRANSPORT_FLOW_CONTROL_ERROR);
}

#[test]
fn limit_on_streams_rises_as_they_close() {
    let mut flow = flow();
    assert!(flow.on_arrived(BIDI).is_ok() && flow.on_arrived(BIDI).is_ok());
    assert_eq!(flow.grant_streams(BIDI), None);
    flow.on_closed(BIDI);
    assert_eq!(flow.grant_streams(BIDI), Some(capsule(MAX_STREAMS_BIDI, 3)));
    assert_eq!(flow.grant_streams(BIDI), None);
    assert!(flow.on_arrived(BIDI).is_ok());
    let code = flow.on_arrived(BIDI).unwrap_err().code;
    assert_eq!(code, Code::WEBTRANSPORT_FLOW_CONTROL_ERROR);
    flow.on_closed(UNI);
    assert_eq!(flow.grant_streams(UNI), None, "less than an eighth");
    flow.on_closed(UNI);
    assert_eq!(flow.grant_streams(UNI), Some(capsule(MAX_STREAMS_UNI, 18)));
}

#[test]
fn streams_rejected_before_the_session_do_not_cost_credit() {
    let mut flow = SessionFlow::new(OWN, OWN, [2, 0]);
    assert_eq!(flow.grant_streams(BIDI), Some(capsule(MAX_STREAMS_BIDI, 4)));
    assert_eq!(flow.grant_data(0, 0), Some(capsule(MAX_DATA, 1_600)));
}

#[test]
fn being_blocked_is_told_once_for_each_limit() {
    let mut flow = flow();
    assert_eq!(flow.data_blocked(), Some(capsule(DATA_BLOCKED, 800)));
    assert_eq!(flow.data_blocked(), None);
    assert_eq!(read(&mut flow, MAX_DATA, 801), Ok(FlowUpdate::Data(801)));
    assert_eq!(flow.data_blocked(), Some(capsule(DATA_BLOCKED, 801)));
    let blocked = flow.streams_blocked(BIDI);
    assert_eq!(blocked, Some(capsule(STREAMS_BLOCKED_BIDI, 2)));
    assert_eq!(flow.streams_blocked(BIDI), None);
    let blocked = flow.streams_blocked(UNI);
    assert_eq!(blocked, Some(capsule(STREAMS_BLOCKED_UNI, 16)));
}

#[test]
fn limits_that_do_not_rise_are_violations() {
    let violation = Err(Code::WEBTRANSPORT_FLOW_CONTROL_ERROR);
    for (kind, limit) in [
        (MAX_DATA, 800),
        (MAX_STREAMS_BIDI, 2),
        (MAX_STREAMS_UNI, 16),
    ] {
        for wrong in [limit, limit - 1, 0] {
            assert_eq!(read(&mut flow(), kind, wrong), violation, "{kind:#x}");
        }
        assert!(read(&mut flow(), kind, limit + 1).is_ok());
    }
    let most = MAX_STREAM_COUNT;
    for kind in [
        MAX_STREAMS_BIDI,
        MAX_STREAMS_UNI,
        STREAMS_BLOCKED_BIDI,
        STREAMS_BLOCKED_UNI,
    ] {
        assert!(read(&mut flow(), kind, most).is_ok());
        assert_eq!(read(&mut flow(), kind, most + 1), violation);
    }
}

#[test]
fn forbidden_and_malformed_capsules_are_message_errors() {
    for kind in [MAX_STREAM_DATA, STREAM_DATA_BLOCKED] {
        assert_eq!(read(&mut flow(), kind, 9_999), Err(Code::MESSAGE_ERROR));
    }
    for value in [&b""[..], &[0x40], &[0xc0, 0, 0], &[0x05, 0x05]] {
        let read = flow().on_capsule(MAX_DATA, &Bytes::from_static(value));
        assert_eq!(read.unwrap_err().code, Code::MESSAGE_ERROR);
    }
}

/// What the peer of a session does about streams, as far as it keeps to its limits, and the
/// application here.
#[derive(Clone, Copy, Debug)]
enum StreamStep {
    /// The peer opens as many as this, if it may.
    Arrive(u8),
    /// One of those that are open is over.
    Close,
    /// What is due is sent, and arrives.
    Grant,
}

/// Both windows and every order of a few steps: the peer never has more streams open than the
/// window, is never left without credit that it needs, and is stopped at its limit exactly.
#[test]
fn credit_for_streams_never_exceeds_the_window_and_never_runs_dry() {
    const STEPS: [StreamStep; 4] = [
        StreamStep::Arrive(1),
        StreamStep::Arrive(8),
        StreamStep::Close,
        StreamStep::Grant,
    ];
    const DEPTH: u32 = 6;
    for kind in BOTH {
        for (window, rejected) in [(0, 0), (1, 0), (1, 1), (2, 1), (8, 0), (9, 2), (16, 16)] {
            for order in 0..STEPS.len().pow(DEPTH) {
                let step = |n| STEPS[order / STEPS.len().pow(n) % STEPS.len()];
                let steps: Vec<StreamStep> = (0..DEPTH).map(step).collect();
                check_streams(kind, window, rejected, &steps);
            }
        }
    }
}

fn check_streams(kind: Directionality, window: u64, rejected: u64, steps: &[StreamStep]) {
    let own = SessionLimits {
        data: 1,
        bidi_streams: window,
        uni_streams: window,
    };
    let mut flow = SessionFlow::new(own, SessionLimits::default(), [rejected; 2]);
    // What the peer knows: it has opened those that were rejected too.
    let (mut limit, mut opened, mut closed) = (window, rejected, rejected);
    for step in steps {
        match step {
            StreamStep::Arrive(count) => {
                for _ in 0..*count {
                    if opened < limit {
                        opened += 1;
                        assert_eq!(flow.on_arrived(kind), Ok(()), "{steps:?}");
                    }
                }
            }
            StreamStep::Close if closed < opened => {
                closed += 1;
                flow.on_closed(kind);
            }
            StreamStep::Close => {}
            StreamStep::Grant => {
                if let Some(grant) = flow.grant_streams(kind) {
                    let expected = match kind {
                        BIDI => MAX_STREAMS_BIDI,
                        UNI => MAX_STREAMS_UNI,
                    };
                    assert_eq!(grant.kind, expected);
                    assert!(
                        value(&grant) > limit,
                        "{steps:?}: a limit that does not rise"
                    );
                    limit = value(&grant);
                }
                let step = (window / UPDATES).max(1);
                assert!(
                    limit.max(window) + step > closed + window,
                    "{steps:?}: runs dry"
                );
                assert_eq!(flow.grant_streams(kind), None, "{steps:?}: granted twice");
            }
        }
        assert!(opened - closed <= window.max(rejected), "{steps:?}");
    }
    // One more than it may open.
    let mut after = opened;
    while after < limit {
        after += 1;
        assert_eq!(flow.on_arrived(kind), Ok(()), "{steps:?}");
    }
    let violation = flow.on_arrived(kind).map_err(|error| error.code);
    assert_eq!(
        violation,
        Err(Code::WEBTRANSPORT_FLOW_CONTROL_ERROR),
        "{steps:?}"
    );
}

/// What this end opens, and the peer grants.
#[test]
fn opens_as_many_streams_as_the_peer_grants_and_tells_once_that_it_is_blocked() {
    for kind in BOTH {
        let other = match kind {
            BIDI => UNI,
            UNI => BIDI,
        };
        let (limits, blocked) = match kind {
            BIDI => (MAX_STREAMS_BIDI, STREAMS_BLOCKED_BIDI),
            UNI => (MAX_STREAMS_UNI, STREAMS_BLOCKED_UNI),
        };
        let peer = SessionLimits {
            bidi_streams: 3,
            uni_streams: 3,
            ..OWN
        };
        let mut flow = SessionFlow::new(OWN, peer, [7; 2]);
        let mut limit = 3;
        let mut opened = 0;
        for grant in [4, 10, 11, MAX_STREAM_COUNT] {
            while opened < limit {
                assert!(flow.may_open(kind), "{opened} of {limit}");
                flow.on_opened(kind);
                opened += 1;
            }
            assert!(!flow.may_open(kind));
            assert!(
                flow.may_open(other),
                "the other kind has a limit of its own"
            );
            assert_eq!(flow.streams_blocked(kind), Some(capsule(blocked, limit)));
            assert_eq!(flow.streams_blocked(kind), None);
            let raised = FlowUpdate::Streams { kind, needed: true };
            assert_eq!(read(&mut flow, limits, grant), Ok(raised));
            limit = grant;
            assert!(flow.may_open(kind));
            if grant == MAX_STREAM_COUNT {
                break;
            }
        }
        let code = Err(Code::WEBTRANSPORT_FLOW_CONTROL_ERROR);
        assert_eq!(read(&mut flow, limits, MAX_STREAM_COUNT), code);
    }
}

#[test]
fn raised_limit_is_needed_once_half_of_the_streams_were_opened() {
    for opened in 0..=16 {
        let mut flow = flow();
        (0..opened).for_each(|_| flow.on_opened(UNI));
        let raised = FlowUpdate::Streams {
            kind: UNI,
            needed: opened >= 8,
        };
        assert_eq!(read(&mut flow, MAX_STREAMS_UNI, 17), Ok(raised), "{opened}");
    }
}

#[test]
fn peer_is_blocked_anew_once_for_each_limit_that_it_was_given() {
    for (kind, granted) in [
        (DATA_BLOCKED, 800),
        (STREAMS_BLOCKED_BIDI, 2),
        (STREAMS_BLOCKED_UNI, 16),
    ] {
        let mut flow = flow();
        let told = |is_new| Ok(FlowUpdate::Blocked { is_new });
        assert_eq!(
            read(&mut flow, kind, granted + 1),
            told(false),
            "never given"
        );
        assert_eq!(read(&mut flow, kind, 0), told(false));
        assert_eq!(read(&mut flow, kind, granted - 1), told(true), "a late one");
        assert_eq!(read(&mut flow, kind, granted), told(true));
        assert_eq!(read(&mut flow, kind, granted), told(false));
        assert_eq!(read(&mut flow, kind, granted - 1), told(false));
    }
}

#[test]
fn session_has_flow_control_if_any_limit_is_not_0() {
    for bits in 0..8_u64 {
        let limits = SessionLimits {
            data: bits & 1,
            bidi_streams: bits >> 1 & 1,
            uni_streams: bits >> 2,
        };
        assert_eq!(limits.is_enabled(), bits != 0);
        for other in 0..8_u64 {
            let earlier = SessionLimits {
                data: other & 1,
                bidi_streams: other >> 1 & 1,
                uni_streams: other >> 2,
            };
            assert_eq!(
                limits.covers(earlier),
                bits & other == other,
                "{bits} {other}"
            );
        }
    }
}

#[test]
fn kinds_of_flow_control_are_recognised_and_no_others() {
    let kinds = [
        MAX_DATA,
        MAX_STREAM_DATA,
        MAX_STREAMS_BIDI,
        MAX_STREAMS_UNI,
        DATA_BLOCKED,
        STREAM_DATA_BLOCKED,
        STREAMS_BLOCKED_BIDI,
        STREAMS_BLOCKED_UNI,
    ];
    for kind in MAX_DATA - 10..STREAMS_BLOCKED_UNI + 10 {
        assert_eq!(is_flow_control(kind), kinds.contains(&kind), "{kind:#x}");
    }
}

/// What happens to the data of a session.
#[derive(Clone, Copy, Debug)]
enum DataStep {
    /// The peer sends this much of what it may.
    Send(u64),
    /// The application reads this much of what has arrived.
    Consume(u64),
    /// The connection's window has this size now, and the marks are looked at.
    Look(u64),
}

fn data_step() -> impl Strategy<Value = DataStep> {
    let number = || prop_oneof![4 => 0..2_000_u64, 1 => Just(1_u64 << 55), 1 => Just(u64::MAX)];
    let window = prop_oneof![3 => Just(0_u64), 2 => 0..4_000_u64, 1 => Just(1_u64 << 55)];
    prop_oneof![
        3 => number().prop_map(DataStep::Send),
        3 => number().prop_map(DataStep::Consume),
        4 => window.prop_map(DataStep::Look),
    ]
}

proptest! {
    /// Whatever is sent and read, and however the connection's window moves: limits only rise, they
    /// leave the peer an eighth less than a window at least, nothing is due before the marks, and
    /// what exceeds the limit by one byte is a violation.
    #[test]
    fn credit_for_data_only_rises_and_never_runs_dry(
        initial in prop_oneof![Just(0_u64), Just(1), Just(7), Just(8), 9..3_000_u64, Just(1 << 55)],
        rejected in 0..2_u64,
        steps in proptest::collection::vec(data_step(), 1..60),
    ) {
        let own = SessionLimits { data: initial, bidi_streams: 1, uni_streams: 1 };
        let mut flow = SessionFlow::new(own, OWN, [rejected, 0]);
        // A rejected stream has used all of the initial credit at most.
        let lost = if rejected > 0 { initial } else { 0 };
        let (mut limit, mut received, mut consumed) = (initial, 0_u64, 0_u64);
        for step in steps {
            match step {
                DataStep::Send(len) => received += len.min(limit - received),
                DataStep::Consume(len) => consumed += len.min(received - consumed),
                DataStep::Look(size) => {
                    let window = size.max(initial);
                    let due = flow.marks().consumed;
                    let grant = flow.grant_data(consumed, size);
                    if let Some(grant) = &grant {
                        prop_assert_eq!(grant.kind, MAX_DATA);
                        prop_assert!(value(grant) > limit);
                        limit = value(grant);
                        prop_assert_eq!(limit, consumed + lost + window);
                    } else if size <= initial {
                        prop_assert!(consumed < flow.marks().consumed, "due, and not granted");
                    }
                    prop_assert!(consumed >= due || size > initial || grant.is_none() || due == 0);
                    let step = (window / UPDATES).max(1);
                    prop_assert!(limit + step > consumed + lost + window, "runs dry");
                    prop_assert!(flow.marks().consumed > consumed, "reported for ever");
                    prop_assert_eq!(flow.grant_data(consumed, size), None, "granted twice");
                }
            }
            prop_assert_eq!(flow.marks().received, limit);
            prop_assert!(flow.check_received(received).is_ok());
            prop_assert!(flow.check_received(limit).is_ok());
            let exceeded = flow.check_received(limit + 1).map_err(|error| error.code);
            prop_assert_eq!(exceeded, Err(Code::WEBTRANSPORT_FLOW_CONTROL_ERROR));
        }
    }

    /// Any capsule at all: a limit is taken exactly if it is a rising integer, and nothing else
    /// changes one.
    #[test]
    fn any_capsule_raises_a_limit_or_is_an_error_with_its_code(
        kind in MAX_DATA..=STREAMS_BLOCKED_UNI,
        number in prop_oneof![0..20_u64, 795..805_u64, MAX_STREAM_COUNT - 1..MAX_STREAM_COUNT + 2],
        extra in 0..3_usize,
        cut in 0..9_usize,
    ) {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, number);
        let whole = bytes.len();
        bytes.truncate(whole.saturating_sub(cut));
        let malformed = bytes.len() < whole || extra > 0;
        bytes.resize(bytes.len() + extra, 0xff);
        let mut flow = flow();
        let read = flow.on_capsule(kind, &bytes.into()).map_err(|error| error.code);
        let before = match kind {
            MAX_STREAMS_BIDI | STREAMS_BLOCKED_BIDI => 2,
            MAX_STREAMS_UNI | STREAMS_BLOCKED_UNI => 16,
            _ => 800,
        };
        let is_data = matches!(kind, MAX_DATA | DATA_BLOCKED);
        let violation = Err(Code::WEBTRANSPORT_FLOW_CONTROL_ERROR);
        let is_limit = matches!(kind, MAX_DATA | MAX_STREAMS_BIDI | MAX_STREAMS_UNI);
        match kind {
            _ if malformed => {
                // Cut and padded, it may be an integer again, of another length.
                if cut == 0 || extra == 0 {
                    prop_assert_eq!(read, Err(Code::MESSAGE_ERROR));
                }
            }
            MAX_STREAM_DATA | STREAM_DATA_BLOCKED => {
                prop_assert_eq!(read, Err(Code::MESSAGE_ERROR));
            }
            _ if !is_data && number > MAX_STREAM_COUNT => prop_assert_eq!(read, violation),
            _ if is_limit && number <= before => prop_assert_eq!(read, violation),
            MAX_DATA => {
                prop_assert_eq!(read, Ok(FlowUpdate::Data(number)));
                prop_assert_eq!(flow.limit(), number);
            }
            MAX_STREAMS_BIDI | MAX_STREAMS_UNI => {
                let raised = matches!(read, Ok(FlowUpdate::Streams { needed: false, .. }));
                prop_assert!(raised, "{:?}", read);
            }
            _ => {
                let is_new = number > 0 && number <= before;
                prop_assert_eq!(read, Ok(FlowUpdate::Blocked { is_new }));
            }
        }
        if kind != MAX_DATA {
            prop_assert_eq!(flow.limit(), 800);
        }
    }
}
