//! What surrounds the paths of one connection: the wire, the peer's connection IDs,
//! loss recovery; and what must hold of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clearway_quic::cid::{ConnectionId, NewCid, ResetToken};
use clearway_quic::path::PathId;
use clearway_quic::path::ecn::Mark;
use clearway_quic::rng::Rng;
use clearway_quic::testing::{
    Addresses, Amplification, ChallengeData, Effect, Effects, MAX_PATHS, Path, PathDefaults,
    PathRole, Paths, RemoteCids, ValidationState,
};
use clearway_quic::{Instant, Role};

use clearway_testing::explore::fingerprint_of;

/// The connection's PTO; unmeasured paths are given 999 ms for each.
pub(super) const PTO: Duration = Duration::from_millis(100);

/// Datagrams: one that expands the path, and one that hardly pays for an answer.
pub(super) const FULL: usize = 1200;
pub(super) const SMALL: usize = 40;

/// The smallest packet that is worth sending, as `transmit` sees it.
const LEAST: u64 = 64;

/// Connection IDs of the peer that we keep.
const CID_LIMIT: u64 = 4;

/// A PATH_CHALLENGE on the wire.
#[derive(Clone, Copy)]
struct Challenge {
    path: PathId,
    data: ChallengeData,
    full: bool,
}

/// What a path may have sent, counted apart from it.
#[derive(Clone, Copy, Default)]
struct PathAccount {
    received: u64,
    sent: u64,
    /// A right answer came to a challenge sent there, or it needed none.
    validated: bool,
    /// To one of full size.
    proven: bool,
}

/// Everything around [`Paths`], in step with it.
#[derive(Clone)]
pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) paths: Paths,
    cids: RemoteCids,
    next_cid: u64,
    /// What loss recovery knows.
    recovery: BTreeSet<PathId>,
    recovery_active: PathId,
    accounts: BTreeMap<PathId, PathAccount>,
    /// By letter: the challenges that may still be answered, oldest first.
    wire: BTreeMap<char, Vec<Challenge>>,
    /// A challenge whose path is gone.
    stale: Option<ChallengeData>,
    /// Challenges of the peer that are owed an answer.
    owed: BTreeMap<PathId, usize>,
    letters: fn(&Addresses) -> char,
    seed: u64,
    /// Why the connection ended, if it has.
    pub(super) closed: Option<String>,
}

impl Network {
    /// A confirmed connection; `letters` names addresses.
    pub(super) fn new(role: Role, first: Addresses, letters: fn(&Addresses) -> char) -> Self {
        let defaults = PathDefaults {
            max_mtu: 1200,
            mtu_discovery: false,
            mark: Mark::NotEct,
        };
        let mut paths = Paths::new(role, first, true, defaults);
        paths.on_confirmed(Instant::ZERO);
        let id = paths.active_id();
        let proven = PathAccount {
            validated: true,
            proven: true,
            ..PathAccount::default()
        };
        let mut network = Self {
            now: Instant::ZERO,
            paths,
            cids: RemoteCids::new(cid(0), id, CID_LIMIT),
            next_cid: 1,
            recovery: BTreeSet::from([id]),
            recovery_active: id,
            accounts: BTreeMap::from([(id, proven)]),
            wire: BTreeMap::new(),
            stale: None,
            owed: BTreeMap::new(),
            letters,
            seed: 0,
            closed: None,
        };
        network.issue_cid(0);
        network.issue_cid(0);
        network
    }

    /// A datagram came; nothing in it is looked at.
    pub(super) fn credit(&mut self, from: &Addresses, bytes: usize) {
        self.paths.on_datagram(from, bytes);
        if let Some(id) = self.paths.find(from) {
            self.account(id).received += bytes as u64;
        }
    }

    /// The right answer to a challenge that went to `letter`: to the newest, or to
    /// the one before.
    pub(super) fn answer(&mut self, letter: char, newest: bool) {
        let sent = self.wire.entry(letter).or_default();
        let at = if newest { sent.len() - 1 } else { 0 };
        let challenge = sent.remove(at);
        let effects = self.paths.on_response(self.now, PTO, challenge.data);
        let account = self.account(challenge.path);
        account.validated = true;
        account.proven |= challenge.full;
        self.apply(&effects, 0);
    }

    /// How many challenges to `letter` may still be answered.
    pub(super) fn answerable(&self, letter: char) -> usize {
        self.wire.get(&letter).map_or(0, Vec::len)
    }

    /// A PATH_RESPONSE to nothing that was sent.
    pub(super) fn answer_wrongly(&mut self) {
        let effects = self.paths.on_response(self.now, PTO, [0xff; 8]);
        assert!(effects.is_empty(), "a wrong answer did {effects:?}");
    }

