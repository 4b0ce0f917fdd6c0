//! Path validation with PATH_CHALLENGE and PATH_RESPONSE (RFC 9000 §8.2).

use core::time::Duration;

use smallvec::SmallVec;

use crate::memory;
use crate::rng::Rng;
use crate::time::Instant;
use crate::wire::MIN_MTU;

/// The unpredictable content of a PATH_CHALLENGE (RFC 9000 §19.17).
pub type ChallengeData = [u8; 8];

/// PTOs after which validation fails (RFC 9000 §8.2.4).
const ABANDON_AFTER_PTOS: u32 = 3;

/// The PTO of a path without RTT samples: 333 ms initial RTT and four times half of it (RFC
/// 9002 §6.2.1, §6.2.2).
const UNMEASURED_PTO: Duration = Duration::from_millis(999);

/// Returns the PTO for the validation of a path, where the connection's is `pto` (RFC 9000
/// §8.2.4).
fn validation_pto(pto: Duration) -> Duration {
    pto.max(UNMEASURED_PTO)
}

/// Returns how long a validation without an answer lasts, where the connection's PTO is
/// `pto` (RFC 9000 §8.2.4).
#[must_use]
pub(crate) fn validation_timeout(pto: Duration) -> Duration {
    validation_pto(pto).saturating_mul(ABANDON_AFTER_PTOS)
}

/// Most challenges of an attempt that an answer may match. One is sent each PTO, so an
/// attempt has three; restarted attempts forget the oldest.
const MAX_OUTSTANDING: usize = 4;

#[derive(Clone, Copy, Debug)]
struct Challenge {
    data: ChallengeData,
    sent: Instant,
    /// Sent in a datagram of full size: its answer validates the path for QUIC, and not
    /// only the address (RFC 9000 §8.2.1).
    expanded: bool,
}

/// The state of a path's validation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationState {
    /// Not started.
    Idle,
    /// Challenges are being sent.
    Running {
        /// The address answered a small challenge, so it is validated. The path MTU is not.
        address_validated: bool,
    },
    /// The path is validated in full size.
    Validated,
    /// There was no answer in time.
    Failed(ValidationFailure),
}

/// The reason why a path's validation failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationFailure {
    /// There was no answer.
    Unreachable,
    /// The address answered, but no datagram of 1,200 bytes got through.
    MtuTooSmall,
}

/// What a PATH_RESPONSE validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// The address and the path in full size. Validation is complete.
    Path,
    /// Only the address. The anti-amplification limit is lifted, and a challenge of full
    /// size is due (RFC 9000 §8.2.3).
    Address,
}

/// The validation of a path, on the side that started it.
#[derive(Clone, Debug)]
pub struct PathValidation {
    state: ValidationState,
    outstanding: SmallVec<[Challenge; 1]>,
    /// While running: when the next challenge is due.
    next_challenge: Instant,
    /// While running: when validation fails.
    deadline: Instant,
    pto: Duration,
}

impl Default for PathValidation {
    fn default() -> Self {
        Self::new()
    }
}

