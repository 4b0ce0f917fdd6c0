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
            "join" => paths.join(NOW, PTO, from).unwrap_or_default(),
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
                    let spare = matches!(standby.purpose, Purpose::Spare { .. });
                    if spare && letter(role, &standby.path) == at {
                        standby.purpose = Purpose::Spare { until: NOW };
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

    /// `A` if A is proven, `B?A` if B is on trial and A the fallback, and who
    /// stands by.
    fn show(&self) -> String {
        let mut out = String::new();
        for (path, place) in self.paths.places() {
            let name = letter(self.role, path);
            match place {
                Place::ActiveProven => write!(out, "{name}"),
                Place::ActiveOnTrial => write!(out, "{name}?"),
                Place::Fallback => write!(out, "{name}"),
                Place::Probe => write!(out, " {name}:probe"),
                Place::Join => write!(out, " {name}:join"),
                Place::Left => write!(out, " {name}:left"),
                Place::Spare => write!(out, " {name}:spare"),
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
    "join:B",
];

const CLIENT_STATES: [&str; 7] = [
    "",
    "join:J",
    "migrate:B",
    "migrate:B migrate:C",
    "migrate:B join:J",
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
    "join:J",
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

/// Of two packets the one with the higher number says where the client is.
#[test]
fn an_older_packet_does_not_move_the_active_path() {
    for state in SERVER_STATES {
        let before = Bench::new(Role::Server).after(state).after("packet:A");
        for event in ["old:A", "old:B", "old:C", "old:D", "old:J", "wrong:A"] {
            let mut bench = before.clone();
            assert!(bench.apply(event).is_empty(), "{event} after {state}");
            assert_eq!(bench.show(), before.show());
        }
    }
}

/// An answer to a small challenge lifts the anti-amplification limit, and no more.
#[test]
fn a_small_answer_validates_the_address_but_does_not_prove_the_path() {
    let mut bench = Bench::new(Role::Server);
    bench.size = 100;
    let mut bench = bench.after("packet:B");
    assert_eq!(bench.paths.active().amplification().available(), 300);
    assert!(bench.apply("response:B").is_empty());
    assert_eq!(bench.show(), "B?A");
    assert_eq!(bench.paths.active().amplification().available(), u64::MAX);
    bench.apply("response:B");
    assert_eq!(bench.show(), "B A:spare");
}

/// Numbers of paths are 32 bits, and begin again.
#[test]
fn a_path_number_in_use_is_not_given_again() {
    let mut bench = Bench::new(Role::Server).after("packet:B");
    bench.paths.next_id = u32::MAX;
    let bench = bench.after("packet:C packet:D packet:C");
    let mut ids: Vec<_> = bench.paths.iter().map(|path| path.id().0).collect();
    ids.sort_unstable();
    assert_eq!(ids, [0, 1, 2, u32::MAX]);
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
  packet:J     A J:join
  challenge:D  A D:probe
A C:probe
  packet:B     B?A C:probe
  packet:C     C?A
  packet:D     D?A C:probe
  packet:J     A C:probe J:join
  challenge:D  A C:probe D:probe
  response:C   A C:spare
  fails:C      A
A C:left
  packet:B     B?A C:left
  packet:C     C?A
  packet:D     D?A C:left
  packet:J     A C:left J:join
  challenge:D  A C:left D:probe
  response:C   A C:spare
  fails:C      A
A C:spare
  packet:B     B?A C:spare
  packet:C     C A:spare
  packet:D     D?A C:spare
  packet:J     A C:spare J:join
  challenge:D  A C:spare D:probe
  fails:C      A
  expires:C    A
A J:join
  packet:A     A J:probe
  packet:B     B?A J:probe
  packet:C     C?A J:probe
  packet:D     D?A J:probe
  challenge:D  A J:join D:probe
  response:J   J A:spare
  fails:J      A
B?A
  packet:A     A B:left
  packet:C     C?A B:left
  packet:D     D?A B:left
  packet:J     B?A J:join
  challenge:D  B?A D:probe
  response:B   B A:spare
  fails:B      A
B?A C:probe
  packet:A     A C:probe B:left
  packet:C     C?A B:left
  packet:D     D?A C:probe B:left
  packet:J     B?A C:probe J:join
  challenge:D  B?A C:probe D:probe
  response:B   B C:probe A:spare
  response:C   B?A C:spare
  fails:B      A C:probe
  fails:C      B?A
B?A C:left
  packet:A     A C:left B:left
  packet:C     C?A B:left
  packet:D     D?A C:left B:left
  packet:J     B?A C:left J:join
  challenge:D  B?A C:left D:probe
  response:B   B C:left A:spare
  response:C   B?C A:spare
  fails:B      A C:left
  fails:C      B?A
B?A C:spare
  packet:A     A C:spare B:left
  packet:C     C B:left A:spare
  packet:D     D?A C:spare B:left
  packet:J     B?A C:spare J:join
  challenge:D  B?A C:spare D:probe
  response:B   B C:spare A:spare
  fails:B      A C:spare
  fails:C      B?A
  expires:C    B?A
B?A J:probe
  packet:A     A J:probe B:left
  packet:C     C?A J:probe B:left
  packet:D     D?A J:probe B:left
  packet:J     B?A J:join
  challenge:D  B?A J:probe D:probe
  response:B   B J:probe A:spare
  response:J   B?A J:spare
  fails:B      A J:probe
  fails:J      B?A
B A:spare
  packet:A     A B:spare
  packet:C     C?B A:spare
  packet:D     D?B A:spare
  packet:J     B A:spare J:join
  challenge:D  B A:spare D:probe
  fails:A      B
";

const CLIENT_TABLE: &str = "\
A
  challenge:B  A B:probe
  challenge:D  A D:probe
  migrate:D    D?A
  join:J       A J:join
A J:join
  challenge:B  A J:join B:probe
  challenge:D  A J:join D:probe
  response:J   J A:spare
  fails:J      A
  migrate:D    D?A J:join
B?A
  challenge:D  B?A D:probe
  response:B   B A:spare
  fails:B      A
  migrate:D    D?A B:left
  join:J       B?A J:join
C?A B:left
  challenge:D  C?A B:left D:probe
  response:B   C?B A:spare
  fails:B      C?A
  migrate:D    D?A B:left C:left
  join:J       C?A B:left J:join
B?A J:join
  challenge:D  B?A J:join D:probe
  response:B   B J:join A:spare
  response:J   J B:left A:spare
  fails:B      A J:join
  fails:J      B?A
  migrate:D    D?A B:left J:join
B A:spare
  challenge:D  B A:spare D:probe
  fails:A      B
  migrate:D    D?B A:spare
  join:J       B A:spare J:join
C?B A:spare
  challenge:D  C?B A:spare D:probe
  fails:A      C?B
  migrate:D    D?B A:spare C:left
  join:J       C?B A:spare J:join
";
