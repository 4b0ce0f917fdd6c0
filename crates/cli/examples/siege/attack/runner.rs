//! A thread for each attacker, with a limit of packets per second.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use rustix::time::{ClockId, clock_gettime};

use super::{Attacker, Context, KINDS, Kind, Traffic};
use crate::cores;

/// Most packets of one turn.
const TURN: f64 = 256.0;

/// Largest burst after a delay, in seconds of the rate.
const CATCH_UP: f64 = 0.02;

/// Pause of an attacker that has nothing to do.
const PAUSE: Duration = Duration::from_micros(500);

/// The result of an attacker.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) kind: &'static str,
    pub(crate) traffic: Traffic,
    /// Most connections or handshakes kept open at once.
    pub(crate) held: usize,
    pub(crate) processor: Duration,
    pub(crate) note: String,
}

/// A running attacker.
pub(crate) struct Attack {
    kind: &'static Kind,
    stop: Arc<AtomicBool>,
    gathered: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Outcome>>,
}

impl Attack {
    /// Starts an attacker on `server`, with at most `rate` packets a second.
    pub(crate) fn start(
        kind: &'static Kind,
        server: SocketAddr,
        front: Option<UdpSocket>,
        rate: u64,
    ) -> io::Result<Self> {
        let number = KINDS.iter().position(|other| std::ptr::eq(kind, other));
        let mut field = Context {
            server,
            number: number.unwrap_or(KINDS.len()) as u8,
            unique: unique(),
            front,
        };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let gathered = Arc::new(AtomicBool::new(false));
        let has_gathered = gathered.clone();
        let thread = std::thread::Builder::new()
            .name(kind.name.to_owned())
            .spawn(move || {
                cores::lower_priority();
                let mut attacker = (kind.make)(&mut field)?;
                let held = run(&mut *attacker, rate as f64, &stopped, &has_gathered);
                Ok(Outcome {
                    kind: kind.name,
                    traffic: attacker.traffic(),
                    held,
                    processor: processor_time(),
                    note: attacker.note(),
                })
            })?;
        Ok(Self {
            kind,
            stop,
            gathered,
            thread,
        })
    }

    pub(crate) fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Whether it has kept as many connections open as it wants to.
    pub(crate) fn has_gathered(&self) -> bool {
        self.gathered.load(Relaxed)
    }

    /// Tells it to stop, without waiting.
    pub(crate) fn halt(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Stops it and returns its result.
    pub(crate) fn join(self) -> io::Result<Outcome> {
        self.halt();
        match self.thread.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(io::Error::other(format!(
                "attacker {} panicked",
                self.kind.name
            ))),
        }
    }
}

/// Runs the attacker until it is stopped; returns the most it has kept open.
fn run(attacker: &mut dyn Attacker, rate: f64, stop: &AtomicBool, gathered: &AtomicBool) -> usize {
    let (mut held, mut credit, mut last) = (0, 0.0_f64, Instant::now());
    while !stop.load(Relaxed) {
        let now = Instant::now();
        credit += rate * now.duration_since(last).as_secs_f64();
        credit = credit.min((rate * CATCH_UP).max(1.0));
        last = now;
        let before = attacker.traffic().packets;
        attacker.turn(credit.clamp(0.0, TURN) as u64);
        let sent = attacker.traffic().packets - before;
        credit -= sent as f64;
        held = held.max(attacker.held());
        if attacker.has_gathered() {
            gathered.store(true, Relaxed);
        }
        if sent == 0 || credit < 1.0 {
            std::thread::sleep(PAUSE);
        }
    }
    held
}

/// Processor time used by this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// A number that no attacker had before. The clock's microseconds leave room for a
/// million connection IDs each.
fn unique() -> u64 {
    static STARTED: AtomicU64 = AtomicU64::new(0);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let micros = since.map_or(0, |since| since.as_micros() as u64);
    (micros + STARTED.fetch_add(1, Relaxed)) << 20
}