    /// Whether a challenge may be answered whose path is gone.
    pub(super) fn has_stale_challenge(&self) -> bool {
        self.stale.is_some()
    }

    /// The answer to a challenge whose path is gone.
    pub(super) fn answer_stale_challenge(&mut self) {
        if let Some(data) = self.stale.take() {
            let effects = self.paths.on_response(self.now, PTO, data);
            assert!(effects.is_empty(), "a late answer did {effects:?}");
        }
    }

    /// A PATH_CHALLENGE of the peer's came.
    pub(super) fn challenge(&mut self, from: &Addresses, bytes: usize) {
        self.credit(from, bytes);
        self.seed += 1;
        let data = self.seed.to_be_bytes();
        let effects = self.paths.on_challenge(self.now, PTO, from, bytes, data);
        self.apply(&effects, bytes);
        let id = self.paths.find(from).expect("a path to answer on");
        *self.owed.entry(id).or_default() += 1;
    }

    /// The clock moves on to the next deadline.
    pub(super) fn expire(&mut self) {
        let Some(at) = self.next_timeout() else {
            return;
        };
        self.now = self.now.max(at);
        let effects = self.paths.on_timeout(self.now);
        self.apply(&effects, 0);
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.paths.next_timeout(|path| self.may_speak(path))
    }

    /// The peer sends NEW_CONNECTION_ID with this Retire Prior To.
    pub(super) fn issue_cid(&mut self, retire_prior_to: u64) {
        let sequence = self.next_cid;
        self.next_cid += 1;
        let new = NewCid {
            sequence,
            retire_prior_to,
            cid: cid(sequence),
            reset_token: ResetToken([sequence as u8; 16]),
        };
        if let Err(error) = self.cids.on_new(new, self.paths.active_id()) {
            self.closed = Some(error.to_string());
        }
    }

    /// The peer has us retire every connection ID that we hold.
    pub(super) fn replace_cids(&mut self) {
        self.issue_cid(self.next_cid);
    }

    /// Whether the peer may issue one more.
    pub(super) fn wants_cid(&self) -> bool {
        let used = self.paths.iter().filter(|path| self.has_cid(path)).count();
        ((used + self.cids.unused()) as u64) < CID_LIMIT
    }

    pub(super) fn has_spare_cid(&self) -> bool {
        self.cids.can_assign()
    }

    fn has_cid(&self, path: &Path) -> bool {
        self.cids.cid(path.id()).is_some()
    }

    fn may_speak(&self, path: &Path) -> bool {
        path.amplification().available() >= LEAST && self.has_cid(path)
    }

    fn account(&mut self, id: PathId) -> &mut PathAccount {
        self.accounts.get_mut(&id).expect("an account")
    }

    fn letter(&self, path: &Path) -> char {
        (self.letters)(&path.addresses())
    }

    /// Does what a connection does about effects, in their order.
    pub(super) fn apply(&mut self, effects: &Effects, received: usize) {
        for effect in effects {
            match *effect {
                Effect::Added { id, .. } => {
                    assert!(self.recovery.insert(id), "{id:?} is there already");
                    let client = self.paths.get(id).map(Path::amplification);
                    let account = PathAccount {
                        received: received as u64,
                        // A client is not bound by the limit (RFC 9000 §8.1).
                        validated: client.is_some_and(Amplification::is_validated),
                        ..PathAccount::default()
                    };
                    assert!(self.accounts.insert(id, account).is_none());
                    let _ = self.cids.assign(id);
                }
                Effect::Answered { id, .. } => {
                    assert!(self.recovery.contains(&id), "{id:?} is unknown");
                }
                Effect::Validated { id, .. } => {
                    assert!(self.account(id).proven, "{id:?} answered no challenge");
                }
                Effect::Activated { id, validated, .. } => {
                    assert!(self.recovery.contains(&id), "{id:?} is unknown");
                    assert_eq!(self.account(id).proven, validated, "{id:?}");
                    self.recovery_active = id;
                    self.cids.set_active(id);
                }
                Effect::ChallengeDropped { id } => *self.owed.entry(id).or_default() -= 1,
                Effect::Removed { id, .. } => {
                    assert!(self.recovery.remove(&id), "{id:?} is not there");
                    assert!(self.recovery_active != id, "the active path {id:?}");
                    self.accounts.remove(&id);
                    self.owed.remove(&id);
                    for sent in self.wire.values_mut() {
                        let gone = sent.iter().find(|challenge| challenge.path == id);
                        self.stale = gone.map(|gone| gone.data).or(self.stale);
                        sent.retain(|challenge| challenge.path != id);
                    }
                    self.cids.release(id);
                }
            }
        }
    }

