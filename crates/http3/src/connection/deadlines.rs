//! The deadlines of a server ([`Timeouts`](crate::Timeouts)). Progress is sampled a few times per
//! deadline, so that requests which make progress cost nothing.

use core::time::Duration;

use clearway_quic::stream::{SendProgress, StreamId};
use clearway_quic::{Instant, Role};

use super::{Connection, discard};
use crate::count::Count;
use crate::error::Code;
use crate::event::Event;
use crate::exchange::Exchange;
use crate::message_state::MessageState;
use crate::progress::Progress;
use crate::receive_half::ReceiveHalf;
use crate::timeouts::{Deadline, Timeouts};
use crate::transport::Transport;

/// The time between GOAWAY and the close of an idle connection. A request that is in flight
/// meanwhile is rejected, and can be retried, instead of being lost.
const GOAWAY_GRACE: Duration = Duration::from_secs(1);

/// A time that is not set.
const NEVER: Instant = Instant::FAR_FUTURE;

/// The timers of a connection; [`NEVER`] means not set.
#[derive(Debug)]
pub(super) struct Timers {
    /// When `handle_timeout` is due.
    next: Instant,
    /// When a request was last in progress; `NEVER` if one began or ended since the last flush.
    active: Instant,
    /// When the connection closes.
    close_at: Instant,
}

impl Default for Timers {
    fn default() -> Self {
        Self {
            next: NEVER,
            active: NEVER,
            close_at: NEVER,
        }
    }
}

impl Timers {
    /// Whether a request has begun or ended since the last flush.
    pub(super) fn are_outdated(&self) -> bool {
        self.active == NEVER
    }

    /// Notes that a request begins or ends.
    pub(super) fn on_activity(&mut self) {
        self.active = NEVER;
    }
}

/// The time between two samples, of which there are a few in the shortest deadline. In
/// milliseconds, to save memory in each connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct SampleInterval(u16);

impl SampleInterval {
    pub(super) fn of(timeouts: &Timeouts) -> Self {
        let millis = timeouts.sample_interval().as_millis();
        Self(u16::try_from(millis).unwrap_or(u16::MAX))
    }

    fn get(self) -> Duration {
        Duration::from_millis(self.0.into())
    }
}

/// The last sample of a connection with requests in progress.
#[derive(Debug)]
pub(super) struct LastSample {
    at: Instant,
    /// The bytes sent on all streams until then.
    sent: u64,
}

impl Default for LastSample {
    fn default() -> Self {
        Self { at: NEVER, sent: 0 }
    }
}

/// A sample.
#[derive(Clone, Copy)]
struct Sample<'a> {
    elapsed: Duration,
    timeouts: &'a Timeouts,
    /// Whether the client accepts nothing, or too little, on all streams together.
    stuck: bool,
}

