//! What each event does to the paths: the table in the [module above](super), row
//! by row.

use core::time::Duration;
use std::net::IpAddr;

use super::{Effect, Effects, MoveError, Paths, Purpose, Removal, Standby, Standing};
use crate::path::amplification::Amplification;
use crate::path::validation::{self, ChallengeData, Proof};
use crate::path::{Addresses, Path, PathId};
use crate::{Instant, Role};

impl Paths {
    /// The peer's max_udp_payload_size is known.
    pub fn set_peer_limit(&mut self, max_udp_payload: u64) {
        let limit = u16::try_from(max_udp_payload).unwrap_or(u16::MAX);
        self.defaults.max_mtu = self.defaults.max_mtu.min(limit);
        for path in self.iter_mut() {
            path.mtu.set_peer_limit(max_udp_payload);
        }
    }

    /// The handshake showed that the peer receives at the address it claims
    /// (RFC 9000 §8.1).
    pub(crate) fn on_address_validated(&mut self) {
        self.active.amplification.validate();
    }

    /// The handshake is confirmed: it proved the path, and the client may move.
    pub fn on_confirmed(&mut self, now: Instant) {
        self.confirmed = true;
        self.on_address_validated();
        self.search_mtu(now);
    }

    /// A datagram of `bytes` came from there. Every byte from an unvalidated
    /// address may be answered threefold (RFC 9000 §8.1), whether or not it
    /// authenticates.
    pub fn on_datagram(&mut self, from: &Addresses, bytes: usize) {
        if let Some(path) = self.find_mut(from) {
            path.amplification.on_received(bytes);
        }
    }

    /// A packet from there authenticated and is no copy: what the datagram says
    /// of our own address is true.
    pub(crate) fn on_authenticated(&mut self, from: &Addresses) {
        if let Some(path) = self.find_mut(from)
            && path.local_ip.is_none()
        {
            path.local_ip = from.local_ip;
        }
    }

    /// A 1-RTT packet that holds more than probing frames came in a datagram of
    /// `bytes`. If none with a higher number came before, a server follows the
    /// client to where it came from (RFC 9000 §9.3).
    pub fn on_non_probing(
        &mut self,
        now: Instant,
        pto: Duration,
        number: u64,
        from: &Addresses,
        bytes: usize,
    ) -> Effects {
        let mut effects = Effects::new();
        if self.role == Role::Client || number < self.newest_from {
            return effects;
        }
        self.newest_from = number.saturating_add(1);
        self.stop_joining();
        if self.active.matches(from) {
            return effects;
        }
        if self.fallback_matches(from) {
            if let Some(left) = self.return_to_fallback(now, &mut effects) {
                self.stand_by(left, Purpose::Left, &mut effects);
            }
        } else if let Some(known) = self.take_standby(|standby| standby.path.matches(from)) {
            self.follow(now, pto, known, &mut effects);
        } else if self.confirmed {
            let path = self.new_path(now, pto, *from, bytes, &mut effects);
            let purpose = Purpose::Probe;
            self.follow(now, pto, Standby { path, purpose }, &mut effects);
        }
        effects
    }

    /// A PATH_CHALLENGE came in a datagram of `bytes`. It is answered on the path
    /// that it came on (RFC 9000 §8.2.2).
    pub fn on_challenge(
        &mut self,
        now: Instant,
        pto: Duration,
        from: &Addresses,
        bytes: usize,
        data: ChallengeData,
    ) -> Effects {
        let mut effects = Effects::new();
        if let Some(path) = self.find_mut(from) {
            if !path.responses.on_challenge(data) {
                effects.push(Effect::ChallengeDropped { id: path.id });
            }
            return effects;
        }
        if self.confirmed {
            let mut path = self.new_path(now, pto, *from, bytes, &mut effects);
            path.responses.on_challenge(data);
            self.stand_by(path, Purpose::Probe, &mut effects);
        }
        effects
    }

