//! One slice: attackers at the server, or at the sink, while clients that behave well
//! use the server.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::attack::{Attackers, Kind, Outcome};
use crate::cores::Cores;
use crate::honest::{Honest, Tally, World, answers};
use crate::panics;
use crate::server::{Build, LOOK, Place, Server, Usage, watch_until};
use crate::site::Site;

/// How long the server may take, after the attack, until a newcomer gets an answer.
const RECOVERY: Duration = Duration::from_secs(5);

/// Before the attackers come the clients have connected.
const HEAD_START: Duration = Duration::from_millis(200);

/// The part of a slice that those who gather have for themselves at most.
const GATHERING: f64 = 0.25;

/// What all slices have in common.
pub(crate) struct Ground {
    pub(crate) build: Build,
    pub(crate) cores: Cores,
    pub(crate) site: Arc<Site>,
    /// A signal has come.
    pub(crate) interrupted: Arc<AtomicBool>,
}

/// Whom the attackers attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// Another server, on the attackers' core.
    Sink,
    /// The server that the clients use.
    Server,
}

/// Packets a second that attackers send of their own accord at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// Those that are given time to gather.
    pub(crate) alone: u64,
    /// Each of the others.
    pub(crate) part: u64,
}

/// What became of a slice.
pub(crate) struct Slice {
    pub(crate) outcomes: Vec<Outcome>,
    /// Kinds that this machine does not allow, in words.
    pub(crate) skipped: Vec<String>,
    /// Attackers that did not attack, so that nothing was shown, and panics of the
    /// clients, in words.
    pub(crate) defects: Vec<String>,
    pub(crate) tally: Tally,
    pub(crate) usage: Usage,
    /// How long the attack lasted, with the last requests of the clients.
    pub(crate) elapsed: Duration,
    /// How long the server was watched.
    pub(crate) watched: Duration,
    /// Why the server is held to be dead, if it is.
    pub(crate) death: Option<String>,
    /// What the server said of defects.
    pub(crate) complaints: Vec<String>,
}

impl Ground {
    /// Lets these kinds loose for as long.
    pub(crate) fn run(
        &self,
        kinds: &[&'static Kind],
        aim: Aim,
        time: Duration,
        rates: Rates,
    ) -> io::Result<Slice> {
        let mut server = self.build.start(&self.site, &self.cores, Place::OwnCore)?;
        let sink = match aim {
            Aim::Sink => Some(
                self.build
                    .start(&self.site, &self.cores, Place::AmongAttackers)?,
            ),
            Aim::Server => None,
        };
        let target = sink.as_ref().map_or(server.address, |sink| sink.address);
        let mut attackers = Attackers::gather(kinds, target, rates.alone)?;
        self.wait(time.mul_f64(GATHERING), || attackers.have_gathered());
        let honest = Honest::start(World {
            site: self.site.clone(),
            server: server.address,
            program: self.build.program.clone(),
            relays: attackers.relays()?,
        })?;
        std::thread::sleep(HEAD_START);
        let (began, before) = (Instant::now(), server.usage());
        attackers.start(kinds, target, rates.part)?;
        let mut usage = watch_until(server.watch(), began + time, || self.is_interrupted());
        usage.processor = usage.processor.saturating_sub(before.processor);
        let watched = began.elapsed();
        // The last requests end under attack too.
        let tally = honest.finish();
        let ended = attackers.end();
        let elapsed = began.elapsed();
        usage.peak_memory = usage.peak_memory.max(server.usage().peak_memory);
        let death = match aim {
            Aim::Server if !self.is_interrupted() => self.death(&mut server),
            Aim::Server | Aim::Sink => None,
        };
        let complaints = server.complaints();
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
            death,
            complaints,
        })
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Relaxed)
    }

    /// Waits for something, at most so long.
    fn wait(&self, most: Duration, ready: impl Fn() -> bool) {
        let deadline = Instant::now() + most;
        while !ready() && Instant::now() < deadline && !self.is_interrupted() {
            std::thread::sleep(LOOK);
        }
    }

    /// Why the server is dead, unless it is alive and answers.
    fn death(&self, server: &mut Server) -> Option<String> {
        if let Some(status) = server.ended() {
            return Some(format!("the server ended: {status}"));
        }
        let answered = answers(server.address, &self.site, RECOVERY);
        answered
            .err()
            .map(|error| format!("the server did not serve a newcomer after the attack: {error}"))
    }
}
