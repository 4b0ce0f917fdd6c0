//! One slice: attackers at the server, or at the sink, while clients that behave well
//! use the server.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::attack::{Attack, Kind, Outcome, Victims};
use crate::cores::Cores;
use crate::honest::{Honest, Tally, World, answers};
use crate::server::{Build, Place, Server, Usage, watch_until};
use crate::site::Site;

/// How long the server may take, after the attack, until a newcomer gets an answer.
const RECOVERY: Duration = Duration::from_secs(5);

/// Before the attackers come the clients have connected.
const HEAD_START: Duration = Duration::from_millis(200);

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

/// What became of a slice.
pub(crate) struct Slice {
    pub(crate) outcomes: Vec<Outcome>,
    /// Kinds that this machine does not allow, and why.
    pub(crate) skipped: Vec<(&'static str, String)>,
    pub(crate) tally: Tally,
    pub(crate) usage: Usage,
    /// How long the attack lasted.
    pub(crate) elapsed: Duration,
    /// Why the server is held to be dead, if it is.
    pub(crate) death: Option<String>,
    /// What the server said of defects.
    pub(crate) complaints: Vec<String>,
}

impl Ground {
    /// Lets these kinds loose for as long, at `rate` packets a second each.
    pub(crate) fn run(
        &self,
        kinds: &[&'static Kind],
        aim: Aim,
        time: Duration,
        rate: u64,
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
        let fronts = fronts(kinds)?;
        let honest = Honest::start(World {
            site: self.site.clone(),
            server: server.address,
            program: self.build.program.clone(),
            relays: relays(kinds, &fronts)?,
        })?;
        std::thread::sleep(HEAD_START);
        let (attacks, mut skipped) = start(kinds, fronts, target, rate);
        let began = Instant::now();
        let interrupted = || self.interrupted.load(Relaxed);
        let mut usage = watch_until(server.watch(), began + time, interrupted);
        // The last requests end under attack too.
        let tally = honest.finish();
        let (outcomes, failed) = end(attacks);
        skipped.extend(failed);
        let elapsed = began.elapsed();
        let last = server.usage();
        usage.peak_memory = usage.peak_memory.max(last.peak_memory);
        let death = match aim {
            Aim::Server if !interrupted() => self.death(&mut server),
            Aim::Server | Aim::Sink => None,
        };
        let complaints = server.complaints();
        drop((server, sink));
        self.site.sweep()?;
        let mut tally = tally?;
        tally.seal();
        Ok(Slice {
            outcomes,
            skipped,
            tally,
            usage,
            elapsed,
            death,
            complaints,
        })
    }

    /// Why the server is dead, unless it is alive and answers.
    fn death(&self, server: &mut Server) -> Option<String> {
        if let Some(status) = server.ended() {
            return Some(format!("it ended: {status}"));
        }
        let answered = answers(server.address, &self.site, RECOVERY);
        answered
            .err()
            .map(|error| format!("a newcomer was not served after the attack: {error}"))
    }
}

/// Where the victims' datagrams arrive, for each kind that has victims.
fn fronts(kinds: &[&'static Kind]) -> io::Result<Vec<Option<UdpSocket>>> {
    let bind = |(number, kind): (usize, &&'static Kind)| match kind.victims {
        Victims::None => Ok(None),
        Victims::Transfers | Victims::Handshakes => {
            let front = UdpSocket::bind((Ipv4Addr::new(127, 3, 0, number as u8 + 1), 0))?;
            front.set_nonblocking(true)?;
            Ok(Some(front))
        }
    };
    kinds.iter().enumerate().map(bind).collect()
}

fn relays(
    kinds: &[&'static Kind],
    fronts: &[Option<UdpSocket>],
) -> io::Result<Vec<(Victims, SocketAddr)>> {
    let pairs = kinds.iter().zip(fronts);
    pairs
        .filter_map(|(kind, front)| Some((kind.victims, front.as_ref()?)))
        .map(|(victims, front)| Ok((victims, front.local_addr()?)))
        .collect()
}

/// The attackers at work, and those that this machine does not allow.
fn start(
    kinds: &[&'static Kind],
    fronts: Vec<Option<UdpSocket>>,
    target: SocketAddr,
    rate: u64,
) -> (Vec<Attack>, Vec<(&'static str, String)>) {
    let mut attacks = Vec::new();
    let mut skipped = Vec::new();
    for (kind, front) in kinds.iter().zip(fronts) {
        match Attack::start(kind, target, front, rate) {
            Ok(attack) => attacks.push(attack),
            Err(error) => skipped.push((kind.name, error.to_string())),
        }
    }
    (attacks, skipped)
}

/// What the attackers have done, and those that this machine does not allow.
fn end(attacks: Vec<Attack>) -> (Vec<Outcome>, Vec<(&'static str, String)>) {
    attacks.iter().for_each(Attack::halt);
    let mut outcomes = Vec::new();
    let mut skipped = Vec::new();
    for attack in attacks {
        let name = attack.name();
        match attack.join() {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => skipped.push((name, error.to_string())),
        }
    }
    (outcomes, skipped)
}
