//! The operations, and how they are drawn at random.

use proptest::prelude::*;

/// The path once it is well again.
pub(crate) const HEALED: &str = "rate=50M delay=10ms queue=250";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Client,
    Server,
}

impl End {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// What one application or the network does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Open(End, bool),
    Write(End, usize, usize),
    Finish(End, usize),
    Reset(End, usize),
    Stop(End, usize),
    Read(End, usize),
    Datagram(End, usize),
    UpdateKeys(End),
    RotateIds(End),
    Ping(End),
    Rebind,
    /// The NAT gives the client an outside address that it had before.
    Return(u8),
    Migrate,
    /// Somebody who sees the client's next datagrams sends copies of them from
    /// an address of their own, ahead of the originals.
    Copy(u8, u8),
    /// Somebody sends an earlier datagram of the client's once more, from an
    /// address of their own.
    Replay(usize, u8),
    /// The socket answers the next datagrams with an error.
    Socket(End, u8, Refusal),
    /// The host was suspended: the clock jumps, and every timer is late.
    Jump(u64),
    Close(End),
    Network(Fault),
    Run(u64),
}

/// What the socket makes of a train.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// ENETUNREACH, EPERM and the like: it is gone.
    Lost,
    /// EMSGSIZE.
    TooLarge,
}

#[derive(Clone, Debug)]
pub(crate) enum Fault {
    Clean,
    Loss(u8),
    Duplicate(u8),
    Reorder(u8, u8),
    Corrupt(u8),
    Jitter(u8),
    Slow,
    Blackhole,
}

impl Fault {
    pub(crate) fn settings(&self) -> String {
        match self {
            Self::Clean => HEALED.into(),
            Self::Loss(p) => format!("{HEALED} loss={p}%"),
            Self::Duplicate(p) => format!("{HEALED} duplicate={p}%"),
            Self::Reorder(p, by) => format!("{HEALED} reorder={p}%:{by}ms"),
            Self::Corrupt(p) => format!("{HEALED} corrupt={p}%"),
            Self::Jitter(max) => format!("{HEALED} jitter={max}ms"),
            Self::Slow => "rate=300k delay=80ms queue=8".into(),
            Self::Blackhole => format!("{HEALED} loss=100%"),
        }
    }
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![Just(End::Client), Just(End::Server)]
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        3 => Just(Fault::Clean),
        3 => (1..50u8).prop_map(Fault::Loss),
        1 => (1..60u8).prop_map(Fault::Duplicate),
        2 => (1..60u8, 1..60u8).prop_map(|(p, by)| Fault::Reorder(p, by)),
        1 => (1..30u8).prop_map(Fault::Corrupt),
        1 => (1..30u8).prop_map(Fault::Jitter),
        1 => Just(Fault::Slow),
        1 => Just(Fault::Blackhole),
    ]
}

fn refusal() -> impl Strategy<Value = Refusal> {
    prop_oneof![Just(Refusal::Lost), Just(Refusal::TooLarge)]
}

fn op() -> impl Strategy<Value = Op> {
    let which = 0..8usize;
    prop_oneof![
        6 => (end(), any::<bool>()).prop_map(|(end, uni)| Op::Open(end, uni)),
        10 => (end(), which.clone(), prop_oneof![0..2_000usize, 0..200_000usize])
            .prop_map(|(end, which, len)| Op::Write(end, which, len)),
        5 => (end(), which.clone()).prop_map(|(end, which)| Op::Finish(end, which)),
        1 => (end(), which.clone()).prop_map(|(end, which)| Op::Reset(end, which)),
        1 => (end(), which).prop_map(|(end, which)| Op::Stop(end, which)),
        6 => (end(), 0..300_000usize).prop_map(|(end, max)| Op::Read(end, max)),
        2 => (end(), 1..1_500usize).prop_map(|(end, len)| Op::Datagram(end, len)),
        2 => end().prop_map(Op::UpdateKeys),
        2 => end().prop_map(Op::RotateIds),
        1 => end().prop_map(Op::Ping),
        2 => Just(Op::Rebind),
        2 => any::<u8>().prop_map(Op::Return),
        2 => (1..5u8, 0..3u8).prop_map(|(count, from)| Op::Copy(count, from)),
        2 => (0..64usize, 0..3u8).prop_map(|(which, from)| Op::Replay(which, from)),
        2 => (end(), 1..6u8, refusal()).prop_map(|(end, count, what)| Op::Socket(end, count, what)),
        1 => (0..20_000u64).prop_map(Op::Jump),
        2 => Just(Op::Migrate),
        4 => fault().prop_map(Op::Network),
        16 => (0..400u64).prop_map(Op::Run),
    ]
}

/// Most sequences end with the streams; some with a close before that.
pub(crate) fn ops() -> impl Strategy<Value = Vec<Op>> {
    (
        prop::collection::vec(op(), 1..60),
        prop::option::weighted(0.1, (end(), 0..60usize)),
    )
        .prop_map(|(mut ops, close)| {
            if let Some((end, at)) = close {
                ops.insert(at.min(ops.len()), Op::Close(end));
            }
            ops
        })
}
