//! The effect of each event on the paths: the table in the [module above](super), row by
//! row.

use core::time::Duration;
use std::net::IpAddr;

use super::{
    ActiveState, Effect, Effects, MoveError, Paths, RemovalReason, StandbyPath, StandbyRole,
};
use crate::path::amplification::Amplification;
use crate::path::validation::{self, ChallengeData, Proof};
use crate::path::{Addresses, Path, PathId};
use crate::{Instant, Role};

impl Paths {
    /// Applies the peer's max_udp_payload_size.
    pub fn set_peer_limit(&mut self, max_udp_payload: u64) {
        let limit = u16::try_from(max_udp_payload).unwrap_or(u16::MAX);
        self.defaults.max_mtu = self.defaults.max_mtu.min(limit);
        for path in self.iter_mut() {
            path.mtu.set_peer_limit(max_udp_payload);
        }
    }

    /// Marks the active path's address as validated by the handshake (RFC 9000 §8.1).
    pub(crate) fn on_address_validated(&mut self) {
        self.active.amplification.validate();
    }

    /// Handles the confirmation of the handshake: the path is validated, and the client may
    /// migrate.
    pub fn on_confirmed(&mut self, now: Instant) {
        self.confirmed = true;
        self.on_address_validated();
        self.start_mtu_discovery(now);
    }

    /// Counts a received datagram of `bytes`. Every byte from an unvalidated address may be
    /// answered threefold, whether or not it is authentic (RFC 9000 §8.1).
    pub fn on_datagram(&mut self, from: &Addresses, bytes: usize) {
        if let Some(path) = self.find_mut(from) {
            path.amplification.on_received(bytes);
        }
    }

    /// Handles an authentic packet that is not a copy: the local address of its datagram is
    /// true.
    pub(crate) fn on_authenticated(&mut self, from: &Addresses) {
        if let Some(path) = self.find_mut(from)
            && path.local_ip.is_none()
        {
            path.local_ip = from.local_ip;
        }
    }

    /// Handles a 1-RTT packet with a non-probing frame, in a datagram of `bytes`. If no
    /// packet with a higher number arrived before, a server follows the client to the
    /// address that it came from (RFC 9000 §9.3).
    pub fn on_non_probing(
        &mut self,
        now: Instant,
        pto: Duration,
        number: u64,
        from: &Addresses,
        bytes: usize,
    ) -> Effects {
        let mut effects = Effects::new();
        if self.role == Role::Client || number < self.next_newest_number {
            return effects;
        }
        self.next_newest_number = number.saturating_add(1);
        self.demote_candidates();
        if self.active.matches(from) {
            return effects;
        }
        if self.fallback_matches(from) {
            if let Some(left) = self.return_to_fallback(now, &mut effects) {
                self.add_standby(left, StandbyRole::Abandoned, &mut effects);
            }
        } else if let Some(known) = self.take_standby(|standby| standby.path.matches(from)) {
            self.follow_client(now, pto, known, &mut effects);
        } else if self.confirmed {
            let path = self.new_path(now, pto, *from, bytes, &mut effects);
            let role = StandbyRole::Probe;
            self.follow_client(now, pto, StandbyPath { path, role }, &mut effects);
        }
        effects
    }

    /// Handles the completion of the handshake by a datagram of `bytes`. If its client's address
    /// is new, a server follows there: a NAT rebound during the handshake. Like any other move,
    /// it is validated (RFC 9000 §9.3).
    pub fn on_completing_datagram(
        &mut self,
        now: Instant,
        pto: Duration,
        from: &Addresses,
        bytes: usize,
    ) -> Effects {
        let mut effects = Effects::new();
        if self.role == Role::Server && self.confirmed && !self.has_remote(from.remote) {
            let path = self.new_path(now, pto, *from, bytes, &mut effects);
            let role = StandbyRole::Probe;
            self.follow_client(now, pto, StandbyPath { path, role }, &mut effects);
        }
        effects
    }

