use core::time::Duration;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::*;
use crate::path::ecn::Mark;
use crate::path::validation::ChallengeData;
use crate::rng::Rng;

const PTO: Duration = Duration::from_millis(100);

/// Late enough for a validation that began at zero to have failed.
const NOW: Instant = Instant::from_nanos(1_000_000_000_000);

/// For a server: four addresses of its client, and at `J` the first of them towards
/// another address of its own. For a client: four addresses of its own, and at `J`
/// another address of its server.
fn addresses(role: Role, letter: char) -> Addresses {
    let (peers, ours) = match (role, letter) {
        (Role::Server, 'J') => ('A', '2'),
        (Role::Server, _) => (letter, '1'),
        (Role::Client, 'J') => ('2', 'A'),
        (Role::Client, _) => ('1', letter),
    };
    let ip = |which: char| format!("10.0.0.{}", u32::from(which));
    Addresses {
        remote: format!("{}:443", ip(peers)).parse().unwrap(),
        local_ip: Some(ip(ours).parse().unwrap()),
    }
}

fn letter(role: Role, path: &Path) -> char {
    let is = |letter: &char| addresses(role, *letter) == path.addresses();
    // A client that moved probes `J` from where it is.
    ['A', 'B', 'C', 'D'].into_iter().find(is).unwrap_or('J')
}

/// Paths, and the challenges that left on them.
#[derive(Clone)]
struct Bench {
    role: Role,
    paths: Paths,
    number: u64,
    challenges: BTreeMap<char, ChallengeData>,
    /// Seeds of the challenges so far.
    seed: u8,
    /// Bytes of the datagrams that come.
    size: usize,
}

impl Bench {
    fn new(role: Role) -> Self {
        let defaults = PathDefaults {
            max_mtu: 1452,
            mtu_discovery: true,
            mark: Mark::NotEct,
        };
        let mut paths = Paths::new(role, addresses(role, 'A'), true, defaults);
        paths.on_confirmed(NOW);
        Self {
            role,
            paths,
            number: 0,
            challenges: BTreeMap::new(),
            seed: 0,
            size: 1200,
        }
    }

    /// The same after these events.
    fn after(mut self, events: &str) -> Self {
        for event in events.split_whitespace() {
            self.apply(event);
        }
        self
    }

    fn id(&self, which: char) -> Option<PathId> {
        let mut paths = self.paths.iter();
        paths
            .find(|path| letter(self.role, path) == which)
            .map(Path::id)
    }

    /// An event is a word: what happens, and to which path.
    fn apply(&mut self, event: &str) -> Effects {
        let (what, at) = event.split_once(':').unwrap();
        let at = at.chars().next().unwrap();
        let from = addresses(self.role, at);
        self.paths.on_datagram(&from, self.size);
        let paths = &mut self.paths;
        let effects = match what {
            "packet" => {
                self.number += 1;
                paths.on_non_probing(NOW, PTO, self.number, &from, self.size)
            }
            "old" => paths.on_non_probing(NOW, PTO, self.number, &from, self.size),
            "challenge" => paths.on_challenge(NOW, PTO, &from, self.size, [7; 8]),
            "response" => {
                let data = self.challenges.get(&at).copied().unwrap_or([0; 8]);
                paths.on_response(NOW, PTO, data)
            }
            "wrong" => paths.on_response(NOW, PTO, [0; 8]),
            "migrate" => paths.migrate(NOW, PTO, from.local_ip).unwrap_or_default(),
            "probe" => paths.probe(NOW, PTO, from).unwrap_or_default(),
            "fails" => {
                let id = self.id(at);
                if let Some(path) = id.and_then(|id| self.paths.get_mut(id)) {
                    path.validation.start(Instant::ZERO, PTO);
                }
                self.paths.on_timeout(NOW)
            }
            "expires" => {
                let role = self.role;
                for standby in self.paths.standby.iter_mut().flatten() {
                    let spare = matches!(standby.role, StandbyRole::Retained { .. });
                    if spare && letter(role, &standby.path) == at {
                        standby.role = StandbyRole::Retained { until: NOW };
                    }
                }
                self.paths.on_timeout(NOW)
            }
            _ => panic!("no such event: {what}"),
        };
        self.flush();
        effects
    }

    fn flush(&mut self) {
        let role = self.role;
        for path in self.paths.iter_mut() {
            self.seed += 1;
            if let Some(data) = path.next_challenge(NOW, &mut Rng::from_seed([self.seed; 32])) {
                self.challenges.insert(letter(role, path), data);
            }
        }
    }

