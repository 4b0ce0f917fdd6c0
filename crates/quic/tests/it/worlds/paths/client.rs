//! A client with three addresses, whose server has a preferred address.

use clearway_quic::Role;
use clearway_quic::testing::Addresses;

use super::network::{FULL, Network, PTO};
use clearway_testing::explore::World;

/// Which address of the client's, and which of the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Location {
    A,
    B,
    C,
    /// The server's preferred address, from wherever the client is.
    Preferred,
}

const LOCATIONS: [Location; 4] = [Location::A, Location::B, Location::C, Location::Preferred];

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
        let (server, ours) = match self {
            Self::A => (1, Some(1)),
            Self::B => (1, Some(2)),
            Self::C => (1, Some(3)),
            Self::Preferred => (2, None),
        };
        Addresses {
            remote: ([192, 0, 2, server], 443).into(),
            local_ip: ours.map(|host| [10, 0, 0, host].into()),
        }
    }
}

fn letter(addresses: &Addresses) -> char {
    let preferred = Location::Preferred.addresses().remote;
    let at = LOCATIONS.iter().find(|at| {
        at.addresses() == *addresses
            || (**at == Location::Preferred && addresses.remote == preferred)
    });
    at.expect("one of ours").letter()
}

/// What may happen to a client's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// The application moves to another address, at once.
    Migrate(Location),
    /// The application has another address probed, to move there once it works.
    Join(Location),
    /// The server sends a PATH_CHALLENGE.
    Challenge(Location),
    /// The answer to the newest challenge sent there.
    Response(Location),
    /// The answer to the one before, the newest being lost.
    OlderResponse(Location),
    /// An answer to nothing.
    WrongResponse,
    /// The answer to a challenge whose path is gone.
    StaleResponse,
    /// The clock reaches the next deadline. What was not answered by then is lost.
    Timeout,
    /// The server issues a connection ID more.
    IssueCid,
    /// The server retires all its connection IDs but a fresh one.
    ReplaceCids,
}

#[derive(Clone)]
pub(super) struct ClientWorld {
    network: Network,
}

impl ClientWorld {
    pub(super) fn new() -> Self {
        Self {
            network: Network::new(Role::Client, Location::A.addresses(), letter),
        }
    }

    /// RFC 9000 §9.6.1: a preferred address gets no data before it has answered.
    fn check_preferred(&self, before: &Addresses) {
        let active = self.network.paths.active().addresses();
        let preferred = Location::Preferred.addresses().remote;
        assert!(
            active.remote != preferred
                || before.remote == preferred
                || self.network.paths.is_active_validated(),
            "data to a preferred address that has not answered"
        );
    }
}

impl World for ClientWorld {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        if self.network.closed.is_some() {
            return Vec::new();
        }
        let mut events = vec![Event::WrongResponse, Event::ReplaceCids];
        for at in LOCATIONS {
            // Without a connection ID to spare `Connection` refuses both.
            if self.network.has_spare_cid() {
                events.push(Event::Join(at));
                if at != Location::Preferred {
                    events.push(Event::Migrate(at));
                }
            }
            events.push(Event::Challenge(at));
            match self.network.answerable(at.letter()) {
                0 => {}
                1 => events.push(Event::Response(at)),
                _ => events.extend([Event::Response(at), Event::OlderResponse(at)]),
            }
        }
        if self.network.has_stale_challenge() {
            events.push(Event::StaleResponse);
        }
        if self.network.next_timeout().is_some() {
            events.push(Event::Timeout);
        }
        if self.network.wants_cid() {
            events.push(Event::IssueCid);
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        let (now, before) = (self.network.now, self.network.paths.active().addresses());
        match *event {
            Event::Migrate(at) => {
                let to = at.addresses().local_ip;
                let effects = self.network.paths.migrate(now, PTO, to);
                self.network.apply(&effects.expect("may move"), 0);
                let active = self.network.paths.active().addresses();
                assert_eq!(active.local_ip, to, "it moves at once");
            }
            Event::Join(at) => {
                let effects = self.network.paths.probe(now, PTO, at.addresses());
                self.network.apply(&effects.expect("may move"), 0);
            }
            Event::Challenge(at) => {
                // Addresses that the client does not use do not hear the server.
                let known = |path: &clearway_quic::testing::Path| {
                    path.addresses().remote == at.addresses().remote
                };
                if self.network.paths.iter().any(known) {
                    self.network.challenge(&at.addresses(), FULL);
                }
            }
            Event::Response(at) => self.network.answer(at.letter(), true),
            Event::OlderResponse(at) => self.network.answer(at.letter(), false),
            Event::WrongResponse => self.network.answer_wrongly(),
            Event::StaleResponse => self.network.answer_stale_challenge(),
            Event::Timeout => self.network.expire(),
            Event::IssueCid => self.network.issue_cid(0),
            Event::ReplaceCids => self.network.replace_cids(),
        }
        self.check_preferred(&before);
        self.network.flush();
    }

    fn check(&self) -> Result<(), String> {
        self.network.check()
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.network.fingerprint()
    }
}