    /// A PATH_RESPONSE came, no matter where: what counts is where its challenge
    /// went (RFC 9000 §8.2.3).
    pub fn on_response(&mut self, now: Instant, pto: Duration, data: ChallengeData) -> Effects {
        let mut effects = Effects::new();
        if let Some(proof) = self.active.on_response(now, data) {
            match proof {
                Proof::Path => self.prove_active(now, pto, &mut effects),
                Proof::Address => {}
            }
        } else if !self.fallback_answers(now, data) {
            let answer = |standby: &mut Standby| standby.path.on_response(now, data);
            let proven = |standby: &mut Standby| answer(standby) == Some(Proof::Path);
            if let Some(standby) = self.take_standby(proven) {
                self.prove_standby(now, pto, standby, &mut effects);
            }
        }
        effects
    }

    /// When something is to be done, as far as `may_speak` lets a path say
    /// something: a challenge that can't be sent is no reason to wake up.
    #[must_use]
    pub fn next_timeout(&self, may_speak: impl Fn(&Path) -> bool) -> Option<Instant> {
        let validations = self.iter().filter_map(|path| {
            if may_speak(path) {
                path.validation.next_timeout()
            } else {
                path.validation.deadline()
            }
        });
        let standby = self.standby.iter().flatten();
        let spares = standby.filter_map(|standby| match standby.purpose {
            Purpose::Spare { until } => Some(until),
            Purpose::Probe | Purpose::Join | Purpose::Left => None,
        });
        let mtu = self.active.mtu.next_timeout();
        validations.chain(spares).chain(mtu).min()
    }

    /// Ends what did not come to its end in time.
    pub fn on_timeout(&mut self, now: Instant) -> Effects {
        let mut effects = Effects::new();
        self.active.mtu.handle_timeout(now);
        if let Standing::OnTrial { fallback } = &mut self.standing {
            // It was proven once. Silence may mean that nothing gets through for
            // a while; it is what to return to all the same.
            let _ = fallback.validation.handle_timeout(now);
        }
        if self.active.validation.handle_timeout(now).is_some()
            && let Some(failed) = self.return_to_fallback(now, &mut effects)
        {
            effects.push(removed(&failed, Removal::Failed));
        }
        while let Some(Standby { path, purpose }) = self.take_standby(|s| s.is_over(now)) {
            let why = match purpose {
                Purpose::Spare { until } if now >= until => Removal::Unused,
                Purpose::Spare { .. } | Purpose::Probe | Purpose::Join | Purpose::Left => {
                    Removal::Failed
                }
            };
            effects.push(removed(&path, why));
        }
        effects
    }

    /// The client moves to another of its addresses, at once (RFC 9000 §9.2). A
    /// move to a preferred address that is not done yet begins anew from there
    /// (§9.6.3).
    ///
    /// # Errors
    /// See [`MoveError`]; nothing changes.
    pub fn migrate(
        &mut self,
        now: Instant,
        pto: Duration,
        local_ip: Option<IpAddr>,
    ) -> Result<Effects, MoveError> {
        self.check_may_move()?;
        let mut effects = Effects::new();
        let remote = self.active.remote;
        let to = |remote| Addresses { remote, local_ip };
        let joining = self.take_standby(|s| s.purpose == Purpose::Join);
        let path = self.new_path(now, pto, to(remote), 0, &mut effects);
        self.activate(now, pto, path, false, &mut effects);
        if let Some(Standby { path, .. }) = joining {
            effects.push(removed(&path, Removal::Superseded));
            let path = self.new_path(now, pto, to(path.remote), 0, &mut effects);
            self.stand_by(path, Purpose::Join, &mut effects);
        }
        Ok(effects)
    }

    /// The client probes a path, and moves there once it is proven: to the
    /// server's preferred address, which gets nothing but probing packets before
    /// (RFC 9000 §9.6.1). Replaces another such move that is not done yet.
    ///
    /// # Errors
    /// See [`MoveError`]; nothing changes.
    pub fn join(
        &mut self,
        now: Instant,
        pto: Duration,
        to: Addresses,
    ) -> Result<Effects, MoveError> {
        self.check_may_move()?;
        let mut effects = Effects::new();
        if let Some(Standby { path, .. }) = self.take_standby(|s| s.purpose == Purpose::Join) {
            effects.push(removed(&path, Removal::Superseded));
        }
        let path = self.new_path(now, pto, to, 0, &mut effects);
        self.stand_by(path, Purpose::Join, &mut effects);
        Ok(effects)
    }

