//! A server whose client has three addresses, and which has two of its own.

use clearway_quic::Role;
use clearway_quic::testing::{Addresses, PathRole};

use super::network::{FULL, Network, PTO, SMALL};
use clearway_testing::explore::World;

/// Where a packet comes from: the client's address, and which of ours it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Location {
    A,
    B,
    C,
    /// The client's first address, towards the server's other (preferred) one.
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
        let (host, ours) = match self {
            Self::A => (1, 1),
            Self::B => (2, 1),
            Self::C => (3, 1),
            Self::Preferred => (1, 2),
        };
        Addresses {
            remote: ([10, 0, 0, host], 4433).into(),
            local_ip: Some([192, 0, 2, ours].into()),
        }
    }
}

fn letter(addresses: &Addresses) -> char {
    let at = LOCATIONS.iter().find(|at| at.addresses() == *addresses);
    at.expect("one of ours").letter()
}

/// What may happen to a server's paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Event {
    /// The newest packet, with data, in a datagram of so many bytes.
    Data(Location, usize),
    /// A packet with data that others with higher numbers have overtaken.
    LateData(Location),
    /// A copy of an old packet, or garbage: nothing but its size counts.
    Copy(Location),
    /// A packet with PATH_CHALLENGE.
    Probe(Location),
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
    /// The client issues a connection ID more.
    IssueCid,
    /// The client retires all its connection IDs but a fresh one.
    ReplaceCids,
}

/// Which events there are besides those that any exploration of paths has. All at
/// once they are too many for a depth that matters.
#[derive(Clone, Copy)]
pub(super) struct Alphabet {
    /// Where the client and the network may act.
    pub(super) places: &'static [Location],
    /// Datagrams that hardly pay for an answer, and copies.
    pub(super) sizes: bool,
    /// Connection IDs come and go.
    pub(super) cids: bool,
}

impl Alphabet {
    pub(super) const VALIDATION: Self = Self {
        places: &LOCATIONS,
        sizes: false,
        cids: false,
    };

    pub(super) const AMPLIFICATION: Self = Self {
        places: &[Location::A, Location::B],
        sizes: true,
        cids: false,
    };

    pub(super) const CONNECTION_IDS: Self = Self {
        places: &[Location::A, Location::B, Location::C],
        sizes: false,
        cids: true,
    };

    pub(super) const ALL: Self = Self {
        places: &LOCATIONS,
        sizes: true,
        cids: true,
    };
}

#[derive(Clone)]
pub(super) struct ServerWorld {
    alphabet: Alphabet,
    network: Network,
    number: u64,
}

impl ServerWorld {
    pub(super) fn new(alphabet: Alphabet) -> Self {
        let mut world = Self {
            alphabet,
            network: Network::new(Role::Server, Location::A.addresses(), letter),
            number: 10,
        };
        world.data(Location::A, 10, FULL);
        world
    }

    fn data(&mut self, at: Location, number: u64, bytes: usize) {
        let (now, from) = (self.network.now, at.addresses());
        let local_ip = self.network.paths.active().addresses().local_ip;
        self.network.credit(&from, bytes);
        let paths = &mut self.network.paths;
        let effects = paths.on_non_probing(now, PTO, number, &from, bytes);
        self.network.apply(&effects, bytes);
        if number < self.number {
            assert!(effects.is_empty(), "an old packet did {effects:?}");
            return;
        }
        self.number = number + 1;
        // RFC 9000 §9.3: there it goes, but from another address of ours (§9.6.2)
        // only if that path is proven.
        let active = self.network.paths.active().addresses();
        let moved = active == from;
        let joins = |(path, place): (&clearway_quic::testing::Path, PathRole)| {
            path.addresses() == from && place == PathRole::Candidate
        };
        assert!(
            moved || (from.local_ip != local_ip && self.network.paths.roles().any(joins)),
            "the client is at {at:?}"
        );
        let same_host = active.local_ip == local_ip;
        assert!(
            same_host || self.network.paths.is_active_validated(),
            "data from another address before it is validated"
        );
    }
}

impl World for ServerWorld {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        if self.network.closed.is_some() {
            return Vec::new();
        }
        let Alphabet {
            places,
            sizes,
            cids,
        } = self.alphabet;
        let mut events = vec![Event::WrongResponse];
        for &at in places {
            events.extend([Event::Data(at, FULL), Event::LateData(at), Event::Probe(at)]);
            // To an address that may be sent anything, more credit is nothing.
            let path = self.network.paths.find(&at.addresses());
            let path = path.and_then(|id| self.network.paths.get(id));
            if sizes && path.is_none_or(|path| !path.amplification().is_validated()) {
                events.extend([Event::Data(at, SMALL), Event::Copy(at)]);
            }
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
        if cids {
            events.push(Event::ReplaceCids);
            if self.network.wants_cid() {
                events.push(Event::IssueCid);
            }
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Data(at, bytes) => self.data(at, self.number, bytes),
            Event::LateData(at) => self.data(at, 5, SMALL),
            Event::Copy(at) => self.network.credit(&at.addresses(), SMALL),
            Event::Probe(at) => {
                self.network.challenge(&at.addresses(), FULL);
            }
            Event::Response(at) => self.network.answer(at.letter(), true),
            Event::OlderResponse(at) => self.network.answer(at.letter(), false),
            Event::WrongResponse => self.network.answer_wrongly(),
            Event::StaleResponse => self.network.answer_stale_challenge(),
            Event::Timeout => self.network.expire(),
            Event::IssueCid => self.network.issue_cid(0),
            Event::ReplaceCids => self.network.replace_cids(),
        }
        self.network.flush();
    }

    fn check(&self) -> Result<(), String> {
        self.network.check()
    }

    fn fingerprint(&self) -> Vec<u8> {
        self.network.fingerprint()
    }
}