impl PathValidation {
    /// Returns the bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        memory::small_vec(&self.outstanding)
    }

    /// Creates the state of a path that is not being validated.
    #[must_use]
    pub fn new() -> Self {
        Self {
            state: ValidationState::Idle,
            outstanding: SmallVec::new(),
            next_challenge: Instant::ZERO,
            deadline: Instant::ZERO,
            pto: UNMEASURED_PTO,
        }
    }

    /// Starts or restarts validation. `pto` is the connection's current PTO without
    /// backoff; the PTO of a path without samples is used if that is longer (RFC 9000
    /// §8.2.4). A challenge is due at once. Answers to earlier challenges still count.
    pub fn start(&mut self, now: Instant, pto: Duration) {
        self.pto = validation_pto(pto);
        self.begin(now, false);
    }

    /// Stops validation without a result, as when migrating away.
    pub fn abandon(&mut self) {
        self.state = ValidationState::Idle;
        self.outstanding.clear();
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> ValidationState {
        self.state
    }

    /// Returns whether a PATH_CHALLENGE is due. Like ACKs, it is not paced.
    #[must_use]
    pub(crate) fn challenge_due(&self, now: Instant) -> bool {
        self.is_running() && now >= self.next_challenge
    }

    /// Returns new data for the PATH_CHALLENGE that is sent now, in a datagram of
    /// `datagram_size` bytes. Pad it to 1,200 bytes unless the anti-amplification limit
    /// forbids that.
    pub(crate) fn send_challenge(
        &mut self,
        now: Instant,
        datagram_size: usize,
        rng: &mut Rng,
    ) -> ChallengeData {
        let data = rng.array();
        if self.outstanding.len() == MAX_OUTSTANDING {
            self.outstanding.remove(0);
        }
        self.outstanding.push(Challenge {
            data,
            sent: now,
            expanded: datagram_size >= usize::from(MIN_MTU),
        });
        self.next_challenge = now + self.pto;
        data
    }

    /// Returns the time since the challenge with this data was sent, if an answer to it still
    /// counts.
    #[must_use]
    pub(crate) fn time_since(&self, now: Instant, data: ChallengeData) -> Option<Duration> {
        let sent = self.outstanding.iter().find(|c| c.data == data)?.sent;
        self.is_running().then(|| now - sent)
    }

    /// Handles a PATH_RESPONSE. It may arrive on any path (RFC 9000 §8.2.3), so call this
    /// for every path. Returns `None` if it answers none of this path's challenges.
    pub fn on_response(&mut self, now: Instant, data: ChallengeData) -> Option<Proof> {
        let ValidationState::Running { address_validated } = self.state else {
            return None;
        };
        let at = self.outstanding.iter().position(|c| c.data == data)?;
        let answered = self.outstanding.remove(at);
        if answered.expanded {
            self.state = ValidationState::Validated;
            self.outstanding.clear();
            return Some(Proof::Path);
        }
        if !address_validated {
            self.begin(now, true);
        }
        Some(Proof::Address)
    }

    /// Returns when a challenge is due or validation ends. A time that has passed is
    /// returned until [`PathValidation::handle_timeout`] or `send_challenge` has dealt with
    /// it.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.is_running()
            .then(|| self.next_challenge.min(self.deadline))
    }

    /// Returns when validation fails.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.is_running().then_some(self.deadline)
    }

    /// Ends validation if its time is over, and returns the reason.
    pub fn handle_timeout(&mut self, now: Instant) -> Option<ValidationFailure> {
        let ValidationState::Running { address_validated } = self.state else {
            return None;
        };
        if now < self.deadline {
            return None;
        }
        let failure = if address_validated {
            ValidationFailure::MtuTooSmall
        } else {
            ValidationFailure::Unreachable
        };
        self.state = ValidationState::Failed(failure);
        self.outstanding.clear();
        Some(failure)
    }

    fn begin(&mut self, now: Instant, address_validated: bool) {
        self.state = ValidationState::Running { address_validated };
        self.next_challenge = now;
        self.deadline = now + self.pto.saturating_mul(ABANDON_AFTER_PTOS);
    }

    fn is_running(&self) -> bool {
        matches!(self.state, ValidationState::Running { .. })
    }
}

/// Most PATH_CHALLENGE frames that a path keeps until they are answered. Their answers fit
/// into one datagram, so a peer exceeds this only if it sends more between two datagrams of
/// ours.
pub(crate) const MAX_RESPONSES: usize = 4;

/// The PATH_RESPONSE frames to send on a path: one for each challenge (RFC 9000 §8.2.2), at
/// most [`MAX_RESPONSES`] at a time. A flood of challenges costs no more than that for each
/// datagram sent. The oldest are not answered, since an honest peer repeats its challenge
/// with new data.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathResponses {
    pending: SmallVec<[ChallengeData; 1]>,
}

impl PathResponses {
    /// Returns the bytes allocated.
    pub(crate) fn memory(&self) -> usize {
        memory::small_vec(&self.pending)
    }

    /// Handles a PATH_CHALLENGE on this path. Returns false if an older one will not be
    /// answered because of it.
    pub(crate) fn on_challenge(&mut self, data: ChallengeData) -> bool {
        if self.pending.contains(&data) {
            return true;
        }
        let room = self.pending.len() < MAX_RESPONSES;
        if !room {
            self.pending.remove(0);
        }
        self.pending.push(data);
        room
    }