    /// Handles a PATH_CHALLENGE in a datagram of `bytes`. It is answered on the path that
    /// it arrived on (RFC 9000 §8.2.2).
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
            self.add_standby(path, StandbyRole::Probe, &mut effects);
        }
        effects
    }

    /// Handles a PATH_RESPONSE. The path that it arrived on does not matter, only the path
    /// of its challenge (RFC 9000 §8.2.3).
    pub fn on_response(&mut self, now: Instant, pto: Duration, data: ChallengeData) -> Effects {
        let mut effects = Effects::new();
        let time_since = |path: &Path| Some((path.id, path.validation.time_since(now, data)?));
        if let Some((id, after)) = self.iter().find_map(time_since) {
            effects.push(Effect::Answered { id, after });
        }
        if let Some(proof) = self.active.on_response(now, data) {
            match proof {
                Proof::Path => self.on_active_validated(now, pto, &mut effects),
                Proof::Address => {}
            }
        } else if !self.fallback_on_response(now, data) {
            let answer = |standby: &mut StandbyPath| standby.path.on_response(now, data);
            let validated = |standby: &mut StandbyPath| answer(standby) == Some(Proof::Path);
            if let Some(standby) = self.take_standby(validated) {
                self.on_standby_validated(now, pto, standby, &mut effects);
            }
        }
        effects
    }

    /// Returns the next timeout of a path. Challenges of paths for which `can_send` is
    /// false are left out, since it is no use to wake up for them.
    #[must_use]
    pub fn next_timeout(&self, can_send: impl Fn(&Path) -> bool) -> Option<Instant> {
        let validations = self.iter().filter_map(|path| {
            if can_send(path) {
                path.validation.next_timeout()
            } else {
                path.validation.deadline()
            }
        });
        let standby = self.standby.iter().flatten();
        let spares = standby.filter_map(|standby| match standby.role {
            StandbyRole::Retained { until } => Some(until),
            StandbyRole::Probe | StandbyRole::Candidate | StandbyRole::Abandoned => None,
        });
        let mtu = self.active.mtu.next_timeout();
        validations.chain(spares).chain(mtu).min()
    }

    /// Ends validations that failed, and removes paths whose time is over.
    pub fn on_timeout(&mut self, now: Instant) -> Effects {
        let mut effects = Effects::new();
        self.active.mtu.handle_timeout(now);
        if let ActiveState::Unvalidated { fallback } = &mut self.active_state {
            // The fallback was validated once. Silence may mean that nothing gets through
            // for a while; it remains the path to fall back to.
            let _ = fallback.validation.handle_timeout(now);
        }
        if self.active.validation.handle_timeout(now).is_some()
            && let Some(failed) = self.return_to_fallback(now, &mut effects)
        {
            effects.push(removed(&failed, RemovalReason::Failed));
        }
        while let Some(StandbyPath { path, role }) = self.take_standby(|s| s.is_expired(now)) {
            let reason = match role {
                StandbyRole::Retained { until } if now >= until => RemovalReason::Unused,
                StandbyRole::Retained { .. }
                | StandbyRole::Probe
                | StandbyRole::Candidate
                | StandbyRole::Abandoned => RemovalReason::Failed,
            };
            effects.push(removed(&path, reason));
        }
        effects
    }

    /// Moves the client to another of its addresses at once (RFC 9000 §9.2). An unfinished
    /// move to a preferred address starts again from there (§9.6.3).
    ///
    /// # Errors
    /// See [`MoveError`]. Nothing changes then.
    pub fn migrate(
        &mut self,
        now: Instant,
        pto: Duration,
        local_ip: Option<IpAddr>,
    ) -> Result<Effects, MoveError> {
        self.check_may_migrate()?;
        let mut effects = Effects::new();
        let remote = self.active.remote;
        let to = |remote| Addresses { remote, local_ip };
        let joining = self.take_standby(|s| s.role == StandbyRole::Candidate);
        let path = self.new_path(now, pto, to(remote), 0, &mut effects);
        self.activate(now, pto, path, false, &mut effects);
        if let Some(StandbyPath { path, .. }) = joining {
            effects.push(removed(&path, RemovalReason::Superseded));
            let path = self.new_path(now, pto, to(path.remote), 0, &mut effects);
            self.add_standby(path, StandbyRole::Candidate, &mut effects);
        }
        Ok(effects)
    }

    /// Validates a path, and moves the client there once it is validated. The server's
    /// preferred address gets nothing but probing packets before (RFC 9000 §9.6.1).
    /// Replaces another such move that is not finished.
    ///
    /// # Errors
    /// See [`MoveError`]. Nothing changes then.
    pub fn probe(
        &mut self,
        now: Instant,
        pto: Duration,
        to: Addresses,
    ) -> Result<Effects, MoveError> {
        self.check_may_migrate()?;
        let mut effects = Effects::new();
        if let Some(StandbyPath { path, .. }) =
            self.take_standby(|s| s.role == StandbyRole::Candidate)
        {
            effects.push(removed(&path, RemovalReason::Superseded));
        }
        let path = self.new_path(now, pto, to, 0, &mut effects);
        self.add_standby(path, StandbyRole::Candidate, &mut effects);
        Ok(effects)
    }

    /// Checks whether a client may migrate now.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub(crate) fn check_may_migrate(&self) -> Result<(), MoveError> {
        match (self.role, self.confirmed) {
            (Role::Server, _) => Err(MoveError::NotClient),
            (Role::Client, false) => Err(MoveError::NotConfirmed),
            (Role::Client, true) => Ok(()),
        }
    }

    /// Creates a path of which nothing but the addresses is known, and starts to validate
    /// it.
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

    /// Returns an ID that is not in use. IDs start again after four billion paths.
    fn new_id(&mut self) -> PathId {
        while self.get(PathId(self.next_id)).is_some() {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = PathId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// Follows the client, whose newest packet arrived on a standby path.
    fn follow_client(
        &mut self,
        now: Instant,
        pto: Duration,
        standby: StandbyPath,
        effects: &mut Effects,
    ) {
        let StandbyPath { path, role } = standby;
        let validated = matches!(role, StandbyRole::Retained { .. });
        if !validated && path.has_other_local_ip(&self.active) {
            // RFC 9000 §9.6.2: a server answers from its preferred address only
            // once it has validated the path from there.
            self.add_standby(path, StandbyRole::Candidate, effects);
        } else {
            self.activate(now, pto, path, validated, effects);
        }
    }

    /// Makes `new` the active path.
    fn activate(
        &mut self,
        now: Instant,
        pto: Duration,
        new: Box<Path>,
        validated: bool,
        effects: &mut Effects,
    ) {
        effects.push(activated(&new, validated));
        let mut old = core::mem::replace(&mut self.active, new);
        let active_state = core::mem::replace(&mut self.active_state, ActiveState::Validated);
        let until = now + validation::validation_timeout(pto);
        let spare = StandbyRole::Retained { until };
        match active_state {
            ActiveState::Validated => {
                // RFC 9000 §9.3.3: ask the old address too, an attacker may have
                // forwarded the packet.
                if self.role == Role::Server {
                    old.validation.start(now, pto);
                }
                if validated {
                    self.add_standby(old, spare, effects);
                } else {
                    self.active_state = ActiveState::Unvalidated { fallback: old };
                }
            }
            ActiveState::Unvalidated { fallback } => {
                self.add_standby(old, StandbyRole::Abandoned, effects);
                if validated {
                    self.add_standby(fallback, spare, effects);
                } else {
                    self.active_state = ActiveState::Unvalidated { fallback };
                }
            }
        }
        if validated {
            self.start_mtu_discovery(now);
        }
    }

    /// Makes the fallback, if there is one, the active path. Returns the path that was
    /// active.
    fn return_to_fallback(&mut self, now: Instant, effects: &mut Effects) -> Option<Box<Path>> {
        match core::mem::replace(&mut self.active_state, ActiveState::Validated) {
            ActiveState::Validated => None,
            ActiveState::Unvalidated { fallback } => {
                effects.push(activated(&fallback, true));
                let old = core::mem::replace(&mut self.active, fallback);
                self.start_mtu_discovery(now);
                Some(old)
            }
        }
    }

    /// Handles the validation of the active path in full size.
    fn on_active_validated(&mut self, now: Instant, pto: Duration, effects: &mut Effects) {
        match core::mem::replace(&mut self.active_state, ActiveState::Validated) {
            ActiveState::Validated => {}
            ActiveState::Unvalidated { fallback } => {
                effects.push(validated(&self.active));
                let until = now + validation::validation_timeout(pto);
                self.add_standby(fallback, StandbyRole::Retained { until }, effects);
                self.start_mtu_discovery(now);
            }
        }
    }

    /// Handles the validation of a standby path in full size.
    fn on_standby_validated(
        &mut self,
        now: Instant,
        pto: Duration,
        standby: StandbyPath,
        effects: &mut Effects,
    ) {
        let StandbyPath { path, role } = standby;
        let until = now + validation::validation_timeout(pto);
        let spare = StandbyRole::Retained { until };
        match role {
            StandbyRole::Retained { .. } => self.add_standby(path, role, effects),
            StandbyRole::Probe => {
                effects.push(validated(&path));
                self.add_standby(path, spare, effects);
            }
            StandbyRole::Abandoned => {
                effects.push(validated(&path));
                // It is more recent than the fallback.
                let older = match &mut self.active_state {
                    ActiveState::Validated => path,
                    ActiveState::Unvalidated { fallback } => core::mem::replace(fallback, path),
                };
                self.add_standby(older, spare, effects);
            }
            StandbyRole::Candidate => {
                effects.push(validated(&path));
                self.activate(now, pto, path, true, effects);
            }
        }
    }

    /// Starts MTU discovery on the active path, which is validated.
    fn start_mtu_discovery(&mut self, now: Instant) {
        if self.defaults.mtu_discovery {
            self.active.mtu.start(now);
        }
    }

    /// The newest packet determines the path, so moves that older packets started are
    /// demoted to probes.
    fn demote_candidates(&mut self) {
        for standby in self.standby.iter_mut().flatten() {
            if standby.role == StandbyRole::Candidate {
                standby.role = StandbyRole::Probe;
            }
        }
    }

    /// Adds a standby path. If there is no room, one is removed: the oldest of the least
    /// important role.
    fn add_standby(&mut self, path: Box<Path>, role: StandbyRole, effects: &mut Effects) {
        if self.standby.iter().all(Option::is_some) {
            let ranks = self
                .standby
                .iter()
                .flatten()
                .map(|s| s.role.eviction_rank());
            let lowest = ranks.min().unwrap_or(role.eviction_rank());
            if role.eviction_rank() < lowest {
                effects.push(removed(&path, RemovalReason::Evicted));
                return;
            }
            if let Some(last) = self.take_standby(|s| s.role.eviction_rank() == lowest) {
                effects.push(removed(&last.path, RemovalReason::Evicted));
            }
        }
        if let Some(place) = self.standby.iter_mut().find(|place| place.is_none()) {
            *place = Some(Box::new(StandbyPath { path, role }));
        }
    }

    /// Removes and returns the first standby path for which `which` is true.
    fn take_standby(
        &mut self,
        mut which: impl FnMut(&mut StandbyPath) -> bool,
    ) -> Option<StandbyPath> {
        let mut places = self.standby.iter_mut();
        let taken = places.find_map(|place| place.take_if(|standby| which(standby)))?;
        // The order of the others stays.
        self.standby.sort_by_key(Option::is_none);
        Some(*taken)
    }

    fn fallback_matches(&self, from: &Addresses) -> bool {
        match &self.active_state {
            ActiveState::Validated => false,
            ActiveState::Unvalidated { fallback } => fallback.matches(from),
        }
    }

    fn fallback_on_response(&mut self, now: Instant, data: ChallengeData) -> bool {
        match &mut self.active_state {
            ActiveState::Validated => false,
            ActiveState::Unvalidated { fallback } => fallback.on_response(now, data).is_some(),
        }
    }
}

impl StandbyPath {
    /// Returns whether its validation failed or its time is over.
    fn is_expired(&mut self, now: Instant) -> bool {
        let failed = self.path.validation.handle_timeout(now).is_some();
        match self.role {
            StandbyRole::Retained { until } => failed || now >= until,
            StandbyRole::Probe | StandbyRole::Candidate | StandbyRole::Abandoned => failed,
        }
    }
}

fn validated(path: &Path) -> Effect {
    let Path { id, remote, .. } = *path;
    Effect::Validated { id, remote }
}

fn activated(path: &Path, validated: bool) -> Effect {
    let Path { id, remote, .. } = *path;
    Effect::Activated {
        id,
        remote,
        validated,
    }
}

fn removed(path: &Path, reason: RemovalReason) -> Effect {
    let Path { id, remote, .. } = *path;
    Effect::Removed { id, remote, reason }
}