    /// Whether a client may move now.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub(crate) fn check_may_move(&self) -> Result<(), MoveError> {
        match (self.role, self.confirmed) {
            (Role::Server, _) => Err(MoveError::NotClient),
            (Role::Client, false) => Err(MoveError::NotConfirmed),
            (Role::Client, true) => Ok(()),
        }
    }

    /// A path with nothing known about it but its addresses, being validated.
    fn new_path(
        &mut self,
        now: Instant,
        pto: Duration,
        addresses: Addresses,
        received: usize,
        effects: &mut Effects,
    ) -> Box<Path> {
        let id = self.new_id();
        let mut amplification = match self.role {
            Role::Client => Amplification::validated(),
            Role::Server => Amplification::new(),
        };
        amplification.on_received(received);
        let mut path = Box::new(Path::new(id, addresses, amplification, &self.defaults));
        path.validation.start(now, pto);
        let remote = addresses.remote;
        effects.push(Effect::Added { id, remote });
        path
    }

    /// Numbers begin again after four billion paths, of which few are left.
    fn new_id(&mut self) -> PathId {
        while self.get(PathId(self.next_id)).is_some() {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = PathId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// The client's newest packet came on a path that stood by.
    fn follow(&mut self, now: Instant, pto: Duration, standby: Standby, effects: &mut Effects) {
        let Standby { path, purpose } = standby;
        let proven = matches!(purpose, Purpose::Spare { .. });
        if !proven && path.has_other_local_ip(&self.active) {
            // RFC 9000 §9.6.2: a server answers from its preferred address only
            // once it has validated the path from there.
            self.stand_by(path, Purpose::Join, effects);
        } else {
            self.activate(now, pto, path, proven, effects);
        }
    }

    /// Makes `new` the active path.
    fn activate(
        &mut self,
        now: Instant,
        pto: Duration,
        new: Box<Path>,
        proven: bool,
        effects: &mut Effects,
    ) {
        effects.push(activated(&new, proven));
        let mut old = core::mem::replace(&mut self.active, new);
        let standing = core::mem::replace(&mut self.standing, Standing::Proven);
        let until = now + validation::patience(pto);
        let spare = Purpose::Spare { until };
        match standing {
            Standing::Proven => {
                // RFC 9000 §9.3.3: ask the old address too, an attacker may have
                // forwarded the packet.
                if self.role == Role::Server {
                    old.validation.start(now, pto);
                }
                if proven {
                    self.stand_by(old, spare, effects);
                } else {
                    self.standing = Standing::OnTrial { fallback: old };
                }
            }
            Standing::OnTrial { fallback } => {
                self.stand_by(old, Purpose::Left, effects);
                if proven {
                    self.stand_by(fallback, spare, effects);
                } else {
                    self.standing = Standing::OnTrial { fallback };
                }
            }
        }
        if proven {
            self.search_mtu(now);
        }
    }

    /// Makes the fallback, if there is one, the active path. The path that was.
    fn return_to_fallback(&mut self, now: Instant, effects: &mut Effects) -> Option<Box<Path>> {
        match core::mem::replace(&mut self.standing, Standing::Proven) {
            Standing::Proven => None,
            Standing::OnTrial { fallback } => {
                effects.push(activated(&fallback, true));
                let old = core::mem::replace(&mut self.active, fallback);
                self.search_mtu(now);
                Some(old)
            }
        }
    }

    /// The peer answered in full size on the active path.
    fn prove_active(&mut self, now: Instant, pto: Duration, effects: &mut Effects) {
        match core::mem::replace(&mut self.standing, Standing::Proven) {
            Standing::Proven => {}
            Standing::OnTrial { fallback } => {
                effects.push(proven(&self.active));
                let until = now + validation::patience(pto);
                self.stand_by(fallback, Purpose::Spare { until }, effects);
                self.search_mtu(now);
            }
        }
    }

    /// The peer answered in full size on a path that stood by.
    fn prove_standby(
        &mut self,
        now: Instant,
        pto: Duration,
        standby: Standby,
        effects: &mut Effects,
    ) {
        let Standby { path, purpose } = standby;
        let until = now + validation::patience(pto);
        let spare = Purpose::Spare { until };
        match purpose {
            Purpose::Spare { .. } => self.stand_by(path, purpose, effects),
            Purpose::Probe => {
                effects.push(proven(&path));
                self.stand_by(path, spare, effects);
            }
            Purpose::Left => {
                effects.push(proven(&path));
                // More recent than what the connection would return to.
                let older = match &mut self.standing {
                    Standing::Proven => path,
                    Standing::OnTrial { fallback } => core::mem::replace(fallback, path),
                };
                self.stand_by(older, spare, effects);
            }
            Purpose::Join => {
                effects.push(proven(&path));
                self.activate(now, pto, path, true, effects);
            }
        }
    }

    /// The active path is proven: larger datagrams may be tried.
    fn search_mtu(&mut self, now: Instant) {
        if self.defaults.mtu_discovery {
            self.active.mtu.start(now);
        }
    }

    /// The newest packet decides where to go: not where an older one meant to.
    fn stop_joining(&mut self) {
        for standby in self.standby.iter_mut().flatten() {
            if standby.purpose == Purpose::Join {
                standby.purpose = Purpose::Probe;
            }
        }
    }

    /// Keeps a path. If there is no room, one goes: of the kind that matters least,
    /// the oldest.
    fn stand_by(&mut self, path: Box<Path>, purpose: Purpose, effects: &mut Effects) {
        if self.standby.iter().all(Option::is_some) {
            let ranks = self.standby.iter().flatten().map(|s| s.purpose.rank());
            let lowest = ranks.min().unwrap_or(purpose.rank());
            if purpose.rank() < lowest {
                effects.push(removed(&path, Removal::Evicted));
                return;
            }
            if let Some(last) = self.take_standby(|s| s.purpose.rank() == lowest) {
                effects.push(removed(&last.path, Removal::Evicted));
            }
        }
        if let Some(place) = self.standby.iter_mut().find(|place| place.is_none()) {
            *place = Some(Box::new(Standby { path, purpose }));
        }
    }

    /// Takes the first path out that stands by and of which `which` is true.
    fn take_standby(&mut self, mut which: impl FnMut(&mut Standby) -> bool) -> Option<Standby> {
        let mut places = self.standby.iter_mut();
        let taken = places.find_map(|place| place.take_if(|standby| which(standby)))?;
        // The order of the others stays.
        self.standby.sort_by_key(Option::is_none);
        Some(*taken)
    }

    fn fallback_matches(&self, from: &Addresses) -> bool {
        match &self.standing {
            Standing::Proven => false,
            Standing::OnTrial { fallback } => fallback.matches(from),
        }
    }

    fn fallback_answers(&mut self, now: Instant, data: ChallengeData) -> bool {
        match &mut self.standing {
            Standing::Proven => false,
            Standing::OnTrial { fallback } => fallback.on_response(now, data).is_some(),
        }
    }
}

impl Standby {
    /// Whether its time has passed.
    fn is_over(&mut self, now: Instant) -> bool {
        let failed = self.path.validation.handle_timeout(now).is_some();
        match self.purpose {
            Purpose::Spare { until } => failed || now >= until,
            Purpose::Probe | Purpose::Join | Purpose::Left => failed,
        }
    }
}

fn proven(path: &Path) -> Effect {
    let Path { id, remote, .. } = *path;
    Effect::Proven { id, remote }
}

fn activated(path: &Path, proven: bool) -> Effect {
    let Path { id, remote, .. } = *path;
    Effect::Activated { id, remote, proven }
}

fn removed(path: &Path, why: Removal) -> Effect {
    let Path { id, remote, .. } = *path;
    Effect::Removed { id, remote, why }
}
