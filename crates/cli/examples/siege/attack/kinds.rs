//! The list of attackers.

use super::acks::Acks;
use super::addresses::Flap;
use super::connection_holders::ConnectionHolders;
use super::fragments::Fragments;
use super::frames::{ControlFrames, IdChurn, KeyUpdates};
use super::garbage::{Garbage, GarbageFlood};
use super::handshake_holders::{Content, HandshakeHolders};
use super::handshakes::{Handshakes, Hellos, Replays};
use super::icmp::Icmp;
use super::qpack::{Blocked, Inserts};
use super::readers::{DribblingReaders, SlowReaders};
use super::relay::{Meddling, Relay};
use super::requests::{ControlStreamFrames, DribbledHeaders, UselessStreams};
use super::resets::{Pace, Reset, Resets};
use super::uploads::Uploads;
use super::{Kind, Victims};

/// A kind that attacks the server only.
macro_rules! kind {
    ($name:literal, $about:literal, $make:expr) => {
        Kind {
            name: $name,
            about: $about,
            victims: Victims::None,
            gathers: false,
            make: |context| Ok(Box::new($make(context)?)),
        }
    };
}

/// All kinds of attackers.
pub(crate) const KINDS: &[Kind] = &[
    kind!(
        "flapping-addresses",
        "30 clients whose packets alternate between two or three source addresses",
        Flap::new
    ),
    Kind {
        victims: Victims::Transfers,
        ..kind!(
            "spoofed-copies",
            "copies of a client's packets from spoofed addresses, ahead of the packets",
            |context| Relay::new(context, Meddling::Copies)
        )
    },
    kind!(
        "icmp",
        "forged ICMP errors of every type and code (needs root)",
        Icmp::new
    ),
    kind!(
        "slow-readers",
        "20 connections that grant no credit, with as many GETs of 8 MiB as allowed",
        |context| SlowReaders::new(context, 20, "/8m")
    ),
    kind!(
        "slow-listings",
        "6 such connections, with GETs of a directory of 20,000 entries",
        |context| SlowReaders::new(context, 6, "/listing/")
    ),
    kind!(
        "dribbling-readers",
        "20 connections that read four bytes of each response at a time",
        |context| DribblingReaders::new(context, "/8m")
    ),
    kind!(
        "handshake-pings",
        "10,000 handshakes of Initials with only a PING, from 64 addresses",
        |context| HandshakeHolders::new(context, Content::Pings)
    ),
    kind!(
        "partial-hellos",
        "10,000 handshakes whose ClientHello arrives byte by byte",
        |context| HandshakeHolders::new(context, Content::PartialHello)
    ),
    Kind {
        gathers: true,
        ..kind!(
            "held-connections",
            "10,000 established connections from 250 addresses, kept open by PINGs",
            ConnectionHolders::new
        )
    },
    kind!(
        "fragments",
        "400 connections with one-byte STREAM frames 32 KiB apart, up to the credit",
        Fragments::new
    ),
    kind!(
        "reset-files",
        "16 connections that request a file and reset, as fast as credit allows",
        |context| Resets::new(context, 16, "/1m", Reset::Own, Pace::UNBOUNDED)
    ),
    kind!(
        "reset-listings",
        "4 such connections, with requests for a directory of 20,000 entries",
        |context| Resets::new(context, 4, "/listing/", Reset::Own, Pace::UNBOUNDED)
    ),
    kind!(
        "abandoned-listings",
        "3 such connections that stay just below the limits of HTTP/3",
        |context| Resets::new(context, 3, "/listing/", Reset::Own, Pace::WITHIN_LIMITS)
    ),
    kind!(
        "made-you-reset",
        "8 connections whose requests provoke resets by the server",
        |context| Resets::new(context, 8, "/listing/", Reset::Provoked, Pace::UNBOUNDED)
    ),
    kind!(
        "dribbled-uploads",
        "16 connections with as many PUTs as allowed, byte by byte",
        Uploads::new
    ),
    kind!(
        "qpack-inserts",
        "16 connections with endless insertions into the dynamic table",
        Inserts::new
    ),
    kind!(
        "qpack-blocked",
        "200 connections with 16 blocked field sections each, followed by bodies",
        Blocked::new
    ),
    kind!(
        "dribbled-headers",
        "20 connections with as many field sections as allowed, byte by byte",
        |context| DribbledHeaders::new(context, 20, 0)
    ),
    kind!(
        "stalled-headers",
        "60 connections with as many field sections as allowed, 50 kB at once each",
        |context| DribbledHeaders::new(context, 60, 50_000)
    ),
    kind!(
        "useless-streams",
        "16 connections that open and end unidirectional streams of reserved types",
        UselessStreams::new
    ),
    kind!(
        "control-stream",
        "15 connections with floods of PRIORITY_UPDATE, MAX_PUSH_ID, GOAWAY, …",
        ControlStreamFrames::new
    ),
    kind!(
        "control-frames",
        "18 connections with packets full of PATH_CHALLENGE, MAX_*, *_BLOCKED, …",
        ControlFrames::new
    ),
    kind!(
        "connection-ids",
        "18 connections that retire connection IDs of both ends",
        IdChurn::new
    ),
    kind!(
        "key-updates",
        "18 connections that update keys as soon as permitted, or sooner",
        KeyUpdates::new
    ),
    kind!(
        "acks",
        "9 downloads with optimistic, repeated and range-rich ACKs",
        |context| Acks::new(context, "/8m")
    ),
    kind!(
        "hello-flood",
        "complete ClientHellos from 200 addresses that read no answer",
        Hellos::new
    ),
    kind!(
        "handshake-flood",
        "completed handshakes from 200 addresses, whose connections are abandoned",
        Handshakes::new
    ),
    kind!(
        "zero-rtt-replays",
        "captured first flights with 0-RTT requests, replayed from 200 addresses",
        Replays::new
    ),
    kind!("garbage", "random bytes of every size", |context| {
        GarbageFlood::new(context, Garbage::Random)
    }),
    kind!(
        "stray-packets",
        "short headers with unknown connection IDs, which provoke stateless resets",
        |context| GarbageFlood::new(context, Garbage::Strays)
    ),
    kind!(
        "version-probes",
        "packets of unknown versions, which provoke Version Negotiation",
        |context| GarbageFlood::new(context, Garbage::Versions)
    ),
    Kind {
        victims: Victims::Handshakes,
        ..kind!(
            "forged-retry",
            "forged Retry packets to clients, with tokens of many sizes",
            |context| Relay::new(context, Meddling::Retry)
        )
    },
    Kind {
        victims: Victims::Handshakes,
        ..kind!(
            "forged-negotiation",
            "forged Version Negotiation packets to clients",
            |context| Relay::new(context, Meddling::Negotiation)
        )
    },
];

/// The kind with this name.
pub(crate) fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}
