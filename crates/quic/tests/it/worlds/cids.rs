//! Connection IDs: what one end issues and the other uses, over a way that loses
//! and reorders the frames between them (RFC 9000 §5.1).
//!
//! Both ends are honest, so no sequence of events may end in an error, and no
//! path may send to a connection ID that its issuer has forgotten.

use std::collections::BTreeSet;

use clearway_quic::cid::{ConnectionId, NewCid, ResetToken};
use clearway_quic::path::PathId;
use clearway_quic::testing::{LocalCids, MAX_ISSUED, RemoteCids, RoutingChange};

use clearway_testing::explore::{Bounds, ExpectClean, World, explore_by_replay, fingerprint_of};

/// The active_connection_id_limit that the user of the IDs announces.
const LIMIT: u64 = 3;

/// Frames of a kind on their way at once.
const IN_FLIGHT: usize = 2;

const PATHS: [PathId; 3] = [PathId(0), PathId(1), PathId(2)];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Event {
    /// The issuer asks for all of its IDs to be replaced.
    Rotate,
    SendNew,
    /// The `n`th NEW_CONNECTION_ID on its way arrives and is acknowledged.
    NewArrives(usize),
    NewIsLost(usize),
    /// It is taken for lost, but arrives later.
    NewIsLate(usize),
    SendRetire,
    RetireArrives(usize),
    RetireIsLost(usize),
    RetireIsLate(usize),
    /// The user begins with a path, leaves it, or makes it the active one.
    Begin(PathId),
    Leave(PathId),
    Activate(PathId),
    /// The user takes another ID for the active path.
    Switch,
}

struct Ids {
    issuer: LocalCids,
    user: RemoteCids,
    minted: u8,
    /// The issuer's routes, as the endpoint knows them.
    routed: BTreeSet<Vec<u8>>,
    news: Vec<NewCid>,
    /// Sequence numbers, and the ID that the packet was sent to.
    retires: Vec<(u64, ConnectionId)>,
    /// Sequence numbers of those that were sent and not acknowledged.
    owed: BTreeSet<u64>,
    paths: BTreeSet<PathId>,
    active: PathId,
    log: Vec<Event>,
    broken: Option<String>,
}

fn id(n: u8) -> ConnectionId {
    ConnectionId::new(&[n; 4]).expect("four bytes")
}

impl Ids {
    fn new() -> Self {
        let token = ResetToken([0; 16]);
        let mut issuer = LocalCids::new(id(0), token, LIMIT as usize);
        issuer.set_peer_limit(LIMIT);
        let mut user = RemoteCids::new(id(0), PATHS[0], LIMIT);
        user.set_first_reset_token(token);
        let mut ids = Self {
            issuer,
            user,
            minted: 0,
            routed: BTreeSet::new(),
            news: Vec::new(),
            retires: Vec::new(),
            owed: BTreeSet::new(),
            paths: BTreeSet::from([PATHS[0]]),
            active: PATHS[0],
            log: Vec::new(),
            broken: None,
        };
        ids.settle();
        ids
    }

    /// What follows at once from any event: new IDs are issued, routes change.
    fn settle(&mut self) {
        let minted = &mut self.minted;
        self.issuer.replenish(|| {
            *minted += 1;
            (id(*minted), ResetToken([*minted; 16]))
        });
        while let Some(change) = self.issuer.routing_change() {
            let fresh = match change {
                RoutingChange::Add(cid) => self.routed.insert(cid.to_vec()),
                RoutingChange::Remove(cid) => self.routed.remove(&cid.to_vec()),
            };
            if !fresh {
                self.broken = Some(format!("{change:?} changes nothing"));
            }
        }
    }

    fn new_arrives(&mut self, new: NewCid) {
        if let Err(error) = self.user.on_new(new, self.active) {
            self.broken = Some(format!("an honest NEW_CONNECTION_ID is refused: {error}"));
        }
        self.issuer.on_acked(new.sequence);
    }

    fn retire_arrives(&mut self, (sequence, carrier): (u64, ConnectionId)) {
        // A packet to an ID that is gone finds no connection.
        if !self.routed.contains(&carrier.to_vec()) {
            self.user.on_retire_lost(sequence);
            return;
        }
        if let Err(error) = self.issuer.on_retire(sequence, &carrier) {
            self.broken = Some(format!(
                "an honest RETIRE_CONNECTION_ID is refused: {error}"
            ));
        }
        self.owed.remove(&sequence);
        self.user.on_retire_acked(sequence);
    }

    fn send_retire(&mut self) {
        // It leaves on the active path, if that has an ID to be sent to.
        if let Some(cid) = self.user.cid(self.active)
            && let Some(sequence) = self.user.next_retire()
        {
            self.owed.insert(sequence);
            self.retires.push((sequence, cid));
        }
    }
}

