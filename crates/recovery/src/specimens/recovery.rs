//! Loss recovery with a known bug: a wrapper with the same name and methods as the correct
//! one, so that the transport builds with either.

use core::ops::{Deref, DerefMut, RangeInclusive};
use core::time::Duration;

use super::Specimen;
use crate::controller::{Controller, SendIndex};
use crate::outcome::{AckError, LossCause, Lost, NewlyAcked, Outcome};
use crate::pto::TimerType;
use crate::recovery as inner;
use crate::rtt::{GRANULARITY, Rtt};
use crate::time::Instant;
use crate::{Config, Gate, PathId, SentInfo, Space};

/// Loss detection and congestion control of a connection, with the bug of
/// [`Config::specimen`] if it is one of pacer, timer or paths.
#[derive(Debug)]
pub struct Recovery<F> {
    inner: inner::Recovery<F>,
    specimen: Option<Specimen>,
    paths: Vec<PathBug>,
    /// `retransmit-all-on-migration`: what the next timeout declares lost.
    withdrawn: Vec<Lost<F>>,
}

/// What a bug stores for a path.
#[derive(Debug)]
struct PathBug {
    id: PathId,
    /// `bif-desync`: what is in flight but not counted.
    forgotten: Flight,
    /// `pacer-spin`: when the last train was sent, from which its deadlines count.
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
    type Target = inner::Recovery<F>;

    fn deref(&self) -> &Self::Target {
        &self.inner
    }
}

impl<F> DerefMut for Recovery<F> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.inner
    }
}

/// Size of the bucket of `tokenbucket-startup` in packets.
const BUCKET: u64 = 10;

impl<F> Recovery<F> {
    /// See [`new`](inner::Recovery::new).
    #[must_use]
    pub fn new(config: Config, now: Instant) -> Self {
        Self {
            specimen: config.specimen,
            inner: inner::Recovery::new(config, now),
            paths: Vec::new(),
            withdrawn: Vec::new(),
        }
    }

    fn has(&self, specimen: Specimen) -> bool {
        self.specimen == Some(specimen)
    }

    fn bug(&mut self, id: PathId) -> Option<&mut PathBug> {
        self.paths.iter_mut().find(|path| path.id == id)
    }

    /// See [`add_path`](inner::Recovery::add_path).
    pub fn add_path(
        &mut self,
        id: PathId,
        controller: Box<dyn Controller>,
        mds: u64,
        now: Instant,
    ) {
        self.inner.add_path(id, controller, mds, now);
        self.paths.push(PathBug {
            id,
            forgotten: Flight::default(),
            last_train: now,
            tokens: BUCKET * mds,
        });
    }

    /// See [`remove_path`](inner::Recovery::remove_path).
    pub fn remove_path(&mut self, id: PathId, out: &mut Outcome<F>) {
        self.with_true_counts(|inner| inner.remove_path(id, out));
        self.paths.retain(|path| path.id != id);
    }

    /// See [`set_active_path`](inner::Recovery::set_active_path).
    /// `bif-desync`, `migration-rtt-reset` and `retransmit-all-on-migration`
    /// take effect here.
    pub fn set_active_path(&mut self, id: PathId, now: Instant) {
        let old = self.inner.active_path();
        self.inner.set_active_path(id, now);
        if self.has(Specimen::BifDesync) {
            for path in &mut self.paths {
                path.forgotten.add_to(&mut self.inner, path.id);
                path.forgotten = Flight::of(&self.inner, path.id);
            }
            self.hide();
        }
        if self.has(Specimen::MigrationRttReset) {
            for path in &mut self.inner.paths {
                // Shorter than the RTT of any path.
                path.rtt = Rtt::new(GRANULARITY);
                path.rtt.sample(GRANULARITY, Duration::ZERO, Instant::ZERO);
            }
        }
        if self.has(Specimen::RetransmitAllOnMigration) {
            let mut out = Outcome::new();
            self.inner
                .return_as_lost(Space::Data, LossCause::PathRemoved, Some(old), &mut out);
            self.withdrawn.append(&mut out.lost);
        }
    }

