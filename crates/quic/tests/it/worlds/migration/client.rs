//! A client connection with three addresses, whose server prefers another one.

use std::time::Duration;

use clearway_quic::Role;
use clearway_quic::connection::MigrateError;
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
    /// The server's preferred address, from wherever the client is.
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
            Self::A => ("10.0.0.2:443", Some("10.0.0.1")),
            Self::B => ("10.0.0.2:443", Some("10.0.3.2")),
            Self::C => ("10.0.0.2:443", Some("10.0.3.3")),
            Self::Preferred => ("10.0.0.77:443", None),
        };
        Addresses {
            remote: address(remote),
            local_ip: local.map(|ip| ip.parse().expect("an address")),
        }
    }
}

const LOCATIONS: [Location; 4] = [Location::A, Location::B, Location::C, Location::Preferred];

fn letter(addresses: &Addresses) -> char {
    let preferred = Location::Preferred.addresses().remote;
    let at = LOCATIONS.iter().find(|at| {
        at.addresses() == *addresses
            || (**at == Location::Preferred && addresses.remote == preferred)
    });
    at.expect("one of ours").letter()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// The application moves there at once.
    Migrate(Location),
    /// The application has it probed, and moves there once it works.
    Probe(Location),
    /// The server sends a packet with data there.
    Data(Location),
    /// The server sends a PATH_CHALLENGE there.
    Challenge(Location),
    /// The answer to the newest challenge sent from there.
    Response(Location),
    /// An answer to nothing.
    WrongResponse,
    /// So many milliseconds pass.
    Wait(u64),
    /// The server retires all its connection IDs but a fresh one.
    ReplaceCids,
}

pub(super) struct ClientWorld(Victim);

impl ClientWorld {
    pub(super) fn new() -> Self {
        let mut setup = Setup::new();
        setup.preferred = Some("10.0.0.77:443".parse().expect("an address"));
        Self(Victim::new(Role::Client, setup, letter))
    }
}

impl World for ClientWorld {
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
            Event::Migrate(Location::A),
            Event::Migrate(Location::B),
            Event::Probe(Location::B),
            Event::Probe(Location::C),
        ];
        for at in LOCATIONS {
            events.extend([Event::Data(at), Event::Challenge(at)]);
            if self.0.was_challenged(at.letter()) {
                events.push(Event::Response(at));
            }
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        let victim = &mut self.0;
        let (now, before) = (victim.now(), victim.active());
        match *event {
            Event::Migrate(at) => {
                let to = at.addresses().local_ip;
                match victim.connection.migrate(now, to) {
                    Ok(()) => {
                        let active = victim.connection.paths().active().addresses();
                        assert_eq!(active.local_ip, to, "it moves at once");
                    }
                    Err(MigrateError::NoConnectionId) => assert_eq!(victim.active(), before),
                    Err(error) => panic!("{error}"),
                }
            }
            Event::Probe(at) => {
                let to = at.addresses().local_ip.expect("an address of ours");
                match victim.connection.probe(now, to) {
                    Ok(()) | Err(MigrateError::NoConnectionId) => {}
                    Err(error) => panic!("{error}"),
                }
                assert_eq!(victim.active(), before, "it moves once it is answered");
            }
            Event::Data(at) => {
                victim.hear(&at.addresses(), PING);
                assert_eq!(victim.active(), before, "a server does not move a client");
            }
            Event::Challenge(at) => {
                victim.challenge(&at.addresses());
                assert_eq!(victim.active(), before, "a server does not move a client");
            }
            Event::Response(at) => victim.answer(at.letter(), &Location::A.addresses()),
            Event::WrongResponse => {
                let wrong = bytes(&Frame::PathResponse([0xff; 8]));
                victim.hear(&Location::A.addresses(), &wrong);
                assert_eq!(victim.active(), before, "a wrong answer");
            }
            Event::Wait(millis) => victim.wait(Duration::from_millis(millis)),
            Event::ReplaceCids => victim.replace_cids(&Location::A.addresses()),
        }
        victim.flush();
    }

    fn check(&self) -> Result<(), String> {
        self.0.check(false)
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.0.fingerprint()
    }
}