impl Connection {
    /// Returns when [`handle_timeout`](Self::handle_timeout) has to be called next, or `None` if no
    /// deadline is set.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        let instructions = self.instructions_due_at().unwrap_or(NEVER);
        let next = self.timers.next.min(instructions);
        (next < NEVER && self.is_open()).then_some(next)
    }

    /// Handles what is due: resets requests whose client has kept us waiting for too long, closes a
    /// connection that was idle for too long, and writes instructions that nothing else went with.
    pub fn handle_timeout<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        if self.next_timeout().is_none_or(|at| now < at) {
            return;
        }
        if self.timers.close_at <= now {
            return self.close(now, quic);
        }
        if self.timers.next <= now {
            self.sample(now, quic);
            self.close_if_idle(now, quic);
        }
        self.flush(now, quic);
    }

    /// Sets the timers; part of every flush.
    pub(super) fn set_timers(&mut self, now: Instant) {
        if self.role == Role::Client {
            return;
        }
        let timeouts = &self.config.timeouts;
        let timers = &mut self.timers;
        if timers.active == NEVER {
            timers.active = now;
        }
        if timers.close_at == NEVER && self.goaway.is_final() {
            timers.close_at = timeouts.drain.map_or(NEVER, |drain| now + drain);
        }
        let lingers = self.lingering.as_ref().is_some_and(|it| !it.is_empty());
        let next = if lingers || !self.requests.is_empty() {
            let sampled_at = &mut self.lingering.get_or_insert_default().last_sample.at;
            *sampled_at = now.min(*sampled_at);
            *sampled_at + self.interval.get()
        } else {
            if let Some(lingering) = &mut self.lingering {
                lingering.last_sample.at = NEVER;
            }
            let idle = timeouts.idle.filter(|_| !self.goaway.is_final());
            idle.map_or(NEVER, |idle| timers.active + idle)
        };
        timers.next = next.min(timers.close_at);
    }

    fn sample<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        let config = self.config.clone();
        let sent = quic.stream_bytes_sent();
        let sample = LastSample { at: now, sent };
        let before = core::mem::replace(&mut self.lingering().last_sample, sample);
        // A host that was suspended or overloaded must not blame its clients for that.
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
        let held = self.held_session_ids();
        let mut late: Vec<(StreamId, Deadline)> = Vec::new();
        for (&id, exchange) in &mut self.requests {
            // The application knows of neither.
            let unseen = exchange.receiving.state == MessageState::Header || held.contains(&id);
            let missed = if unseen {
                sample.missed_header_deadline(&mut exchange.receiving)
            } else {
                self.timers.active = now;
                sample.missed_deadline(exchange, quic.send_progress(id))
            };
            late.extend(missed.map(|deadline| (id, deadline)));
        }
        let lingering = self.lingering.as_deref_mut();
        for (&id, progress) in lingering.into_iter().flat_map(|it| &mut it.unacknowledged) {
            self.timers.active = now;
            let sent = quic.send_progress(id);
            if sent.is_some_and(|sent| !sample.accepts_response(progress, sent, true)) {
                late.push((id, Deadline::Response));
            }
        }
        // The order must not depend on that of a hash table.
        late.sort_unstable_by_key(|(id, _)| *id);
        for (id, deadline) in late {
            self.on_missed_deadline(quic, id, deadline);
        }
        self.sample_discarded(quic, elapsed);
    }

    fn sample_discarded<T: Transport>(&mut self, quic: &mut T, elapsed: Duration) {
        let mut late: Vec<StreamId> = Vec::new();
        let lingering = self.lingering.as_deref_mut();
        for (&id, request) in lingering.into_iter().flat_map(|it| &mut it.discarding) {
            let progress = &mut request.receiving.progress;
            if !progress.sample_total(true, elapsed, discard::DISCARD_TIMEOUT) {
                late.push(id);
            }
        }
        late.sort_unstable();
        for id in late {
            self.stop_immediately(quic, id, Code::NO_ERROR);
        }
    }

    /// Handles a deadline that a client missed.
    fn on_missed_deadline<T: Transport>(
        &mut self,
        quic: &mut T,
        stream: StreamId,
        deadline: Deadline,
    ) {
        self.counters.timed_out.count_one();
        let code = match deadline {
            Deadline::RequestHeaders => Code::REQUEST_REJECTED,
            Deadline::RequestBody => Code::REQUEST_INCOMPLETE,
            Deadline::Response => Code::REQUEST_CANCELLED,
        };
        let notify = match deadline {
            Deadline::RequestHeaders => false,
            Deadline::RequestBody | Deadline::Response => self.requests.contains_key(&stream),
        };
        self.abandon(quic, stream, code);
        if notify {
            self.events.push_back(Event::TimedOut { stream, deadline });
        }
        self.charge();
    }

    /// Starts the close of a connection that was idle for too long.
    fn close_if_idle<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        let Some(idle) = self.config.timeouts.idle else {
            return;
        };
        let timers = &mut self.timers;
        if timers.active == NEVER || now < timers.active + idle || self.goaway.is_final() {
            return;
        }
        timers.close_at = timers.close_at.min(now + GOAWAY_GRACE);
        // Announces the shutdown, and then the last request.
        self.shutdown(quic);
        self.shutdown(quic);
    }

    fn close<T: Transport>(&mut self, now: Instant, quic: &mut T) {
        quic.close(now, Code::NO_ERROR.0, b"shutdown announced by GOAWAY");
        self.end();
    }
}