    /// Describes the paths: `A` if A is active and validated, `B?A` if B is active and
    /// unvalidated with A as fallback, then the standby paths.
    fn show(&self) -> String {
        let mut out = String::new();
        for (path, role) in self.paths.roles() {
            let name = letter(self.role, path);
            match role {
                PathRole::ActiveValidated => write!(out, "{name}"),
                PathRole::ActiveUnvalidated => write!(out, "{name}?"),
                PathRole::Fallback => write!(out, "{name}"),
                PathRole::Probe => write!(out, " {name}:probe"),
                PathRole::Candidate => write!(out, " {name}:candidate"),
                PathRole::Abandoned => write!(out, " {name}:abandoned"),
                PathRole::Retained => write!(out, " {name}:retained"),
            }
            .unwrap();
        }
        out
    }
}

/// How each state of the table is reached.
const SERVER_STATES: [&str; 11] = [
    "",
    "challenge:C",
    "packet:C packet:A",
    "challenge:C response:C",
    "packet:J",
    "packet:B",
    "packet:B challenge:C",
    "packet:C packet:B",
    "packet:B challenge:C response:C",
    "challenge:J packet:B challenge:J",
    "packet:B response:B",
];

const SERVER_EVENTS: [&str; 18] = [
    "packet:A",
    "packet:B",
    "packet:C",
    "packet:D",
    "packet:J",
    "challenge:A",
    "challenge:D",
    "response:A",
    "response:B",
    "response:C",
    "response:J",
    "fails:A",
    "fails:B",
    "fails:C",
    "fails:J",
    "expires:C",
    "migrate:B",
    "probe:B",
];

const CLIENT_STATES: [&str; 7] = [
    "",
    "probe:J",
    "migrate:B",
    "migrate:B migrate:C",
    "migrate:B probe:J",
    "migrate:B response:B",
    "migrate:B migrate:C response:B",
];

const CLIENT_EVENTS: [&str; 13] = [
    "packet:A",
    "packet:B",
    "challenge:A",
    "challenge:B",
    "challenge:D",
    "response:A",
    "response:B",
    "response:J",
    "fails:A",
    "fails:B",
    "fails:J",
    "migrate:D",
    "probe:J",
];

fn table(role: Role, states: &[&str], events: &[&str]) -> String {
    let mut out = String::new();
    for reached in states {
        let state = Bench::new(role).after(reached);
        writeln!(out, "{}", state.show()).unwrap();
        for event in events {
            let mut next = state.clone();
            next.apply(event);
            if next.show() != state.show() {
                writeln!(out, "  {event:12} {}", next.show()).unwrap();
            }
        }
    }
    out
}

/// The packet with the highest number determines where the client is.
#[test]
fn older_packet_does_not_change_active_path() {
    for state in SERVER_STATES {
        let before = Bench::new(Role::Server).after(state).after("packet:A");
        for event in ["old:A", "old:B", "old:C", "old:D", "old:J", "wrong:A"] {
            let mut bench = before.clone();
            assert!(bench.apply(event).is_empty(), "{event} after {state}");
            assert_eq!(bench.show(), before.show());
        }
    }
}

/// An answer to a small challenge only lifts the anti-amplification limit.
#[test]
fn small_path_response_validates_address_but_not_path() {
    let mut bench = Bench::new(Role::Server);
    bench.size = 100;
    let mut bench = bench.after("packet:B");
    assert_eq!(bench.paths.active().amplification().available(), 300);
    let effects = bench.apply("response:B");
    let only_answered = |effect: &Effect| matches!(effect, Effect::Answered { .. });
    assert!(effects.iter().all(only_answered), "{effects:?}");
    assert_eq!(bench.show(), "B?A");
    assert_eq!(bench.paths.active().amplification().available(), u64::MAX);
    bench.apply("response:B");
    assert_eq!(bench.show(), "B A:retained");
}

/// Path IDs have 32 bits and start again.
#[test]
fn path_id_in_use_is_not_reused() {
    let mut bench = Bench::new(Role::Server).after("packet:B");
    bench.paths.next_id = u32::MAX;
    let bench = bench.after("packet:C packet:D packet:C");
    let mut ids: Vec<_> = bench.paths.iter().map(|path| path.id().0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, u32::MAX]);
}

/// As after a NAT rebinding during the handshake. A client stays where it is, and so does a
/// server whose client used another of the server's addresses.
#[test]
fn datagram_that_completes_handshake_is_followed_by_server_only() {
    for (role, at, after, effects) in [
        (Role::Server, 'A', "A", 0),
        (Role::Server, 'B', "B?A", 2),
        (Role::Server, 'J', "A", 0),
        (Role::Client, 'B', "A", 0),
    ] {
        let mut bench = Bench::new(role);
        let from = addresses(role, at);
        let done = bench.paths.on_completing_datagram(NOW, PTO, &from, 100);
        assert_eq!((bench.show().as_str(), done.len()), (after, effects));
        let credit = bench.paths.active().amplification.available();
        // RFC 9000 §8.1: the handshake proved the old address, and not this one.
        assert_eq!(credit == 300, after != "A");
    }
}

/// The whole table for a server: each state, and each event that leads to another.
#[test]
fn server_transition_table() {
    let table = table(Role::Server, &SERVER_STATES, &SERVER_EVENTS);
    println!("{table}");
    assert_eq!(table, SERVER_TABLE);
}

