//! Loss recovery with a known bug around it: the same name and methods as the
//! right one, so that the transport is built with either.

use core::ops::{Deref, DerefMut, RangeInclusive};
use core::time::Duration;

use super::Specimen;
use crate::controller::{Controller, SendIndex};
use crate::outcome::{AckError, LossCause, Lost, Outcome};
use crate::pto::Pending;
use crate::recovery as right;
use crate::rtt::{GRANULARITY, Rtt};
use crate::time::Instant;
use crate::{Config, Gate, PathId, SentInfo, Space};

/// Loss detection and congestion control of a connection, with the bug of
/// [`Config::specimen`] if it is one of pacer, timer or paths.
#[derive(Debug)]
pub struct Recovery<F> {
    right: right::Recovery<F>,
    specimen: Option<Specimen>,
    paths: Vec<PathFlaw>,
    /// `retransmit-all-on-migration`: what the next timeout declares lost.
    withdrawn: Vec<Lost<F>>,
}

/// What a bug remembers of a path.
#[derive(Debug)]
struct PathFlaw {
    id: PathId,
    /// `bif-desync`: in flight, and forgotten.
    forgotten: Flight,
    /// `pacer-spin`: when the last train left, from which its deadlines count.
    last_train: Instant,
    /// `tokenbucket-startup`: bytes in the bucket, which only ACKs refill.
    tokens: u64,
}

/// What is in flight on a path.
#[derive(Clone, Copy, Debug, Default)]
struct Flight {
    bytes: u64,
    packets: u64,
    ack_eliciting: [u64; 3],
}

impl<F> Deref for Recovery<F> {
    type Target = right::Recovery<F>;

    fn deref(&self) -> &Self::Target {
        &self.right
    }
}

impl<F> DerefMut for Recovery<F> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.right
    }
}

/// Packets in the bucket of `tokenbucket-startup` at most.
const BUCKET: u64 = 10;

impl<F> Recovery<F> {
    /// See the right [`new`](right::Recovery::new).
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            specimen: config.specimen,
            right: right::Recovery::new(config, now),
            paths: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    fn has(&self, specimen: Specimen) -> bool {
        self.specimen == Some(specimen)
    }

    fn flaw(&mut self, id: PathId) -> Option<&mut PathFlaw> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    /// See the right [`add_path`](right::Recovery::add_path).
    pub fn add_path(
        &mut self,
        id: PathId,
        controller: Box<dyn Controller>,
        mds: u64,
        now: Instant,
    ) {
        self.right.add_path(id, controller, mds, now);
        self.paths.push(PathFlaw {
            id,
            forgotten: Flight::default(),
            last_train: now,
            tokens: BUCKET * mds,
        });
    }

    /// See the right [`remove_path`](right::Recovery::remove_path).
    pub fn remove_path(&mut self, id: PathId, out: &mut Outcome<F>) {
        self.with_true_books(|right| right.remove_path(id, out));
        self.paths.retain(|path| path.id != id);
    }

    /// See the right [`set_active_path`](right::Recovery::set_active_path).
    /// `bif-desync`, `migration-rtt-reset` and `retransmit-all-on-migration`
    /// strike here.
    pub fn set_active_path(&mut self, id: PathId, now: Instant) {
        let old = self.right.active_path();
        self.right.set_active_path(id, now);
        if self.has(Specimen::BifDesync) {
            for path in &mut self.paths {
                path.forgotten.add_to(&mut self.right, path.id);
                path.forgotten = Flight::of(&self.right, path.id);
            }
            self.hide();
        }
        if self.has(Specimen::MigrationRttReset) {
            for path in &mut self.right.paths {
                // A measurement that no path is as short as.
                path.rtt = Rtt::new(GRANULARITY);
                path.rtt.sample(GRANULARITY, Duration::ZERO, Instant::ZERO);
            }
        }
        if self.has(Specimen::RetransmitAllOnMigration) {
            let mut out = Outcome::new();
            self.right
                .hand_back(Space::Data, LossCause::PathRemoved, Some(old), &mut out);
            self.withdrawn.append(&mut out.lost);
        }
    }

    /// See the right [`gate`](right::Recovery::gate). `pacer-spin` and
    /// `tokenbucket-startup` strike here.
    pub fn gate(&mut self, id: PathId, now: Instant) -> Gate {
        let gate = self.right.gate(id, now);
        if self.has(Specimen::TokenbucketStartup) {
            return self.gate_by_tokens(id, gate, now);
        }
        let Some(last) = self.flaw(id).map(|path| &mut path.last_train) else {
            return gate;
        };
        match gate {
            Gate::Open { .. } => *last = now,
            Gate::Pacing { until } => {
                // What has come together since then is counted twice.
                let until = *last + (until - now);
                if self.has(Specimen::PacerSpin) {
                    return Gate::Pacing { until };
                }
            }
            Gate::Congestion => {}
        }
        gate
    }

    fn gate_by_tokens(&mut self, id: PathId, gate: Gate, now: Instant) -> Gate {
        let Some(path) = self.right.path(id) else {
            return gate;
        };
        let (mds, room) = (path.mds(), path.window().saturating_sub(path.in_flight()));
        let tokens = self.flaw(id).map_or(0, |path| path.tokens);
        match gate {
            Gate::Congestion => gate,
            Gate::Open { .. } | Gate::Pacing { .. } if tokens.min(room) >= mds => Gate::Open {
                bytes: tokens.min(room),
            },
            // No clock refills it, so no time is worth waiting for.
            Gate::Open { .. } | Gate::Pacing { .. } => Gate::Pacing {
                until: now + Duration::from_secs(3_600),
            },
        }
    }