impl Sample<'_> {
    /// Returns whether the client takes too long to send a header section, or the SETTINGS without
    /// which the request of a session cannot be passed on.
    fn missed_header_deadline(self, receiving: &mut ReceiveHalf) -> Option<Deadline> {
        let limit = self.timeouts.request_headers.unwrap_or(Duration::MAX);
        let begun = receiving.reader.bytes_read() > 0;
        let in_time = (receiving.progress).sample_total(begun, self.elapsed, limit);
        (!in_time).then_some(Deadline::RequestHeaders)
    }

    /// Returns the deadline that the client of a request has missed, if any.
    fn missed_deadline(
        self,
        exchange: &mut Exchange,
        sent: Option<SendProgress>,
    ) -> Option<Deadline> {
        let receiving = &mut exchange.receiving;
        let bytes = receiving.reader.bytes_read();
        let in_time = match (receiving.state, self.timeouts.request_body_limits()) {
            (MessageState::Body | MessageState::AfterTrailers, Some(limits)) => {
                let wanted = receiving.wanted;
                (receiving.progress).sample(bytes, wanted, self.elapsed, limits)
            }
            // There is no deadline for a silent tunnel.
            (MessageState::Body | MessageState::AfterTrailers, None)
            | (MessageState::Header | MessageState::Tunnel | MessageState::Done, _) => true,
        };
        if !in_time {
            return Some(Deadline::RequestBody);
        }
        let more = !exchange.send_buffer.is_empty() || exchange.is_unacknowledged();
        let taken =
            sent.is_none_or(|sent| self.accepts_response(&mut exchange.progress, sent, more));
        (!taken).then_some(Deadline::Response)
    }

    /// Returns whether the client accepts the response in time. We wait for the client if it gives
    /// the stream no credit, acknowledges nothing of what was sent, or lets no stream make
    /// progress. `more` means that something is left besides the bytes written, such as the end.
    fn accepts_response(self, progress: &mut Progress, sent: SendProgress, more: bool) -> bool {
        let Some(limits) = self.timeouts.response_limits() else {
            return true;
        };
        let held = sent.acked < sent.written || more;
        let unsent = sent.sent < sent.written;
        let waiting = held && (sent.is_stalled() || !unsent || self.stuck);
        progress.sample(sent.acked, waiting, self.elapsed, limits)
    }
}

/// Returns whether `moved` bytes in the time `elapsed` are too few.
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

    /// Returns after how many seconds without a change a response misses its deadline.
    fn seconds_until_missed(sent: SendProgress, more: bool, stuck: bool) -> Option<u32> {
        let sample = Sample {
            elapsed: SECOND,
            timeouts: &Timeouts::default(),
            stuck,
        };
        let mut progress = Progress::default();
        (0..500).find(|_| !sample.accepts_response(&mut progress, sent, more))
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
    fn only_responses_held_up_by_the_client_miss_the_deadline() {
        let minute = Some(60);
        for (what, sent, more, stuck, expected) in [
            ("all acknowledged", progress(9, 9, 9, 99), false, true, None),
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
                "waiting for other streams",
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
            assert_eq!(seconds_until_missed(sent, more, stuck), expected, "{what}");
        }
    }

    #[test]
    fn connection_below_the_minimum_rate_is_stuck() {
        assert!(is_stuck(0, SECOND, 0));
        assert!(!is_stuck(1, SECOND, 0));
        assert!(is_stuck(479, SECOND * 2, 240));
        assert!(!is_stuck(480, SECOND * 2, 240));
    }
}
