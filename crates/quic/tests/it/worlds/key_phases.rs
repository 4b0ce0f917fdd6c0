//! Key updates of two honest ends whose packets are lost and reordered
//! (RFC 9001 §6).
//!
//! Whatever the order: no packet is an error; what was sealed with a key that the other
//! end still has to have opens, and nothing else does; an end seals with no older keys
//! than it has opened with; an update begins when RFC 9001 §6.1 and §6.5 permit it, and
//! only then; and the ends never drift more than one generation apart. What is due is
//! reckoned here from the packets alone.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use clearway_quic::Instant;
use clearway_quic::testing::{OneRttKeys, TAG_LEN};
use rustls::pki_types::ServerName;
use rustls::quic::{ClientConnection, KeyChange, Keys, Secrets, ServerConnection, Version};

use clearway_testing::Setup;
use clearway_testing::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};

const HEADER_LEN: usize = 5;

/// Packets on their way in one direction.
const IN_FLIGHT: usize = 2;

/// Three PTOs, for which the previous keys are kept.
const RETENTION: Duration = Duration::from_secs(3);

/// What TLS gave both ends; one handshake serves all worlds.
static SECRETS: LazyLock<[(Keys, Secrets); 2]> = LazyLock::new(handshake);

fn handshake() -> [(Keys, Secrets); 2] {
    let setup = Setup::new();
    let name = ServerName::try_from("localhost").expect("a name");
    let (client, server) = (setup.client_crypto, setup.server_crypto);
    let client = ClientConnection::new(client, Version::V1, name, Vec::new()).expect("a client");
    let server = ServerConnection::new(server, Version::V1, Vec::new()).expect("a server");
    let mut ends: [(rustls::quic::Connection, _); 2] =
        [(client.into(), None), (server.into(), None)];
    for turn in 0..8 {
        let (speaker, hearer) = (turn % 2, 1 - turn % 2);
        loop {
            let mut bytes = Vec::new();
            let change = ends[speaker].0.write_hs(&mut bytes);
            ends[hearer].0.read_hs(&bytes).expect("an honest peer");
            match change {
                Some(KeyChange::OneRtt { keys, next }) => ends[speaker].1 = Some((keys, next)),
                Some(KeyChange::Handshake { .. }) => {}
                None => break,
            }
        }
    }
    ends.map(|(_, keys)| keys.expect("1-RTT keys"))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    A,
    B,
}

const ENDS: [End; 2] = [End::A, End::B];

impl End {
    fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// The application asks for an update, permitted or not.
    Update(End),
    Send(End),
    /// The `n`th packet to this end arrives.
    Arrives(End, usize),
    /// And again later.
    ArrivesTwice(End, usize),
    IsLost(End, usize),
    /// It arrives altered.
    IsForged(End, usize),
    /// Three PTOs pass.
    Later,
    /// This end's ciphers are given back until they are needed.
    Rests(End),
}

#[derive(Clone, Debug)]
struct Packet {
    number: u64,
    generation: u64,
    /// The highest number that its sender had received.
    acks: Option<u64>,
    bytes: Vec<u8>,
}

struct Side {
    keys: OneRttKeys,
    next: u64,
    largest: Option<u64>,
    /// On their way to this side.
    coming: Vec<Packet>,
    /// Lowest and highest number received of each generation.
    received: Vec<(u64, u64, u64)>,
    /// The first number sent in the current generation.
    first: (u64, Option<u64>),
    /// The highest number acknowledged, and the generation that said so.
    acked: Option<(u64, u64)>,
    /// The time of the keys before the newest received is not over.
    keeps_previous: bool,
    rested: bool,
}

impl Side {
    /// The newest generation that was received.
    fn newest(&self) -> u64 {
        self.received.iter().map(|seen| seen.0).max().unwrap_or(0)
    }

    /// Whether the keys of `generation` have to be there.
    fn has_keys_of(&self, generation: u64) -> bool {
        let newest = self.newest();
        generation >= newest || self.keeps_previous && generation + 1 == newest
    }

    /// RFC 9001 §6.1: the first update is free, each other needs an acknowledgment of a
    /// packet of the current keys, which the peer sends with those.
    fn may_update(&self) -> bool {
        let generation = self.keys.generation();
        let acked = self.acked.map(|(number, _)| number);
        let first = self.first.1.filter(|_| self.first.0 == generation);
        let acknowledged = first.is_some_and(|first| acked.is_some_and(|acked| acked >= first));
        generation == 0 || acknowledged && self.newest() == generation
    }
}