    /// See the right [`on_sent`](right::Recovery::on_sent).
    pub fn on_sent(&mut self, info: SentInfo, content: F) -> SendIndex {
        if info.in_flight
            && let Some(path) = self.flaw(info.path)
        {
            path.tokens = path.tokens.saturating_sub(info.size.into());
        }
        self.right.on_sent(info, content)
    }

    /// See the right [`on_ack`](right::Recovery::on_ack).
    ///
    /// # Errors
    /// As the right one.
    pub fn on_ack(
        &mut self,
        space: Space,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        ack_delay: Duration,
        now: Instant,
        out: &mut Outcome<F>,
    ) -> Result<(), AckError> {
        self.with_true_books(|right| right.on_ack(space, ranges, ack_delay, now, out))?;
        for path in &self.right.paths {
            let flaw = self.paths.iter_mut().find(|flaw| flaw.id == path.id);
            if let Some(flaw) = flaw.filter(|_| path.ack.bytes > 0) {
                flaw.tokens = (flaw.tokens + path.mds).min(BUCKET * path.mds);
            }
        }
        Ok(())
    }

    /// See the right [`pending`](right::Recovery::pending). `pto-unarmed` strikes
    /// here: no timer while nothing is in flight, though the peer can't send either.
    #[must_use]
    pub fn pending(&self) -> Option<(Instant, Pending)> {
        if let Some(lost) = self.withdrawn.first() {
            return Some((lost.sent, Pending::Loss));
        }
        let (deadline, what) = self.right.pending()?;
        let unarmed = match what {
            Pending::Loss => false,
            Pending::Pto => self.has(Specimen::PtoUnarmed) && !self.probes_flight(),
        };
        (!unarmed).then_some((deadline, what))
    }

    /// Whether a probe timeout would be for packets in flight.
    fn probes_flight(&self) -> bool {
        let confirmed = self.right.context.handshake_confirmed;
        Space::ALL
            .into_iter()
            .filter(|space| *space != Space::Data || confirmed)
            .any(|space| self.right.has_unacked(space))
    }

    /// See the right [`next_timeout`](right::Recovery::next_timeout).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.pending().map(|(deadline, _)| deadline)
    }

    /// See the right [`on_timeout`](right::Recovery::on_timeout).
    pub fn on_timeout(&mut self, now: Instant, out: &mut Outcome<F>) {
        out.lost.append(&mut self.withdrawn);
        let due = self.next_timeout().is_some_and(|due| due <= now);
        if due || !self.has(Specimen::PtoUnarmed) {
            self.with_true_books(|right| right.on_timeout(now, out));
        }
    }

    /// See the right [`discard_space`](right::Recovery::discard_space).
    pub fn discard_space(&mut self, space: Space, now: Instant) {
        self.with_true_books(|right| right.discard_space(space, now));
    }

    /// See the right [`on_retry`](right::Recovery::on_retry).
    pub fn on_retry(&mut self, now: Instant, out: &mut Outcome<F>) {
        self.with_true_books(|right| right.on_retry(now, out));
    }

    /// See the right [`on_zero_rtt_rejected`](right::Recovery::on_zero_rtt_rejected).
    pub fn on_zero_rtt_rejected(&mut self, now: Instant, out: &mut Outcome<F>) {
        self.with_true_books(|right| right.on_zero_rtt_rejected(now, out));
    }

    /// See the right [`abandon`](right::Recovery::abandon).
    pub fn abandon(&mut self) {
        self.with_true_books(right::Recovery::abandon);
    }

    /// Does what takes packets out of flight with the forgotten ones in the books,
    /// and forgets again those that are left: what left first leaves first.
    fn with_true_books<R>(&mut self, act: impl FnOnce(&mut right::Recovery<F>) -> R) -> R {
        for path in &self.paths {
            path.forgotten.add_to(&mut self.right, path.id);
        }
        let before: Vec<Flight> = self
            .paths
            .iter()
            .map(|path| Flight::of(&self.right, path.id))
            .collect();
        let result = act(&mut self.right);
        for (path, before) in self.paths.iter_mut().zip(before) {
            let after = Flight::of(&self.right, path.id);
            path.forgotten = path.forgotten.minus(before.minus(after));
        }
        self.hide();
        result
    }

    /// Takes what is forgotten out of the books.
    fn hide(&mut self) {
        for path in &self.paths {
            let left = Flight::of(&self.right, path.id).minus(path.forgotten);
            left.set(&mut self.right, path.id);
        }
    }
}

impl Flight {
    fn of<F>(right: &right::Recovery<F>, id: PathId) -> Self {
        right.path(id).map_or_else(Self::default, |path| Self {
            bytes: path.in_flight,
            packets: path.packets_in_flight,
            ack_eliciting: path.spaces.map(|space| space.ack_eliciting),
        })
    }

    fn set<F>(self, right: &mut right::Recovery<F>, id: PathId) {
        if let Some(path) = right.paths.iter_mut().find(|path| path.id == id) {
            path.in_flight = self.bytes;
            path.packets_in_flight = self.packets;
            for (space, count) in path.spaces.iter_mut().zip(self.ack_eliciting) {
                space.ack_eliciting = count;
            }
        }
    }

    fn add_to<F>(self, right: &mut right::Recovery<F>, id: PathId) {
        let mut sum = Self::of(right, id);
        sum.bytes += self.bytes;
        sum.packets += self.packets;
        for (sum, count) in sum.ack_eliciting.iter_mut().zip(self.ack_eliciting) {
            *sum += count;
        }
        sum.set(right, id);
    }

    fn minus(mut self, other: Self) -> Self {
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.packets = self.packets.saturating_sub(other.packets);
        for (left, count) in self.ack_eliciting.iter_mut().zip(other.ack_eliciting) {
            *left = left.saturating_sub(count);
        }
        self
    }
}