    /// Sends all that may leave, as `transmit` does: path frames, and data on the
    /// active path as far as the anti-amplification limit lets it.
    pub(super) fn flush(&mut self) {
        let ids: Vec<_> = self.paths.iter().map(Path::id).collect();
        for id in ids {
            self.send_path_frames(id);
        }
        let active = self.paths.active();
        if !self.has_cid(active) {
            return;
        }
        while let Some(sequence) = self.cids.next_retire() {
            self.cids.on_retire_acked(sequence);
        }
        while self.may_speak(self.paths.active())
            && !self.paths.active().amplification().is_validated()
        {
            self.send(self.paths.active_id());
        }
    }

    fn send_path_frames(&mut self, id: PathId) {
        while let Some(path) = self.paths.get(id)
            && path.has_frames_due(self.now)
            && self.may_speak(path)
        {
            let letter = self.letter(path);
            let full = path.amplification().available() >= FULL as u64;
            self.seed += 1;
            let mut rng = Rng::from_seed(seed(self.seed));
            let path = self.paths.get_mut(id).expect("it is there");
            while path.next_response().is_some() {
                let owed = self.owed.entry(id).or_default();
                *owed = owed.checked_sub(1).expect("an answer to no challenge");
            }
            if let Some(data) = path.next_challenge(self.now, &mut rng) {
                let sent = self.wire.entry(letter).or_default();
                sent.push(Challenge {
                    path: id,
                    data,
                    full,
                });
                if sent.len() > 2 {
                    sent.remove(0);
                }
            }
            self.send(id);
        }
    }

    fn send(&mut self, id: PathId) {
        let path = self.paths.get_mut(id).expect("it is there");
        let size = path.amplification().available().min(FULL as u64);
        path.on_sent(size as usize);
        self.account(id).sent += size;
    }

    /// What must hold whenever everything has been sent.
    pub(super) fn check(&self) -> Result<(), String> {
        let places: Vec<_> = self.paths.roles().collect();
        let ids: BTreeSet<_> = places.iter().map(|(path, _)| path.id()).collect();
        ensure(ids.len() == places.len(), || "a path twice".into())?;
        ensure(ids.len() <= MAX_PATHS, || format!("{} paths", ids.len()))?;
        ensure(ids == self.recovery, || {
            format!("recovery knows {:?}, there are {ids:?}", self.recovery)
        })?;
        let active = self.paths.active_id();
        ensure(active == self.recovery_active, || {
            format!("{active:?} is active, {:?} sends", self.recovery_active)
        })?;
        let count = |which: fn(&PathRole) -> bool| places.iter().filter(|p| which(&p.1)).count();
        let (proven, trial, fallback, join) = (
            count(|place| *place == PathRole::ActiveValidated),
            count(|place| *place == PathRole::ActiveUnvalidated),
            count(|place| *place == PathRole::Fallback),
            count(|place| *place == PathRole::Candidate),
        );
        ensure(
            proven + trial == 1 && trial == fallback && join <= 1,
            || format!("{proven} proven, {trial} on trial, {fallback} fallbacks, {join} joining"),
        )?;
        for &(path, place) in &places {
            self.check_path(path, place)
                .map_err(|what| format!("{} ({place:?}): {what}", self.letter(path)))?;
        }
        self.check_cids(&places)?;
        let next = self.next_timeout();
        ensure(next.is_none_or(|at| at > self.now), || {
            "a busy timer".into()
        })
    }

    fn check_path(&self, path: &Path, place: PathRole) -> Result<(), String> {
        let account = self.accounts[&path.id()];
        let validation = path.validation();
        let is_proven = match place {
            PathRole::ActiveValidated | PathRole::Fallback | PathRole::Retained => true,
            PathRole::ActiveUnvalidated
            | PathRole::Probe
            | PathRole::Candidate
            | PathRole::Abandoned => false,
        };
        ensure(is_proven == account.proven, || {
            format!("challenges of full size answered: {}", account.proven)
        })?;
        let expected = if account.validated {
            u64::MAX
        } else {
            (3 * account.received)
                .checked_sub(account.sent)
                .ok_or_else(|| format!("{} sent for {}", account.sent, account.received))?
        };
        let credit = path.amplification().available();
        ensure(credit == expected, || {
            format!("may send {credit}, expected {expected}")
        })?;
        ensure(is_proven || validation.deadline().is_some(), || {
            format!("nothing ends its validation: {:?}", validation.state())
        })?;
        let timer = self.next_timeout().is_some();
        let over = match place {
            PathRole::ActiveValidated | PathRole::Fallback => true,
            PathRole::ActiveUnvalidated
            | PathRole::Probe
            | PathRole::Candidate
            | PathRole::Abandoned
            | PathRole::Retained => timer,
        };
        ensure(over, || "it waits, and no timer is armed".into())?;
        let due = path.has_frames_due(self.now) && self.may_speak(path);
        ensure(!due, || "frames that nothing holds back".into())
    }

