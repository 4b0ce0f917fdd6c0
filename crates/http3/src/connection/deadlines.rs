//! Deadlines of a server ([`Timeouts`](crate::Timeouts)): progress is sampled a few
//! times per deadline, so that requests which get on cost nothing.

use core::time::Duration;

use clearway_quic::stream::{SendProgress, StreamId};
use clearway_quic::{Instant, Role};

use super::{Connection, discard};
use crate::count::Count;
use crate::error::Code;
use crate::event::Event;
use crate::progress::Progress;
use crate::request::{Exchange, Half};
use crate::timeouts::{Deadline, Timeouts};
use crate::transport::Transport;

/// From GOAWAY to the end of an idle connection: a request that is on its way meanwhile
/// is rejected, so that it can be sent again, rather than lost.
const FAREWELL: Duration = Duration::from_secs(1);

/// No time at all.
const NEVER: Instant = Instant::FAR_FUTURE;

/// What the deadlines of a connection run from; [`NEVER`] stands for what is not.
#[derive(Debug)]
pub(super) struct Clock {
    /// When to look again.
    next: Instant,
    /// When a request was last under way; `NEVER`: one began or ended since the last
    /// flush.
    active: Instant,
    /// When the connection closes.
    close_at: Instant,
}

impl Default for Clock {
    fn default() -> Self {
        Self {
            next: NEVER,
            active: NEVER,
            close_at: NEVER,
        }
    }
}

impl Clock {
    /// A request begins or ends.
    pub(super) fn touch(&mut self) {
        self.active = NEVER;
    }
}

/// What lies between two samples, of which there are a few to the shortest deadline.
/// In milliseconds, because there is one in each connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval(u16);

impl Interval {
    pub(super) fn of(timeouts: &Timeouts) -> Self {
        let millis = timeouts.interval().as_millis();
        Self(u16::try_from(millis).unwrap_or(u16::MAX))
    }

    fn get(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

/// The last sample of a connection with requests under way.
#[derive(Debug)]
pub(super) struct Sampled {
    at: Instant,
    /// Bytes of all streams sent by then.
    sent: u64,
}

impl Default for Sampled {
    fn default() -> Self {
        Self { at: NEVER, sent: 0 }
    }
}

/// One sample.
#[derive(Clone, Copy)]
struct Sample<'a> {
    elapsed: Duration,
    timeouts: &'a Timeouts,
    /// The client takes nothing, or too little, of all streams together.
    stuck: bool,
}

impl Connection {
    /// When [`handle_timeout`](Self::handle_timeout) has to be called next; `None`: no
    /// deadline runs.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        Some(self.clock.next).filter(|&at| at < NEVER && self.is_open())
    }

