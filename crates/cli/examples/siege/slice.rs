//! One slice: attackers attack the server, or the sink, while well-behaved clients use
//! the server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::attack::{Attackers, Kind, Outcome};
use crate::cores::Cores;
use crate::honest::{Honest, Tally, World, answers};
use crate::panics;
use crate::server::{LOOK, Place, Server, ServerCommand, Usage, watch_until};
use crate::site::Site;

/// Time within which a new client has to be served after the attack.
const RECOVERY: Duration = Duration::from_secs(5);

/// Head start of the clients, to connect before the attack.
const HEAD_START: Duration = Duration::from_millis(200);

/// Longest part of a slice that attackers get to gather connections before the others
/// begin.
const GATHERING: f64 = 0.25;

/// What all slices have in common.
pub(crate) struct Testbed {
    pub(crate) command: ServerCommand,
    pub(crate) cores: Cores,
    pub(crate) site: Arc<Site>,
    /// Set by a signal: the siege ends early.
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// What the attackers attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A second server on the attackers' core.
    Sink,
    /// The server that the clients use.
    Server,
}

/// Most packets a second that attackers send of their own accord.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// For attackers that gather connections first.
    pub(crate) alone: u64,
    /// For each of the others.
    pub(crate) part: u64,
}

/// The result of a slice.
pub(crate) struct Slice {
    pub(crate) outcomes: Vec<Outcome>,
    /// Attackers that this machine does not allow, and why.
    pub(crate) skipped: Vec<String>,
    /// Attackers that did not attack, which would prove nothing, and panics of clients.
    pub(crate) defects: Vec<String>,
    pub(crate) tally: Tally,
    pub(crate) usage: Usage,
    /// Duration of the attack, the clients' last requests included.
    pub(crate) elapsed: Duration,
    /// Duration over which the server's usage was sampled.
    pub(crate) watched: Duration,
    /// Why the server counts as dead, if it does.
    pub(crate) failure: Option<String>,
    /// Panics that the server reported on standard error.
    pub(crate) panics: Vec<String>,
}

impl Slice {
    /// Adds another run of the same attackers: times and traffic of both, the larger
    /// use of memory and descriptors.
    pub(crate) fn merge(&mut self, other: Self) {
        for more in other.outcomes {
            let same = self.outcomes.iter_mut().find(|one| one.kind == more.kind);
            let Some(one) = same else {
                self.outcomes.push(more);
                continue;
            };
            one.traffic.packets += more.traffic.packets;
            one.traffic.bytes += more.traffic.bytes;
            one.held = one.held.max(more.held);
            one.processor += more.processor;
            one.note = more.note;
        }
        self.skipped = other.skipped;
        self.defects.extend(other.defects);
        self.tally.merge(other.tally);
        self.usage.peak_memory = self.usage.peak_memory.max(other.usage.peak_memory);
        self.usage.descriptors = self.usage.descriptors.max(other.usage.descriptors);
        self.usage.processor += other.usage.processor;
        self.elapsed += other.elapsed;
        self.watched += other.watched;
        self.failure = self.failure.take().or(other.failure);
        self.panics.extend(other.panics);
    }
}

impl Testbed {
    /// Runs these attackers for `time`.
    pub(crate) fn run(
        &self,
        kinds: &[&'static Kind],
        target: Target,
        time: Duration,
        rates: Rates,
    ) -> io::Result<Slice> {
        let mut server = self
            .command
            .start(&self.site, &self.cores, Place::OwnCore)?;
        let sink = match target {
            Target::Sink => Some(self.command.start(
                &self.site,
                &self.cores,
                Place::AmongAttackers,
            )?),
            Target::Server => None,
        };
        let address = sink.as_ref().map_or(server.address, |sink| sink.address);
        let mut attackers = Attackers::gather(kinds, address, rates.alone)?;
        self.wait(time.mul_f64(GATHERING), || attackers.have_gathered());
        let honest = Honest::start(World {
            site: self.site.clone(),
            server: server.address,
            program: self.command.program.clone(),
            relays: attackers.relays()?,
        })?;
        std::thread::sleep(HEAD_START);
        let (began, before) = (Instant::now(), server.usage());
        attackers.start(kinds, address, rates.part)?;
        let mut usage = watch_until(server.watch(), began + time, || self.is_interrupted());
        usage.processor = usage.processor.saturating_sub(before.processor);
        let watched = began.elapsed();
        // The last requests are under attack too.
        let tally = honest.finish();
        let ended = attackers.end();
        let elapsed = began.elapsed();
        usage.peak_memory = usage.peak_memory.max(server.usage().peak_memory);
        let failure = match target {
            Target::Server if !self.is_interrupted() => self.failure(&mut server),
            Target::Server | Target::Sink => None,
        };
        let panics = server.panics();
        drop((server, sink));
        self.site.sweep()?;
        let mut defects = ended.defects;
        defects.extend(panics::take());
        let mut tally = tally?;
        tally.seal();
        Ok(Slice {
            outcomes: ended.outcomes,
            skipped: ended.skipped,
            defects,
            tally,
            usage,
            elapsed,
            watched,
            failure,
            panics,
        })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Waits until `ready`, but no longer than `most`.
    fn wait(&self, most: Duration, ready: impl Fn() -> bool) {
        let deadline = Instant::now() + most;
        while !ready() && Instant::now() < deadline && !self.is_interrupted() {
            std::thread::sleep(LOOK);
        }
    }

    /// Why the server counts as dead; `None` if it runs and serves a new client.
    fn failure(&self, server: &mut Server) -> Option<String> {
        if let Some(status) = server.ended() {
            return Some(format!("the server process ended: {status}"));
        }
        let answered = answers(server.address, &self.site, RECOVERY);
        answered
            .err()
            .map(|error| format!("the server did not serve a new client after the attack: {error}"))
    }
}
