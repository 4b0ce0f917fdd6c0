//! The list of attacks.

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

/// A row of the list.
macro_rules! kind {
    ($name:literal, $about:literal, $make:expr) => {
        Kind {
            name: $name,
            about: $about,
            victims: Victims::None,
            gathers: false,
            make: |field| Ok(Box::new($make(field)?)),
        }
    };
}

/// Every kind of attack there is.
pub(crate) const KINDS: &[Kind] = &[
    kind!(
        "flapping-addresses",
        "30 clients whose source address alternates A, B (and C); nothing returns through B or C",
        Flap::new
    ),
    Kind {
        victims: Victims::Transfers,
        ..kind!(
            "spoofed-copies",
            "copies of a client's genuine packets arrive first, and from another address",
            |field| Relay::new(field, Meddling::Copies)
        )
    },
    kind!(
        "icmp",
        "ICMP of every type and code that quotes the server's datagrams (needs root)",
        Icmp::new
    ),
    kind!(
        "slow-readers",
        "20 connections with no credit at all, as many GETs of 8 MiB as there may be, PINGs",
        |field| SlowReaders::new(field, 20, "/8m")
    ),
    kind!(
        "slow-listings",
        "6 such connections that ask for a folder of 20,000 entries",
        |field| SlowReaders::new(field, 6, "/listing/")
    ),
    kind!(
        "dribbling-readers",
        "20 connections that take four bytes of each answer at a time",
        |field| DribblingReaders::new(field, "/8m")
    ),
    kind!(
        "handshake-pings",
        "10,000 handshakes of Initials with only a PING, refreshed, from 64 addresses",
        |field| HandshakeHolders::new(field, Content::Pings)
    ),
    kind!(
        "partial-hellos",
        "10,000 handshakes whose ClientHello comes byte by byte",
        |field| HandshakeHolders::new(field, Content::PartialHello)
    ),
    Kind {
        gathers: true,
        ..kind!(
            "held-connections",
            "10,000 established connections from 250 addresses, kept by PINGs",
            ConnectionHolders::new
        )
    },
    kind!(
        "fragments",
        "400 connections with one-byte STREAM frames 32 KiB apart, as far as credit goes",
        Fragments::new
    ),
    kind!(
        "reset-files",
        "16 connections that ask for a file and give the request up, as fast as credit allows",
        |field| Resets::new(field, 16, "/1m", Reset::Own, Pace::UNBOUNDED)
    ),
    kind!(
        "reset-listings",
        "the same on a folder of 20,000 entries, from 4 connections",
        |field| Resets::new(field, 4, "/listing/", Reset::Own, Pace::UNBOUNDED)
    ),
    kind!(
        "abandoned-listings",
        "3 connections that give up listings just slowly enough for the limits",
        |field| Resets::new(field, 3, "/listing/", Reset::Own, Pace::WITHIN_LIMITS)
    ),
    kind!(
        "made-you-reset",
        "8 connections whose requests make the server reset them",
        |field| Resets::new(field, 8, "/listing/", Reset::Provoked, Pace::UNBOUNDED)
    ),
    kind!(
        "dribbled-uploads",
        "16 connections with as many PUTs as there may be, byte by byte",
        Uploads::new
    ),
    kind!(
        "qpack-inserts",
        "16 connections that rewrite the dynamic table without end",
        Inserts::new
    ),
    kind!(
        "qpack-blocked",
        "200 connections with 16 requests each that wait for insertions, with a body behind",
        Blocked::new
    ),
    kind!(
        "dribbled-headers",
        "20 connections with as many header sections as there may be, byte by byte",
        |field| DribbledHeaders::new(field, 20, 0)
    ),
    kind!(
        "stalled-headers",
        "60 connections whose header sections stop at 50 kB, and go on byte by byte",
        |field| DribbledHeaders::new(field, 60, 50_000)
    ),
    kind!(
        "useless-streams",
        "16 connections that open and end unidirectional streams without meaning",
        UselessStreams::new
    ),
    kind!(
        "control-stream",
        "15 connections with reserved frames, PRIORITY_UPDATE, MAX_PUSH_ID, GOAWAY, SETTINGS",
        ControlStreamFrames::new
    ),
    kind!(
        "control-frames",
        "18 connections with packets full of PATH_CHALLENGE, MAX_*, *_BLOCKED, STOP_SENDING, …",
        ControlFrames::new
    ),
    kind!(
        "connection-ids",
        "18 connections that issue and retire connection IDs on both sides",
        IdChurn::new
    ),
    kind!(
        "key-updates",
        "18 connections that update keys as soon as they may, or sooner",
        KeyUpdates::new
    ),
    kind!(
        "acks",
        "9 downloads with optimistic, repeated and range-rich ACKs",
        |field| Acks::new(field, "/8m")
    ),
    kind!(
        "hello-flood",
        "ClientHellos of ever new clients from 200 addresses that never answer",
        Hellos::new
    ),
    kind!(
        "handshake-flood",
        "handshakes completed, with Retry where asked for, and left alone",
        Handshakes::new
    ),
    kind!(
        "zero-rtt-replays",
        "captured first flights with 0-RTT requests, played again from 200 addresses",
        Replays::new
    ),
    kind!("garbage", "random bytes of every size", |field| {
        GarbageFlood::new(field, Garbage::Random)
    }),
    kind!(
        "stray-packets",
        "short headers with unknown connection IDs, which ask for stateless resets",
        |field| GarbageFlood::new(field, Garbage::Strays)
    ),
    kind!(
        "version-probes",
        "1,200-byte packets of unknown versions, which ask for Version Negotiation",
        |field| GarbageFlood::new(field, Garbage::Versions)
    ),
    Kind {
        victims: Victims::Handshakes,
        ..kind!(
            "forged-retry",
            "clients' Initials are answered by forged Retry packets with tokens of every size",
            |field| Relay::new(field, Meddling::Retry)
        )
    },
    Kind {
        victims: Victims::Handshakes,
        ..kind!(
            "forged-negotiation",
            "clients' Initials are answered by forged Version Negotiation packets",
            |field| Relay::new(field, Meddling::Negotiation)
        )
    },
];

/// The kind with this name.
pub(crate) fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}