struct Phases {
    /// Keys wear out with the first packet: whatever is sent after that begins an
    /// update, if that is permitted.
    worn: bool,
    now: Instant,
    sides: [Side; 2],
    broken: Option<String>,
}

impl Phases {
    fn new(worn: bool) -> Self {
        let side = |(keys, secrets): &(Keys, Secrets)| {
            let mut keys = OneRttKeys::new(keys, secrets.clone()).expect("usable keys");
            keys.on_handshake_confirmed();
            if worn {
                keys.set_update_after(1);
            }
            Side {
                keys,
                next: 0,
                largest: None,
                coming: Vec::new(),
                received: Vec::new(),
                first: (0, None),
                acked: None,
                keeps_previous: false,
                rested: false,
            }
        };
        let [a, b] = &*SECRETS;
        Self {
            worn,
            now: Instant::ZERO,
            sides: [side(a), side(b)],
            broken: None,
        }
    }

    fn side(&mut self, end: End) -> &mut Side {
        &mut self.sides[end as usize]
    }

    /// The application asks for an update.
    fn update(&mut self, end: End) {
        let now = self.now;
        let side = self.side(end);
        // RFC 9001 §6.5: not while the other end may be keeping old keys, too.
        let due = side.may_update() && !side.keeps_previous;
        let before = side.keys.generation();
        let answer = side.keys.initiate_update(now);
        let after = side.keys.generation();
        if answer.is_ok() != due || after != before + u64::from(due) {
            self.broken = Some(format!(
                "an update from generation {before} to {after}: {answer:?}, due is {due}"
            ));
        }
    }

    fn send(&mut self, end: End) {
        let worn = self.worn;
        let side = self.side(end);
        let before = side.keys.generation();
        // The wait of §6.5 is for those who can wait.
        let is_used = side.first.0 == before && side.first.1.is_some();
        let due = before + u64::from(worn && is_used && side.may_update());
        let number = side.next;
        side.next += 1;
        let mut bytes = vec![0x43];
        bytes.extend_from_slice(&(number as u32).to_be_bytes());
        bytes.extend_from_slice(b"payload");
        bytes.extend_from_slice(&[0; TAG_LEN]);
        let sealed = side.keys.seal(number, &mut bytes, HEADER_LEN, 4);
        let packet = Packet {
            number,
            generation: side.keys.generation(),
            acks: side.largest,
            bytes,
        };
        let generation = packet.generation;
        let wrong = (generation != due).then(|| format!("sealed as {generation}, due is {due}"));
        if side.first.0 != generation {
            side.first = (generation, None);
        }
        side.first.1.get_or_insert(number);
        side.rested = false;
        if let Err(error) = sealed {
            self.broken = Some(format!("seals nothing: {error}"));
        }
        if wrong.is_some() {
            self.broken = wrong;
        }
        self.side(end.other()).coming.push(packet);
    }

    fn arrive(&mut self, end: End, packet: Packet, forged: bool) {
        let now = self.now;
        let (side, broken) = (&mut self.sides[end as usize], &mut self.broken);
        let mut bytes = packet.bytes;
        let number = side.keys.unprotect_header(&mut bytes, 1);
        let Some(number) = number else { return };
        if forged && let Some(last) = bytes.last_mut() {
            *last ^= 1;
        }
        let full = u64::from(number.truncated);
        let before = side.keys.generation();
        let failed = side.keys.failed_opens();
        let due = !forged && side.has_keys_of(packet.generation);
        let opened = match side.keys.open(full, &mut bytes, HEADER_LEN) {
            Ok(opened) => opened,
            Err(error) => {
                *broken = Some(format!("packet {} is an error: {error}", packet.number));
                return;
            }
        };
        match opened {
            Some(_) if forged => *broken = Some("a forged packet opens".into()),
            Some(opened) => {
                if opened.generation != packet.generation {
                    let (is, was) = (opened.generation, packet.generation);
                    *broken = Some(format!("opened as generation {is}, sealed as {was}"));
                }
                if opened.updated != (opened.generation > side.newest()) {
                    let (generation, said) = (opened.generation, opened.updated);
                    *broken = Some(format!(
                        "first of generation {generation} is said to be {said}"
                    ));
                }
                if opened.updated {
                    side.keys.retain_previous_until(now + RETENTION);
                    side.keeps_previous = true;
                }
                side.largest = side.largest.max(Some(packet.number));
                match side
                    .received
                    .iter_mut()
                    .find(|seen| seen.0 == opened.generation)
                {
                    Some(seen) => {
                        seen.1 = seen.1.min(packet.number);
                        seen.2 = seen.2.max(packet.number);
                    }
                    None => side
                        .received
                        .push((opened.generation, packet.number, packet.number)),
                }
                side.rested = false;
                side.acked = side
                    .acked
                    .max(packet.acks.map(|acks| (acks, opened.generation)));
                if let Some(acks) = packet.acks
                    && let Err(error) = side.keys.on_ack(acks, opened.generation)
                {
                    *broken = Some(format!("an honest ACK is an error: {error}"));
                }
            }
            None if due => {
                let (number, generation) = (packet.number, packet.generation);
                *broken = Some(format!(
                    "packet {number} of generation {generation} does not open at {before}"
                ));
            }
            None => {}
        }
        if opened.is_some() && !due && !forged {
            let (number, generation) = (packet.number, packet.generation);
            *broken = Some(format!(
                "packet {number} of generation {generation} opens after its time"
            ));
        }
        // RFC 9001 §6.6: that is what the integrity limit counts.
        if side.keys.failed_opens() != failed + u64::from(opened.is_none()) {
            *broken = Some("wrong about how many packets did not open".into());
        }
    }
}