    /// Returns whether a PATH_RESPONSE is due, on this path and not paced (RFC 9000
    /// §8.2.2).
    #[must_use]
    pub(crate) fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Takes the next PATH_RESPONSE to send, in the order of the challenges. It is never
    /// retransmitted (RFC 9000 §13.3).
    pub(crate) fn take(&mut self) -> Option<ChallengeData> {
        (!self.pending.is_empty()).then(|| self.pending.remove(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTO: Duration = Duration::from_millis(2_000);

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    fn rng() -> Rng {
        Rng::from_seed([9; 32])
    }

    fn started() -> PathValidation {
        let mut path = PathValidation::new();
        path.start(at(0), PTO);
        path
    }

    /// The first packet on a new path carries PATH_CHALLENGE.
    #[test]
    fn first_packet_on_new_path_carries_path_challenge() {
        assert!(!PathValidation::new().challenge_due(at(0)));
        assert!(started().challenge_due(at(0)));
        assert_eq!(started().next_timeout(), Some(at(0)));
    }

    #[test]
    fn only_matching_path_response_validates_path() {
        let mut path = started();
        let data = path.send_challenge(at(0), 1_200, &mut rng());
        let mut wrong = data;
        wrong[7] ^= 1;
        assert_eq!(path.on_response(at(1), wrong), None);
        assert_eq!(path.on_response(at(1), [0; 8]), None);
        assert_eq!(path.on_response(at(1), data), Some(Proof::Path));
        assert_eq!(path.state(), ValidationState::Validated);
        assert_eq!(path.on_response(at(1), data), None, "validated once");
        assert_eq!(path.next_timeout(), None);
    }

    #[test]
    fn new_challenge_is_due_each_pto_and_any_answer_counts() {
        let mut path = started();
        let mut rng = rng();
        let mut sent = Vec::new();
        for n in 0..3 {
            assert!(path.challenge_due(at(n * 2_000)));
            sent.push(path.send_challenge(at(n * 2_000), 1_200, &mut rng));
            assert!(!path.challenge_due(at(n * 2_000 + 1_999)));
        }
        assert!(sent[0] != sent[1] && sent[1] != sent[2]);
        assert_eq!(path.on_response(at(5_999), sent[0]), Some(Proof::Path));
    }

    #[test]
    fn validation_without_answer_fails_after_three_ptos() {
        let mut path = started();
        path.send_challenge(at(0), 1_200, &mut rng());
        assert_eq!(path.handle_timeout(at(5_999)), None);
        assert_eq!(
            path.handle_timeout(at(6_000)),
            Some(ValidationFailure::Unreachable)
        );
        assert_eq!(path.handle_timeout(at(7_000)), None, "told once");
        assert_eq!(path.next_timeout(), None);
        assert!(!path.challenge_due(at(9_000)));
    }

    #[test]
    fn short_pto_does_not_shorten_validation_of_a_new_path() {
        let mut path = PathValidation::new();
        path.start(at(0), Duration::from_millis(10));
        path.send_challenge(at(0), 1_200, &mut rng());
        assert_eq!(path.next_timeout(), Some(at(999)));
        assert_eq!(path.handle_timeout(at(2_996)), None);
        assert!(path.handle_timeout(at(2_997)).is_some());
    }

    #[test]
    fn answer_to_small_challenge_validates_address_only() {
        let mut path = started();
        let mut rng = rng();
        let small = path.send_challenge(at(0), 600, &mut rng);
        assert_eq!(path.on_response(at(100), small), Some(Proof::Address));
        assert!(path.challenge_due(at(100)));
        let full = path.send_challenge(at(100), 1_200, &mut rng);
        let mut succeeds = path;
        assert_eq!(succeeds.next_timeout(), Some(at(2_100)));
        assert_eq!(succeeds.handle_timeout(at(6_099)), None);
        assert_eq!(succeeds.on_response(at(6_099), full), Some(Proof::Path));

        let mut fails = started();
        let small = fails.send_challenge(at(0), 600, &mut rng);
        fails.on_response(at(100), small);
        assert_eq!(
            fails.handle_timeout(at(6_100)),
            Some(ValidationFailure::MtuTooSmall)
        );
    }

    /// Answers to small challenges must not postpone the deadline for ever.
    #[test]
    fn address_validation_restarts_the_deadline_once() {
        let mut path = started();
        let mut rng = rng();
        for n in 0..20 {
            let data = path.send_challenge(at(n * 1_000), 600, &mut rng);
            path.on_response(at(n * 1_000), data);
            if path.handle_timeout(at(n * 1_000)).is_some() {
                assert_eq!(n, 6);
                return;
            }
        }
        panic!("never gave up");
    }

    #[test]
    fn number_of_outstanding_challenges_is_bounded() {
        let mut path = started();
        let mut rng = rng();
        let sent: Vec<_> = (0..100)
            .map(|_| path.send_challenge(at(0), 1_200, &mut rng))
            .collect();
        assert_eq!(path.outstanding.len(), MAX_OUTSTANDING);
        assert_eq!(path.on_response(at(0), sent[95]), None);
        assert_eq!(path.on_response(at(0), sent[96]), Some(Proof::Path));
    }

    #[test]
    fn abandoned_validation_sends_and_accepts_nothing() {
        let mut path = started();
        let data = path.send_challenge(at(0), 1_200, &mut rng());
        path.abandon();
        assert_eq!(path.on_response(at(1), data), None);
        assert_eq!(path.handle_timeout(at(60_000)), None);
        assert_eq!(path.state(), ValidationState::Idle);
    }

    /// The whole table of states and events.
    #[test]
    fn state_transition_table() {
        let idle = PathValidation::new;
        let running = started;
        let validated = || {
            let mut path = started();
            let data = path.send_challenge(at(0), 1_200, &mut rng());
            path.on_response(at(0), data);
            path
        };
        let failed = || {
            let mut path = started();
            path.handle_timeout(at(60_000));
            path
        };
        let states: [&dyn Fn() -> PathValidation; 4] = [&idle, &running, &validated, &failed];
        let mut table = String::new();
        for make in states {
            let mut after = Vec::new();
            for event in ["start", "timeout", "abandon"] {
                let mut path = make();
                match event {
                    "start" => path.start(at(0), PTO),
                    "timeout" => {
                        path.handle_timeout(at(60_000));
                    }
                    _ => path.abandon(),
                }
                after.push(name(path.state()));
            }
            table += &format!("{}: {}\n", name(make().state()), after.join(" "));
        }
        assert_eq!(
            table,
            "Idle: Running Idle Idle\n\
             Running: Running Failed Idle\n\
             Validated: Running Validated Idle\n\
             Failed: Running Failed Idle\n"
        );
    }

    fn name(state: ValidationState) -> &'static str {
        match state {
            ValidationState::Idle => "Idle",
            ValidationState::Running { .. } => "Running",
            ValidationState::Validated => "Validated",
            ValidationState::Failed(_) => "Failed",
        }
    }

    #[test]
    fn challenges_are_answered_once_and_in_order() {
        let mut owed = PathResponses::default();
        assert!(!owed.is_pending());
        for n in [1, 2, 1] {
            assert!(owed.on_challenge([n; 8]), "there is room");
        }
        assert_eq!(owed.take(), Some([1; 8]));
        assert_eq!(owed.take(), Some([2; 8]));
        assert_eq!(owed.take(), None);
        assert!(!owed.is_pending());
    }

    #[test]
    fn challenge_flood_keeps_only_the_newest_responses() {
        let mut owed = PathResponses::default();
        let unanswered = (0..1_000_u64)
            .filter(|n| !owed.on_challenge(n.to_be_bytes()))
            .count();
        assert_eq!(unanswered, 1_000 - MAX_RESPONSES);
        let answers: Vec<_> = core::iter::from_fn(|| owed.take()).collect();
        let newest: Vec<_> = (996..1_000_u64).map(u64::to_be_bytes).collect();
        assert_eq!(answers, newest);
    }

    #[test]
    fn memory_includes_responses_that_do_not_fit_inline() {
        let mut owed = PathResponses::default();
        owed.on_challenge([0; 8]);
        assert_eq!(owed.memory(), 0);
        for n in 1..4 {
            owed.on_challenge([n; 8]);
        }
        assert!((4 * 8..=8 * 8).contains(&owed.memory()));
    }
}