    /// See [`gate`](inner::Recovery::gate). `pacer-spin` and
    /// `tokenbucket-startup` take effect here.
    pub fn gate(&mut self, id: PathId, now: Instant) -> Gate {
        let gate = self.inner.gate(id, now);
        if self.has(Specimen::TokenbucketStartup) {
            return self.gate_by_tokens(id, gate, now);
        }
        let Some(last) = self.bug(id).map(|path| &mut path.last_train) else {
            return gate;
        };
        match gate {
            Gate::Open { .. } => *last = now,
            Gate::Pacing { until } => {
                // The credit earned since then is counted twice.
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
        let Some(path) = self.inner.path(id) else {
            return gate;
        };
        let (mds, room) = (path.mds(), path.window().saturating_sub(path.in_flight()));
        let tokens = self.bug(id).map_or(0, |path| path.tokens);
        match gate {
            Gate::Congestion => gate,
            Gate::Open { .. } | Gate::Pacing { .. } if tokens.min(room) >= mds => Gate::Open {
                bytes: tokens.min(room),
            },
            // Time does not refill the bucket, so waiting does not help.
            Gate::Open { .. } | Gate::Pacing { .. } => Gate::Pacing {
                until: now + Duration::from_secs(3_600),
            },
        }
    }

    /// See [`on_sent`](inner::Recovery::on_sent).
    pub fn on_sent(&mut self, info: SentInfo, content: F) -> SendIndex {
        if info.in_flight
            && let Some(path) = self.bug(info.path)
        {
            path.tokens = path.tokens.saturating_sub(info.size.into());
        }
        self.inner.on_sent(info, content)
    }

    /// See [`on_ack`](inner::Recovery::on_ack).
    ///
    /// # Errors
    /// As the wrapped method.
    pub fn on_ack(
        &mut self,
        space: Space,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        ack_delay: Duration,
        now: Instant,
        out: &mut Outcome<F>,
    ) -> Result<(), AckError> {
        self.on_ack_with_ecn(space, ranges, ack_delay, now, out, |_| 0)
    }

    /// See [`on_ack_with_ecn`](inner::Recovery::on_ack_with_ecn).
    ///
    /// # Errors
    /// As the wrapped method.
    pub fn on_ack_with_ecn(
        &mut self,
        space: Space,
        ranges: impl Iterator<Item = RangeInclusive<u64>>,
        ack_delay: Duration,
        now: Instant,
        out: &mut Outcome<F>,
        ce_increase: impl FnOnce(&NewlyAcked) -> u64,
    ) -> Result<(), AckError> {
        self.with_true_counts(|inner| {
            inner.on_ack_with_ecn(space, ranges, ack_delay, now, out, ce_increase)
        })?;
        for path in &self.inner.paths {
            let bug = self.paths.iter_mut().find(|bug| bug.id == path.id);
            if let Some(bug) = bug.filter(|_| path.ack.bytes > 0) {
                bug.tokens = (bug.tokens + path.mds).min(BUCKET * path.mds);
            }
        }
        Ok(())
    }

    /// See [`armed_timer`](inner::Recovery::armed_timer). `pto-unarmed` takes effect
    /// here: no timer while nothing is in flight, though the peer can't send either.
    #[must_use]
    pub fn armed_timer(&self) -> Option<(Instant, TimerType)> {
        if let Some(lost) = self.withdrawn.first() {
            return Some((lost.sent, TimerType::Loss));
        }
        let (deadline, what) = self.inner.armed_timer()?;
        let unarmed = match what {
            TimerType::Loss => false,
            TimerType::Pto => self.has(Specimen::PtoUnarmed) && !self.probes_flight(),
        };
        (!unarmed).then_some((deadline, what))
    }

    /// Returns whether a probe timeout would be for packets in flight.
    fn probes_flight(&self) -> bool {
        let confirmed = self.inner.context.handshake_confirmed;
        Space::ALL
            .into_iter()
            .filter(|space| *space != Space::Data || confirmed)
            .any(|space| self.inner.has_unacked(space))
    }

    /// See [`next_timeout`](inner::Recovery::next_timeout).
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.armed_timer().map(|(deadline, _)| deadline)
    }

    /// See [`on_timeout`](inner::Recovery::on_timeout).
    pub fn on_timeout(&mut self, now: Instant, out: &mut Outcome<F>) {
        out.lost.append(&mut self.withdrawn);
        let due = self.next_timeout().is_some_and(|due| due <= now);
        if due || !self.has(Specimen::PtoUnarmed) {
            self.with_true_counts(|inner| inner.on_timeout(now, out));
        }
    }

    /// See [`discard_space`](inner::Recovery::discard_space).
    pub fn discard_space(&mut self, space: Space, now: Instant) {
        self.with_true_counts(|inner| inner.discard_space(space, now));
    }

    /// See [`on_retry`](inner::Recovery::on_retry).
    pub fn on_retry(&mut self, now: Instant, out: &mut Outcome<F>) {
        self.with_true_counts(|inner| inner.on_retry(now, out));
    }

    /// See [`on_zero_rtt_rejected`](inner::Recovery::on_zero_rtt_rejected).
    pub fn on_zero_rtt_rejected(&mut self, now: Instant, out: &mut Outcome<F>) {
        self.with_true_counts(|inner| inner.on_zero_rtt_rejected(now, out));
    }

    /// See [`abandon`](inner::Recovery::abandon).
    pub fn abandon(&mut self) {
        self.with_true_counts(inner::Recovery::abandon);
    }

    /// Runs a method that removes packets from flight with the forgotten ones counted, and
    /// then stops counting those that remain. The forgotten packets are removed first.
    fn with_true_counts<R>(&mut self, act: impl FnOnce(&mut inner::Recovery<F>) -> R) -> R {
        for path in &self.paths {
            path.forgotten.add_to(&mut self.inner, path.id);
        }
        let before: Vec<Flight> = self
            .paths
            .iter()
            .map(|path| Flight::of(&self.inner, path.id))
            .collect();
        let result = act(&mut self.inner);
        for (path, before) in self.paths.iter_mut().zip(before) {
            let after = Flight::of(&self.inner, path.id);
            path.forgotten = path.forgotten.minus(before.minus(after));
        }
        self.hide();
        result
    }

    /// Subtracts what is forgotten from the counts.
    fn hide(&mut self) {
        for path in &self.paths {
            let left = Flight::of(&self.inner, path.id).minus(path.forgotten);
            left.set(&mut self.inner, path.id);
        }
    }
}

impl Flight {
    fn of<F>(inner: &inner::Recovery<F>, id: PathId) -> Self {
        inner.path(id).map_or_else(Self::default, |path| Self {
            bytes: path.in_flight,
            packets: path.packets_in_flight,
            ack_eliciting: path.spaces.map(|space| space.ack_eliciting),
        })
    }

    fn set<F>(self, inner: &mut inner::Recovery<F>, id: PathId) {
        if let Some(path) = inner.paths.iter_mut().find(|path| path.id == id) {
            path.in_flight = self.bytes;
            path.packets_in_flight = self.packets;
            for (space, count) in path.spaces.iter_mut().zip(self.ack_eliciting) {
                space.ack_eliciting = count;
            }
        }
    }

    fn add_to<F>(self, inner: &mut inner::Recovery<F>, id: PathId) {
        let mut sum = Self::of(inner, id);
        sum.bytes += self.bytes;
        sum.packets += self.packets;
        for (sum, count) in sum.ack_eliciting.iter_mut().zip(self.ack_eliciting) {
            *sum += count;
        }
        sum.set(inner, id);
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