impl World for Phases {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Later];
        for end in ENDS {
            events.push(Event::Rests(end));
            if !self.worn {
                events.push(Event::Update(end));
            }
            if self.sides[end.other() as usize].coming.len() < IN_FLIGHT {
                events.push(Event::Send(end));
            }
            for n in 0..self.sides[end as usize].coming.len() {
                events.extend([
                    Event::Arrives(end, n),
                    Event::ArrivesTwice(end, n),
                    Event::IsLost(end, n),
                    Event::IsForged(end, n),
                ]);
            }
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        match *event {
            Event::Update(end) => self.update(end),
            Event::Send(end) => self.send(end),
            Event::Arrives(end, n) => {
                let packet = self.side(end).coming.remove(n);
                self.arrive(end, packet, false);
            }
            Event::ArrivesTwice(end, n) => {
                let packet = self.side(end).coming[n].clone();
                self.arrive(end, packet, false);
            }
            Event::IsLost(end, n) => {
                self.side(end).coming.remove(n);
            }
            Event::IsForged(end, n) => {
                let packet = self.side(end).coming[n].clone();
                self.arrive(end, packet, true);
            }
            Event::Later => {
                self.now += RETENTION;
                let now = self.now;
                for side in &mut self.sides {
                    side.keys.discard_previous(now);
                    side.keeps_previous = false;
                }
            }
            Event::Rests(end) => {
                let side = self.side(end);
                side.keys.release_ciphers();
                side.rested = true;
            }
        }
    }

    fn check(&self) -> Result<(), String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let [a, b] = self.sides.each_ref().map(|side| side.keys.generation());
        if a.abs_diff(b) > 1 {
            return Err(format!("generations {a} and {b}"));
        }
        for side in &self.sides {
            let (seals, opened) = (side.keys.generation(), side.newest());
            // RFC 9001 §6.2.
            if seals < opened {
                return Err(format!("seals as {seals} what answers {opened}"));
            }
        }
        Ok(())
    }

    fn fingerprint(&self) -> Vec<u8> {
        let sides = self.sides.each_ref().map(|side| {
            let coming: Vec<_> = side
                .coming
                .iter()
                .map(|packet| (packet.number, packet.generation, packet.acks))
                .collect();
            let previous = side
                .keys
                .discard_at()
                .map(|at| at.as_nanos().saturating_sub(self.now.as_nanos()));
            let keys = (side.keys.generation(), previous, side.largest, side.next);
            let ours = (side.first, side.acked, side.keeps_previous, side.rested);
            (keys, ours, coming, side.received.clone())
        });
        fingerprint_of(&sides)
    }
}

fn walk(name: &str, worn: bool, depth: usize) {
    // The first handshake, before the clock of the exploration.
    let _ = Arc::new(&*SECRETS);
    let depth = depth + usize::from(!cfg!(debug_assertions));
    explore_by_replay(name, || Phases::new(worn), Bounds::to_depth(depth)).expect_clean();
}

#[test]
fn any_order_of_key_updates_between_honest_ends_works() {
    walk("key phases", false, 7);
}

#[test]
fn any_order_of_forced_key_updates_between_honest_ends_works() {
    walk("key phases that wear out", true, 8);
}