    /// Does what is due: resets requests whose client keeps us waiting for too long,
    /// closes a connection without any.
    pub fn handle_timeout<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        if self.next_timeout().is_none_or(|at| now < at) {
            return;
        }
        if self.clock.close_at <= now {
            return self.close(now, quic);
        }
        self.sample(now, quic);
        self.say_farewell_if_idle(now, quic);
        self.flush(now, quic);
    }

    /// Sets when to look again; part of every flush.
    pub(super) fn set_clock(&mut self, now: Instant) {
        if self.role == Role::Client {
            return;
        }
        let timeouts = &self.config.timeouts;
        let clock = &mut self.clock;
        if clock.active == NEVER {
            clock.active = now;
        }
        if clock.close_at == NEVER && self.goaway.is_final() {
            clock.close_at = timeouts.drain.map_or(NEVER, |drain| now + drain);
        }
        let lingers = self.lingering.as_ref().is_some_and(|it| !it.is_empty());
        let look = if lingers || !self.requests.is_empty() {
            let sampled = &mut self.lingering.get_or_insert_default().sampled.at;
            *sampled = now.min(*sampled);
            *sampled + self.interval.get()
        } else {
            if let Some(lingering) = &mut self.lingering {
                lingering.sampled.at = NEVER;
            }
            let idle = timeouts.idle.filter(|_| !self.goaway.is_final());
            idle.map_or(NEVER, |idle| clock.active + idle)
        };
        clock.next = look.min(clock.close_at);
    }

    fn sample<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        let config = self.config.clone();
        let sent = quic.stream_bytes_sent();
        let sampled = Sampled { at: now, sent };
        let before = core::mem::replace(&mut self.lingering().sampled, sampled);
        // A host that slept, or had no time for us, must not hold that against clients.
        let interval = self.interval.get();
        let elapsed = now
            .saturating_since(before.at)
            .min(interval.saturating_mul(2));
        let moved = sent.saturating_sub(before.sent);
        let sample = Sample {
            elapsed,
            timeouts: &config.timeouts,
            stuck: is_stuck(moved, elapsed, config.timeouts.min_rate),
        };
        let mut late: Vec<(StreamId, Deadline)> = Vec::new();
        for (&id, exchange) in &mut self.requests {
            if exchange.receiving.half != Half::Header {
                self.clock.active = now;
            }
            let progress = quic.send_progress(id);
            late.extend(
                sample
                    .of_request(exchange, progress)
                    .map(|deadline| (id, deadline)),
            );
        }
        let lingering = self.lingering.as_deref_mut();
        for (&id, progress) in lingering.into_iter().flat_map(|it| &mut it.delivering) {
            self.clock.active = now;
            let sent = quic.send_progress(id);
            if sent.is_some_and(|sent| !sample.of_response(progress, sent, true)) {
                late.push((id, Deadline::Response));
            }
        }
        // The order of the tables is nobody's business.
        late.sort_unstable_by_key(|(id, _)| *id);
        for (id, deadline) in late {
            self.on_late(quic, id, deadline);
        }
        self.sample_discarded(quic, elapsed);
    }

    fn sample_discarded<T: Transport>(&mut self, quic: &mut T, elapsed: Duration) {
        let mut late: Vec<StreamId> = Vec::new();
        let lingering = self.lingering.as_deref_mut();
        for (&id, rest) in lingering.into_iter().flat_map(|it| &mut it.discarding) {
            let progress = &mut rest.receiving.progress;
            if !progress.sample_whole(true, elapsed, discard::PATIENCE) {
                late.push(id);
            }
        }
        late.sort_unstable();
        for id in late {
            self.stop_now(quic, id, Code::NO_ERROR);
        }
    }

    /// The client did not get on in time.
    fn on_late<T: Transport>(&mut self, quic: &mut T, stream: StreamId, deadline: Deadline) {
        self.counters.timed_out.count_one();
        let code = match deadline {
            Deadline::RequestHeaders => Code::REQUEST_REJECTED,
            Deadline::RequestBody => Code::REQUEST_INCOMPLETE,
            Deadline::Response => Code::REQUEST_CANCELLED,
        };
        let told = match deadline {
            Deadline::RequestHeaders => false,
            Deadline::RequestBody | Deadline::Response => self.requests.contains_key(&stream),
        };
        self.abandon(quic, stream, code);
        if told {
            self.events.push_back(Event::TimedOut { stream, deadline });
        }
        self.charge();
    }

    /// Without a request for long enough, the client is told that none will be taken.
    fn say_farewell_if_idle<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        let Some(idle) = self.config.timeouts.idle else {
            return;
        };
        let clock = &mut self.clock;
        if clock.active == NEVER || now < clock.active + idle || self.goaway.is_final() {
            return;
        }
        clock.close_at = clock.close_at.min(now + FAREWELL);
        // That the end is near, and where it is.
        self.shutdown(quic);
        self.shutdown(quic);
    }

    fn close<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        quic.close(now, Code::NO_ERROR.0, b"the end that GOAWAY announced");
        self.end();
    }
}

