//! A server connection whose client has three addresses.

use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::testing::Addresses;
use clearway_quic::wire::Frame;

use super::victim::{Victim, address};
use crate::hostile::pair::bytes;
use clearway_testing::Setup;
use clearway_testing::explore::World;

const PING: &[u8] = &[0x01];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Location {
    A,
    B,
    C,
    /// The first address, towards another one of the server's.
    Preferred,
}

impl Location {
    fn letter(self) -> char {
        match self {
            Self::A => 'A',
            Self::B => 'B',
            Self::C => 'C',
            Self::Preferred => 'P',
        }
    }

    fn addresses(self) -> Addresses {
        let (remote, local) = match self {
            Self::A => ("10.0.0.1:5000", "10.0.0.2"),
            Self::B => ("10.0.0.1:5001", "10.0.0.2"),
            Self::C => ("10.0.3.3:5000", "10.0.0.2"),
            Self::Preferred => ("10.0.0.1:5000", "10.0.0.77"),
        };
        Addresses {
            remote: address(remote),
            local_ip: Some(local.parse().expect("an address")),
        }
    }
}

const LOCATIONS: [Location; 4] = [Location::A, Location::B, Location::C, Location::Preferred];

fn letter(addresses: &Addresses) -> char {
    let at = LOCATIONS.iter().find(|at| at.addresses() == *addresses);
    at.expect("one of ours").letter()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// A new packet that is more than a probe.
    Data(Location),
    /// A packet that is more than a probe, sent before all others.
    LateData(Location),
    /// A copy of a packet that came long ago.
    Copy(Location),
    /// PATH_CHALLENGE.
    Probe(Location),
    /// The answer to the newest challenge sent there.
    Response(Location),
    /// An answer to nothing.
    WrongResponse,
    /// So many milliseconds pass.
    Wait(u64),
    /// The client retires all its connection IDs but a fresh one.
    ReplaceCids,
}

pub(super) struct ServerWorld(Victim);

impl ServerWorld {
    pub(super) fn new() -> Self {
        Self(Victim::new(Role::Server, Setup::new(), letter))
    }
}

impl World for ServerWorld {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        if !self.0.is_open() {
            return Vec::new();
        }
        let mut events = vec![
            Event::WrongResponse,
            Event::Wait(1_000),
            Event::Wait(4_000),
            Event::ReplaceCids,
            Event::LateData(Location::B),
            Event::Copy(Location::B),
        ];
        for at in LOCATIONS {
            events.extend([Event::Data(at), Event::Probe(at)]);
            if self.0.was_challenged(at.letter()) {
                events.push(Event::Response(at));
            }
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        let victim = &mut self.0;
        match *event {
            Event::Data(at) => {
                victim.hear(&at.addresses(), PING);
                let there = victim.active() == at.letter();
                let joins = victim.joins(at.letter());
                assert!(
                    there || joins || !victim.is_open(),
                    "the client is at {at:?}"
                );
            }
            Event::LateData(at) => {
                let before = victim.active();
                victim.hear_late(&at.addresses());
                assert_eq!(victim.active(), before, "an old packet moved it");
            }
            Event::Copy(at) => {
                let before = victim.active();
                victim.hear_copy(&at.addresses());
                assert_eq!(victim.active(), before, "a copy moved it");
            }
            Event::Probe(at) => {
                let before = victim.active();
                victim.challenge(&at.addresses());
                assert_eq!(victim.active(), before, "a probe moved it");
            }
            Event::Response(at) => victim.answer(at.letter(), &at.addresses()),
            Event::WrongResponse => {
                let wrong = bytes(&Frame::PathResponse([0xff; 8]));
                victim.hear(&Location::A.addresses(), &wrong);
            }
            Event::Wait(millis) => victim.wait(Duration::from_millis(millis)),
            Event::ReplaceCids => victim.replace_cids(&Location::A.addresses()),
        }
        victim.flush();
    }

    fn check(&self) -> Result<(), String> {
        self.0.check(true)
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.0.fingerprint()
    }
}