    fn check_cids(&self, places: &[(&Path, PathRole)]) -> Result<(), String> {
        let mut used = BTreeSet::new();
        for (path, _) in places {
            if let Some(sequence) = self.cids.sequence(path.id()) {
                ensure(used.insert(sequence), || {
                    format!("connection ID {sequence} on two paths")
                })?;
            }
        }
        let without = places.len() - used.len();
        ensure(without == 0 || self.cids.unused() == 0, || {
            "a path is silent although a connection ID is to spare".into()
        })?;
        let active = self.cids.sequence(self.paths.active_id()).is_some();
        ensure(active || used.is_empty(), || {
            "others have connection IDs and the active path has none".into()
        })?;
        let held = used.len() + self.cids.unused();
        let tokens = self.cids.reset_tokens().count();
        // The first connection ID has no token here.
        ensure(tokens <= used.len() && used.len() <= tokens + 1, || {
            format!("{held} held, {} used, {tokens} tokens", used.len())
        })
    }

    /// Everything that decides what happens next, without absolute times, numbers
    /// and random bytes.
    pub(super) fn fingerprint(&self) -> Vec<u8> {
        let names = self.names();
        let name = |letter: char| names.iter().position(|&each| each == letter);
        let relative = |at: Option<Instant>| at.map(|at| at - self.now);
        let places: Vec<_> = self
            .paths
            .roles()
            .map(|(path, place)| {
                let validation = path.validation();
                let state = match validation.state() {
                    ValidationState::Idle => 0,
                    ValidationState::Running {
                        address_validated: false,
                    } => 1,
                    ValidationState::Running {
                        address_validated: true,
                    } => 2,
                    ValidationState::Validated => 3,
                    ValidationState::Failed(_) => 4,
                };
                let spare = (place == PathRole::Retained).then(|| self.spare_until(path));
                (
                    (name(self.letter(path)), place),
                    path.amplification().available(),
                    (state, relative(validation.next_timeout())),
                    (relative(validation.deadline()), spare),
                    (
                        self.cids.sequence(path.id()).is_some(),
                        path.has_frames_due(self.now),
                    ),
                )
            })
            .collect();
        let position = |id: PathId| self.paths.iter().position(|path| path.id() == id);
        let mut wire: Vec<_> = self
            .wire
            .iter()
            .map(|(letter, sent)| {
                let sent = sent.iter().map(|c| (position(c.path), c.full));
                (name(*letter), sent.collect::<Vec<_>>())
            })
            .filter(|(_, sent)| !sent.is_empty())
            .collect();
        wire.sort();
        let mut by_sequence: Vec<_> = self.paths.iter().map(Path::id).collect();
        by_sequence.sort_by_key(|&id| self.cids.sequence(id));
        let by_sequence: Vec<_> = by_sequence.into_iter().map(position).collect();
        fingerprint_of(&(
            places,
            (wire, self.stale.is_some()),
            (by_sequence, self.heirs(), self.cids.unused()),
            &self.closed,
        ))
    }

    /// The letters in an order in which those that differ in nothing but their name
    /// (B and C) follow the order of the paths.
    fn names(&self) -> Vec<char> {
        let mut twins: Vec<_> = self.paths.iter().map(|path| self.letter(path)).collect();
        twins.retain(|letter| ['B', 'C'].contains(letter));
        twins.extend(['B', 'C']);
        let first = twins[0];
        let second = if first == 'B' { 'C' } else { 'B' };
        vec!['A', first, second, 'P']
    }

    /// When a spare path goes: the clock is the only witness.
    fn spare_until(&self, path: &Path) -> Duration {
        let mut future = self.clone();
        loop {
            let Some(at) = future.paths.next_timeout(|_| false) else {
                return Duration::MAX;
            };
            future.now = future.now.max(at);
            let _ = future.paths.on_timeout(future.now);
            if future.paths.get(path.id()).is_none() {
                return future.now - self.now;
            }
        }
    }

    /// Which paths get the next connection IDs, in order.
    fn heirs(&self) -> Vec<usize> {
        let mut future = self.clone();
        let mut heirs = Vec::new();
        let without = |network: &Self| {
            let ids = network.paths.iter().map(|path| network.has_cid(path));
            ids.collect::<Vec<_>>()
        };
        let mut before = without(&future);
        while before.contains(&false) && future.closed.is_none() {
            future.issue_cid(0);
            let after = without(&future);
            let heir = before.iter().zip(&after).position(|(a, b)| a != b);
            heirs.extend(heir);
            if heir.is_none() {
                break;
            }
            before = after;
        }
        heirs
    }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

fn cid(sequence: u64) -> ConnectionId {
    ConnectionId::new(&(sequence + 1).to_be_bytes()).expect("eight bytes")
}

fn seed(n: u64) -> [u8; 32] {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&n.to_be_bytes());
    seed
}