impl World for Ids {
    type Event = Event;

    fn events(&self) -> Vec<Event> {
        let mut events = vec![Event::Rotate, Event::Switch];
        if self.issuer.has_frames() && self.news.len() < IN_FLIGHT {
            events.push(Event::SendNew);
        }
        for n in 0..self.news.len() {
            events.extend([
                Event::NewArrives(n),
                Event::NewIsLost(n),
                Event::NewIsLate(n),
            ]);
        }
        if self.user.has_frames() && self.retires.len() < IN_FLIGHT {
            events.push(Event::SendRetire);
        }
        for n in 0..self.retires.len() {
            events.extend([
                Event::RetireArrives(n),
                Event::RetireIsLost(n),
                Event::RetireIsLate(n),
            ]);
        }
        for path in PATHS {
            if !self.paths.contains(&path) {
                events.push(Event::Begin(path));
            } else if path != self.active {
                events.extend([Event::Leave(path), Event::Activate(path)]);
            }
        }
        events
    }

    fn apply(&mut self, event: &Event) {
        self.log.push(*event);
        match *event {
            Event::Rotate => {
                self.issuer.rotate();
            }
            Event::SendNew => self.news.extend(self.issuer.next_to_send()),
            Event::NewArrives(n) => {
                let new = self.news.remove(n);
                self.new_arrives(new);
            }
            Event::NewIsLost(n) => {
                let new = self.news.remove(n);
                self.issuer.on_lost(new.sequence);
            }
            Event::NewIsLate(n) => self.issuer.on_lost(self.news[n].sequence),
            Event::SendRetire => self.send_retire(),
            Event::RetireArrives(n) => {
                let retire = self.retires.remove(n);
                self.retire_arrives(retire);
            }
            Event::RetireIsLost(n) => {
                let (sequence, _) = self.retires.remove(n);
                self.user.on_retire_lost(sequence);
            }
            Event::RetireIsLate(n) => self.user.on_retire_lost(self.retires[n].0),
            Event::Begin(path) => {
                self.paths.insert(path);
                let _ = self.user.assign(path);
            }
            Event::Leave(path) => {
                self.paths.remove(&path);
                self.user.release(path);
            }
            Event::Activate(path) => {
                self.active = path;
                self.user.set_active(path);
            }
            Event::Switch => {
                self.user.switch(self.active);
            }
        }
        self.settle();
    }

    fn check(&self) -> Result<(), String> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let issued: BTreeSet<Vec<u8>> = self.issuer.issued().map(|cid| cid.to_vec()).collect();
        if issued != self.routed {
            return Err(format!("issued {issued:?}, routed {:?}", self.routed));
        }
        if issued.len() > 2 * MAX_ISSUED {
            return Err(format!("{} connection IDs issued", issued.len()));
        }
        let mut used = BTreeSet::new();
        for &path in &self.paths {
            let Some(cid) = self.user.cid(path) else {
                continue;
            };
            if !issued.contains(&cid.to_vec()) {
                return Err(format!("{path:?} sends to {cid:?}, which is forgotten"));
            }
            if !used.insert(cid.to_vec()) {
                return Err(format!("two paths send to {cid:?}"));
            }
        }
        let under_way = |n: &u64| self.retires.iter().any(|(sequence, _)| sequence == n);
        if !self.owed.iter().all(under_way) && !self.user.has_frames() {
            return Err("a RETIRE_CONNECTION_ID is lost and not repeated".into());
        }
        // Someone has to be able to speak, or nothing can ever change again.
        let stuck = self.user.cid(self.active).is_none()
            && self.news.is_empty()
            && !self.issuer.has_frames();
        if stuck {
            return Err("the active path has no connection ID, and none will come".into());
        }
        Ok(())
    }

    fn fingerprint(&self) -> Vec<u8> {
        let at_path = PATHS.map(|path| self.user.cid(path).map(|cid| cid.to_vec()));
        let late = (format!("{:?}", self.issuer), format!("{:?}", self.user));
        let news: Vec<_> = self
            .news
            .iter()
            .map(|n| (n.sequence, n.retire_prior_to))
            .collect();
        let retires: Vec<_> = self
            .retires
            .iter()
            .map(|(n, cid)| (*n, cid.to_vec()))
            .collect();
        fingerprint_of(&(at_path, late, news, retires, &self.paths, self.active.0))
    }
}

#[test]
fn honest_ends_agree_about_connection_ids() {
    let depth = if cfg!(debug_assertions) { 9 } else { 10 };
    explore_by_replay("connection IDs", Ids::new, Bounds::to_depth(depth)).expect_clean();
}