#[test]
fn client_transition_table() {
    let table = table(Role::Client, &CLIENT_STATES, &CLIENT_EVENTS);
    println!("{table}");
    assert_eq!(table, CLIENT_TABLE);
}

const SERVER_TABLE: &str = "\
A
  packet:B     B?A
  packet:C     C?A
  packet:D     D?A
  packet:J     A J:candidate
  challenge:D  A D:probe
A C:probe
  packet:B     B?A C:probe
  packet:C     C?A
  packet:D     D?A C:probe
  packet:J     A C:probe J:candidate
  challenge:D  A C:probe D:probe
  response:C   A C:retained
  fails:C      A
A C:abandoned
  packet:B     B?A C:abandoned
  packet:C     C?A
  packet:D     D?A C:abandoned
  packet:J     A C:abandoned J:candidate
  challenge:D  A C:abandoned D:probe
  response:C   A C:retained
  fails:C      A
A C:retained
  packet:B     B?A C:retained
  packet:C     C A:retained
  packet:D     D?A C:retained
  packet:J     A C:retained J:candidate
  challenge:D  A C:retained D:probe
  fails:C      A
  expires:C    A
A J:candidate
  packet:A     A J:probe
  packet:B     B?A J:probe
  packet:C     C?A J:probe
  packet:D     D?A J:probe
  challenge:D  A J:candidate D:probe
  response:J   J A:retained
  fails:J      A
B?A
  packet:A     A B:abandoned
  packet:C     C?A B:abandoned
  packet:D     D?A B:abandoned
  packet:J     B?A J:candidate
  challenge:D  B?A D:probe
  response:B   B A:retained
  fails:B      A
B?A C:probe
  packet:A     A C:probe B:abandoned
  packet:C     C?A B:abandoned
  packet:D     D?A C:probe B:abandoned
  packet:J     B?A C:probe J:candidate
  challenge:D  B?A C:probe D:probe
  response:B   B C:probe A:retained
  response:C   B?A C:retained
  fails:B      A C:probe
  fails:C      B?A
B?A C:abandoned
  packet:A     A C:abandoned B:abandoned
  packet:C     C?A B:abandoned
  packet:D     D?A C:abandoned B:abandoned
  packet:J     B?A C:abandoned J:candidate
  challenge:D  B?A C:abandoned D:probe
  response:B   B C:abandoned A:retained
  response:C   B?C A:retained
  fails:B      A C:abandoned
  fails:C      B?A
B?A C:retained
  packet:A     A C:retained B:abandoned
  packet:C     C B:abandoned A:retained
  packet:D     D?A C:retained B:abandoned
  packet:J     B?A C:retained J:candidate
  challenge:D  B?A C:retained D:probe
  response:B   B C:retained A:retained
  fails:B      A C:retained
  fails:C      B?A
  expires:C    B?A
B?A J:probe
  packet:A     A J:probe B:abandoned
  packet:C     C?A J:probe B:abandoned
  packet:D     D?A J:probe B:abandoned
  packet:J     B?A J:candidate
  challenge:D  B?A J:probe D:probe
  response:B   B J:probe A:retained
  response:J   B?A J:retained
  fails:B      A J:probe
  fails:J      B?A
B A:retained
  packet:A     A B:retained
  packet:C     C?B A:retained
  packet:D     D?B A:retained
  packet:J     B A:retained J:candidate
  challenge:D  B A:retained D:probe
  fails:A      B
";

const CLIENT_TABLE: &str = "\
A
  challenge:B  A B:probe
  challenge:D  A D:probe
  migrate:D    D?A
  probe:J      A J:candidate
A J:candidate
  challenge:B  A J:candidate B:probe
  challenge:D  A J:candidate D:probe
  response:J   J A:retained
  fails:J      A
  migrate:D    D?A J:candidate
B?A
  challenge:D  B?A D:probe
  response:B   B A:retained
  fails:B      A
  migrate:D    D?A B:abandoned
  probe:J      B?A J:candidate
C?A B:abandoned
  challenge:D  C?A B:abandoned D:probe
  response:B   C?B A:retained
  fails:B      C?A
  migrate:D    D?A B:abandoned C:abandoned
  probe:J      C?A B:abandoned J:candidate
B?A J:candidate
  challenge:D  B?A J:candidate D:probe
  response:B   B J:candidate A:retained
  response:J   J B:abandoned A:retained
  fails:B      A J:candidate
  fails:J      B?A
  migrate:D    D?A B:abandoned J:candidate
B A:retained
  challenge:D  B A:retained D:probe
  fails:A      B
  migrate:D    D?B A:retained
  probe:J      B A:retained J:candidate
C?B A:retained
  challenge:D  C?B A:retained D:probe
  fails:A      C?B
  migrate:D    D?B A:retained C:abandoned
  probe:J      C?B A:retained J:candidate
";