impl Sample<'_> {
    /// What the client of a request did not do in time.
    fn of_request(self, exchange: &mut Exchange, sent: Option<SendProgress>) -> Option<Deadline> {
        let receiving = &mut exchange.receiving;
        let timeouts = self.timeouts;
        let bytes = receiving.reader.taken();
        let in_time = match (receiving.half, timeouts.of_body()) {
            (Half::Header, _) => {
                let limit = timeouts.request_headers.unwrap_or(Duration::MAX);
                if !receiving
                    .progress
                    .sample_whole(bytes > 0, self.elapsed, limit)
                {
                    return Some(Deadline::RequestHeaders);
                }
                true
            }
            (Half::Body | Half::Trailed, Some(patience)) => {
                let wanted = receiving.wanted;
                (receiving.progress).sample(bytes, wanted, self.elapsed, patience)
            }
            // A tunnel may be silent.
            (Half::Body | Half::Trailed, None) | (Half::Tunnel | Half::Over, _) => true,
        };
        if !in_time {
            return Some(Deadline::RequestBody);
        }
        let more = !exchange.outlet.is_empty() || exchange.is_on_its_way();
        let taken = sent.is_none_or(|sent| self.of_response(&mut exchange.progress, sent, more));
        (!taken).then_some(Deadline::Response)
    }

    /// Whether the client takes what it is sent. It is waited for if it gives the stream
    /// no credit, if it acknowledges nothing of what was sent, and if it lets nothing
    /// pass on any stream. `more`: something is left besides the bytes written, such
    /// as the end.
    fn of_response(self, progress: &mut Progress, sent: SendProgress, more: bool) -> bool {
        let Some(patience) = self.timeouts.of_response() else {
            return true;
        };
        let held = sent.acked < sent.written || more;
        let unsent = sent.sent < sent.written;
        let waiting = held && (sent.is_stalled() || !unsent || self.stuck);
        progress.sample(sent.acked, waiting, self.elapsed, patience)
    }
}

/// Whether so many bytes in so much time are too few.
fn is_stuck(moved: u64, elapsed: Duration, min_rate: u32) -> bool {
    let second = Duration::from_secs(1).as_nanos();
    let quota = elapsed.as_nanos().saturating_mul(min_rate.into());
    let moved = u128::from(moved);
    moved == 0 || moved.saturating_mul(second) < quota
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Seconds for which a response that stays as it is is waited for.
    fn waits(sent: SendProgress, more: bool, stuck: bool) -> Option<u32> {
        let sample = Sample {
            elapsed: SECOND,
            timeouts: &Timeouts::default(),
            stuck,
        };
        let mut progress = Progress::default();
        (0..500).find(|_| !sample.of_response(&mut progress, sent, more))
    }

    const fn progress(acked: u64, sent: u64, written: u64, limit: u64) -> SendProgress {
        SendProgress {
            acked,
            sent,
            written,
            limit,
        }
    }

    #[test]
    fn only_what_the_client_holds_up_is_waited_for() {
        let minute = Some(60);
        for (what, sent, more, stuck, expected) in [
            ("all taken", progress(9, 9, 9, 99), false, true, None),
            (
                "no stream credit",
                progress(5, 5, 9, 5),
                false,
                false,
                minute,
            ),
            (
                "no connection credit",
                progress(5, 5, 9, 99),
                false,
                true,
                minute,
            ),
            (
                "its turn to come",
                progress(5, 5, 9, 99),
                false,
                false,
                None,
            ),
            (
                "data not acknowledged",
                progress(5, 9, 9, 99),
                false,
                false,
                minute,
            ),
            (
                "the end not acknowledged",
                progress(9, 9, 9, 99),
                true,
                false,
                minute,
            ),
        ] {
            assert_eq!(waits(sent, more, stuck), expected, "{what}");
        }
    }

    #[test]
    fn connection_is_stuck_below_the_rate() {
        assert!(is_stuck(0, SECOND, 0));
        assert!(!is_stuck(1, SECOND, 0));
        assert!(is_stuck(479, SECOND * 2, 240));
        assert!(!is_stuck(480, SECOND * 2, 240));
    }
}
