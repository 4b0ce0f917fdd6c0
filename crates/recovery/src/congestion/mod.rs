//! Congestion controllers: NewReno, CUBIC and Prague keep a window, BBR a model.
//!
//! `classic` has what NewReno, CUBIC and Prague share: the window and its states. A
//! `window_adjustment` defines by how much the window is reduced and how it grows
//! (`newreno`, `cubic`). They are built from these parts: `slow_start` ends the first slow start
//! before the queue overflows, by `hystart` or `search`, `prr` reduces the window gradually in recovery, `flight`
//! limits growth, `growth_clock` measures the time of CUBIC's curve.
//!
//! The requirements and the tests that check them (paths within this module, or after
//! `tests/` those of the whole of loss recovery; another test checks that they exist):
//!
//! | requirement | test |
//! |---|---|
//! | target within [cwnd, 1.5 cwnd] (RFC 9438 §4.2) | `cubic::target_is_clamped_to_one_and_a_half_windows` |
//! | (target − cwnd)/cwnd per segment, excess carried over | `cubic::window_grows_by_target_minus_window_over_window_per_segment` |
//! | t excludes periods that did not use the window (§4.2) | `growth_clock::clock_runs_only_while_congestion_or_pacing_limited`, `cubic::flow_control_stops_the_curve_and_pacing_does_not` |
//! | idle shifts the curve, ±1 MDS | `classic/tests/idle::idle_shifts_the_curve_by_exactly_the_idle_time`, `tests/idle::cubic_curve_continues_unchanged_after_idle` |
//! | after-idle and initial bursts are paced (RFC 9002 §7.7) | `tests/idle::first_flight_after_idle_is_paced`, `pacer::bursts_stay_within_the_initial_window_on_an_unproven_path` |
//! | Reno-friendly region, α = 1 from cwnd_prior (§4.3) | `cubic::w_est_alpha_becomes_one_at_cwnd_prior`, `cubic::short_path_grows_like_reno` |
//! | fast convergence; β applies to cwnd (§4.6, §4.7) | `cubic::fast_convergence_lowers_w_max_and_beta_applies_to_the_window` |
//! | no growth while under-used; pacing is use (§5.8, RFC 9002 §7.8) | `classic::under_used_window_does_not_grow`, `cubic::flow_control_stops_the_curve_and_pacing_does_not` |
//! | undo on proof, everything restored (§4.9.2) | `classic::spurious_event_restores_window_ssthresh_and_curve`, `classic::spurious_event_with_another_boundary_is_ignored` |
//! | undo of an event after which others began | `classic/tests/undo::window_is_restored_whichever_event_is_proven_spurious_first` |
//! | undo only below cwnd_prior | `classic::undo_is_skipped_if_the_window_has_reached_cwnd_prior` |
//! | marks confirm congestion | `classic::ecn_mark_in_the_same_event_prevents_undo` |
//! | no undo if some losses were real | `tests/spurious::late_ack_of_one_loss_does_not_undo_the_event` |
//! | persistent congestion: span ≥ 3 PTOs, with an RTT sample (RFC 9002 §7.6) | `tests/persistent::losses_spanning_exactly_three_ptos_are_not_persistent_congestion`, `tests/persistent::losses_sent_before_the_first_rtt_sample_do_not_span_persistent_congestion` |
//! | persistent congestion once, recovery cleared, K = 0 (RFC 9002 §7.6) | `classic::persistent_congestion_collapses_the_window_once`, `cubic::epoch_after_persistent_congestion_starts_with_k_zero` |
//! | recovery ends when a packet sent in it is acknowledged | `classic::recovery_ends_when_a_packet_sent_after_entry_is_acknowledged` |
//! | one reduction per event, no second one within an ACK | `classic::loss_and_mark_in_one_ack_reduce_once`, `classic::losses_of_one_flight_reduce_once` |
//! | ECN-CE once per round | `classic::marks_reduce_once_per_round` |
//! | `HyStart++` (RFC 9406) | all of `hystart`, `classic::hystart_exit_starts_avoidance_with_w_max_at_the_window` |
//! | SEARCH (draft-chung-ccwg-search) | all of `search`, `classic::search_exit_drains_the_window_to_what_the_path_holds` |
//! | rate-limited increase | `classic::rate_limited_increase_matches_the_example_of_the_draft`, `newreno::growth_stops_one_datagram_above_the_largest_flight`, `cubic::growth_is_bounded_by_the_largest_flight` |
//! | window from before a long pause (RFC 7661) | all of `doubt`, `classic/tests/validation::loss_after_a_long_pause_responds_to_what_the_path_has_carried` |
//! | Careful Resume: phases, bounds and retreat (RFC 9959) | all of `resume`, of `classic/tests/resume` and of `capacity` |
//! | minimum window 2 MDS, MDS follows PMTUD | `classic::minimum_window_follows_the_datagram_size`, `classic::initial_window_follows_the_datagram_size_before_feedback` |
//! | probes pass the window and count in flight (RFC 9002 §7.5) | `tests/flight::probes_may_exceed_the_window_and_count_in_flight` |
//! | reordering thresholds adapt | `tests/spurious::packet_threshold_grows_with_observed_reordering`, `tests/spurious::time_threshold_grows_with_late_acks` |
//! | PRR (RFC 9937), exit at ssthresh | all of `prr`, `classic::window_after_recovery_is_ssthresh` |
//! | growth out of a two-packet window | `classic::growth_resumes_after_a_death_spiral` |
//! | no overflow, ≥ minimum, deterministic, at any scale | `classic::arbitrary_events_keep_the_window_above_the_minimum`, `classic::fully_used_window_grows_at_every_scale` |
//! | average window as the models predict | `classic::newreno_average_window_matches_the_model`, `classic::cubic_average_window_matches_the_model` |
//! | Prague: α, once a round, RTT independence, first mark ends slow start | all of `prague` |
//! | Prague: CUBIC without marks, its curve between them, its response in a classic queue | `prague::behaves_as_cubic_before_the_first_mark`, `prague::window_regrows_by_the_curve_of_cubic_when_marks_stop`, `prague::marks_of_a_classic_queue_reduce_as_cubic_does` |
//!
//! `bbr` keeps a model of the path instead (draft-ietf-ccwg-bbr, to which the sections
//! refer). Its tests (paths within `bbr::tests`) include the 22 example test cases of the
//! draft's appendix, and these:
//!
//! | requirement | test |
//! |---|---|
//! | rate samples: max(send, ack), none below min_rtt (§4.1) | all of `rate`, `formulas::rate_samples_exclude_the_wait_in_the_pacer` |
//! | application-limited bubble; ProbeRTT marks it, too | `rate::packets_are_app_limited_until_the_bubble_is_delivered`, `probe_rtt::probe_rtt_samples_are_app_limited_and_do_not_lower_max_bw` |
//! | packet-timed rounds (§5.5.1) | `rounds::round_ends_when_data_sent_in_it_is_delivered` |
//! | Startup 2.77 and 2, doubling each round (§5.3.1) | `probe_bw::gains_match_the_table_of_the_draft`, `startup::startup_doubles_the_rate_each_round` |
//! | plateau of 3 rounds < 25 %, not application-limited | `startup::startup_ends_on_a_bandwidth_plateau`, `startup::startup_does_not_end_while_application_limited` |
//! | high loss: a round of recovery, > 2 %, ≥ 6 ranges (§5.3.1.3) | `startup::startup_ends_by_loss_when_a_shallow_queue_overflows`, `startup::few_losses_do_not_end_startup`, `formulas::adjacent_losses_are_one_range` |
//! | Drain 0.5, by BDP or 3 rounds (§5.3.2) | `startup::drain_ends_when_the_queue_is_drained`, `startup::drain_ends_after_three_rounds` |
//! | DOWN 0.90, CRUISE, REFILL a round, UP 1.25 and 2.25 (§5.3.3) | `probe_bw::gains_match_the_table_of_the_draft`, `probe_bw::refill_lasts_one_round_and_resets_the_short_term_model` |
//! | inflight_longterm rises 1, 2, 4, 8 … | `probe_bw::tenfold_bandwidth_increase_is_found` |
//! | inflight_longterm falls once per probe, to inflight-at-loss or 0.7 BDP | `probe_bw::inflight_longterm_falls_once_per_probe`, `formulas::inflight_at_loss_is_where_the_threshold_was_crossed`, `formulas::inflight_longterm_is_at_least_beta_times_the_bdp` |
//! | headroom 0.85 | `formulas::headroom_is_fifteen_percent_or_one_packet_above_min_pipe_cwnd`, `probe_bw::cruise_leaves_headroom` |
//! | precautionary probing (§5.3.3.6) | `probe_bw::precautionary_probe_stops_at_inflight_longterm_and_a_full_probe_follows` |
//! | probe clock: 2–3 s or min(BDP, 62..63) rounds (§5.3.3.8) | `probe_bw::probes_start_every_two_to_three_seconds_or_63_rounds` |
//! | max_bw over 2 cycles, min_rtt over 10 s | all of `filters` |
//! | ProbeRTT every 5 s, ≥ 200 ms and a round, max(0.5 BDP, 4) (§5.3.4) | all of `probe_rtt` |
//! | restart from idle at exactly bw (§5.4) | `probe_rtt::restarting_from_idle_paces_at_exactly_bw` |
//! | model from before a long pause | all of `pauses` |
//! | extra_acked, quantisation budget, send quantum | `filters::extra_acked_is_the_excess_over_the_delivery_rate`, `formulas::quantization_budget_is_at_least_a_quantum_and_four_packets_with_two_more_in_up`, `formulas::send_quantum_is_a_millisecond_of_rate_from_two_packets_to_64_kib` |
//! | Beta 0.7 once per loss round when not probing (§5.5.10.3) | `formulas::beta_applies_once_per_round_with_loss`, `formulas::loss_while_probing_leaves_the_short_term_model_unset` |
//! | spurious undo (§5.5.11) | all of `spurious`, `formulas::undo_restores_the_state_of_its_event_only` |
//! | pacing margin 1 %, minimum window 4 datagrams | `formulas::pacing_rate_only_rises_in_startup`, `formulas::minimum_window_follows_the_datagram_size` |
//! | persistent congestion: 4 datagrams, no amnesia | `formulas::persistent_congestion_reduces_the_window_to_four_packets_and_keeps_the_model`, `formulas::rate_recovers_within_rounds_after_an_outage` |
//! | CE marks are congestion (§3.6) | `ecn::ce_marks_are_congestion`, `ecn::marks_end_startup` |
//! | 64 kbit/s–400 Gbit/s, 10 µs–2 s, deterministic | all of `extremes`, `paths::links_from_64_kbit_to_10_gbit_are_filled` |

mod bbr;
mod carry;
mod classic;
mod cube;
mod cubic;
mod doubt;
mod factory;
mod fixed;
mod flight;
mod growth_clock;
mod hystart;
mod newreno;
mod prague;
mod prr;
mod resume;
mod search;
mod slow_start;
#[cfg(feature = "specimens")]
pub(crate) mod specimens;
mod window_adjustment;

#[cfg(test)]
mod sim;
#[cfg(test)]
mod testing;

use core::fmt;
use core::str::FromStr;

use classic::Classic;

use crate::controller::Controller;

pub use factory::{CongestionControl, ControllerFactory, NewPath};

/// kInitialWindow in datagrams (RFC 9002 §7.2).
const INITIAL_WINDOW_DATAGRAMS: u64 = 10;
/// The limit of the initial window in bytes (RFC 9002 §7.2).
const INITIAL_WINDOW_BYTES: u64 = 14_720;
/// kMinimumWindow in datagrams (RFC 9002 §7.2).
const MIN_WINDOW_DATAGRAMS: u64 = 2;

/// Returns the initial window in bytes for a maximum datagram size (RFC 9002 §7.2).
#[must_use]
pub fn initial_window(mds: u64) -> u64 {
    let limit = min_window(mds).max(INITIAL_WINDOW_BYTES);
    mds.max(1)
        .saturating_mul(INITIAL_WINDOW_DATAGRAMS)
        .min(limit)
}

/// Returns the minimum window in bytes for a maximum datagram size (RFC 9002 §7.2).
#[must_use]
pub fn min_window(mds: u64) -> u64 {
    mds.max(1).saturating_mul(MIN_WINDOW_DATAGRAMS)
}

/// Defines the congestion controllers, one a line: variant, name, and how it is built from
/// the slow start, the path's maximum datagram size and a seed.
macro_rules! controllers {
    ($($(#[$attribute:meta])* $variant:ident $name:literal $build:expr;)+) => {
        /// The congestion controller of a path.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Algorithm {
            $($(#[$attribute])* $variant,)+
            /// A window of this many bytes that never moves. Not for shared networks.
            Fixed(u64),
        }

        impl Algorithm {
            /// All algorithms that respond to congestion.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name),+];
        }

        /// Builds a controller for a new path. Controllers that draw random numbers do so
        /// from `seed`, so that flows with different seeds do not act in step.
        pub(crate) fn build_seeded(
            algorithm: Algorithm,
            slow_start: SlowStart,
            mds: u64,
            seed: u64,
        ) -> Box<dyn Controller> {
            match algorithm {
                $(Algorithm::$variant => {
                    let build: fn(SlowStart, u64, u64) -> Box<dyn Controller> = $build;
                    build(slow_start, mds, seed)
                })+
                Algorithm::Fixed(window) => Box::new(fixed::FixedWindow::new(window, mds)),
            }
        }

        impl fmt::Display for Algorithm {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($name),)+
                    Self::Fixed(window) => write!(f, "fixed:{window}"),
                }
            }
        }
    };
}

controllers! {
    /// NewReno (RFC 9002 §7).
    NewReno "newreno" |slow, mds, _| Box::new(Classic::new(newreno::NewReno::default(), slow, mds));
    /// CUBIC (RFC 9438).
    #[default]
    Cubic "cubic" |slow, mds, _| Box::new(Classic::new(cubic::Cubic::default(), slow, mds));
    /// Prague for L4S: marks packets ECT(1) (RFC 9331).
    Prague "prague" |slow, mds, _| Box::new(prague::Prague::new(slow, mds));
    /// BBR, version 3 (draft-ietf-ccwg-bbr).
    Bbr "bbr" |_, mds, seed| Box::new(bbr::Bbr::new(mds, seed));
}

/// How the first slow start of a path ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SlowStart {
    /// When the RTT rises, or by congestion (RFC 9406).
    #[default]
    HyStart,
    /// When less arrives than was sent a round trip before, or by congestion
    /// (draft-chung-ccwg-search).
    Search,
    /// By congestion only (RFC 9002 §7.3.1).
    Standard,
}

impl SlowStart {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::HyStart, Self::Search, Self::Standard];

    /// Returns its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::HyStart => "hystart",
            Self::Search => "search",
            Self::Standard => "standard",
        }
    }
}

/// Builds a controller for a new path whose maximum datagram size is `mds` bytes,
/// with `HyStart++` where there is a slow start.
#[cfg(test)]
pub(crate) fn build(algorithm: Algorithm, mds: u64) -> Box<dyn Controller> {
    build_with(algorithm, SlowStart::default(), mds)
}

/// Like [`build`], with a choice of slow start.
#[cfg(test)]
pub(crate) fn build_with(
    algorithm: Algorithm,
    slow_start: SlowStart,
    mds: u64,
) -> Box<dyn Controller> {
    build_seeded(algorithm, slow_start, mds, 0)
}

/// The name of a controller could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// No controller has this name.
    Unknown(String),
    /// The fixed window has 0 bytes, which would never allow to send.
    ZeroWindow,
}

impl fmt::Display for AlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => {
                write!(f, "unknown congestion controller {name:?}: expected ")?;
                for known in Algorithm::ALL {
                    write!(f, "{known}, ")?;
                }
                f.write_str("or fixed:BYTES")
            }
            Self::ZeroWindow => {
                f.write_str("invalid fixed window of 0 bytes: expected fixed:BYTES with at least 1")
            }
        }
    }
}

impl core::error::Error for AlgorithmError {}

impl FromStr for Algorithm {
    type Err = AlgorithmError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        if let Some(known) = Self::ALL.iter().find(|known| known.to_string() == name) {
            return Ok(*known);
        }
        let window = name.strip_prefix("fixed:").and_then(|n| n.parse().ok());
        match window {
            Some(0) => Err(AlgorithmError::ZeroWindow),
            Some(window) => Ok(Self::Fixed(window)),
            None => Err(AlgorithmError::Unknown(name.to_owned())),
        }
    }
}

impl fmt::Display for SlowStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// No slow start has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownSlowStart(String);

impl fmt::Display for UnknownSlowStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(name) = self;
        write!(
            f,
            "unknown slow start {name:?}: expected hystart, search or standard"
        )
    }
}

impl core::error::Error for UnknownSlowStart {}

impl FromStr for SlowStart {
    type Err = UnknownSlowStart;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| UnknownSlowStart(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::Ect;

    /// Every file below `src`, by its path.
    fn sources() -> Vec<(String, String)> {
        let mut files = Vec::new();
        // Asked when the test runs: clones may share what is compiled.
        let here = std::env::var("CARGO_MANIFEST_DIR").unwrap();
        let mut folders = vec![std::path::Path::new(&here).join("src")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let text = std::fs::read_to_string(&path).unwrap();
                    files.push((path.to_str().unwrap().replace('\\', "/"), text));
                }
            }
        }
        files
    }

    #[test]
    fn tests_named_in_the_table_exist() {
        let sources = sources();
        let rows = include_str!("mod.rs").lines();
        let rows: Vec<&str> = rows.filter_map(|l| l.strip_prefix("//! | ")).collect();
        let named: Vec<&str> = rows.iter().flat_map(|row| row.split('`')).collect();
        let tests = named.iter().filter_map(|name| name.split_once("::"));
        let mut count = 0;
        for (room, test) in tests {
            let function = format!("fn {test}(");
            let found = sources
                .iter()
                .any(|(path, text)| path.contains(room) && text.contains(&function));
            assert!(found, "no test {test} in {room}");
            count += 1;
        }
        assert!(
            count >= 40 && rows.len() >= 28,
            "{count} tests in {} rows",
            rows.len()
        );
    }

    #[test]
    fn algorithm_names_round_trip() {
        let fixed = Algorithm::Fixed(65_536);
        for &algorithm in Algorithm::ALL.iter().chain(&[fixed]) {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        assert_eq!(Algorithm::default(), Algorithm::Cubic);
    }

    #[test]
    fn unknown_name_error_lists_known_names() {
        for name in ["", "reno", "CUBIC", "fixed", "fixed:", "fixed:-1"] {
            let error = name.parse::<Algorithm>().unwrap_err().to_string();
            assert!(
                error.contains("expected newreno, cubic, ") && error.contains(", or fixed:BYTES"),
                "{error}"
            );
            assert!(error.contains(&format!("{name:?}")), "{error}");
        }
    }

    #[test]
    fn fixed_window_of_zero_bytes_is_rejected() {
        let error = "fixed:0".parse::<Algorithm>().unwrap_err();
        assert_eq!(error, AlgorithmError::ZeroWindow);
        assert!(error.to_string().contains("at least 1"), "{error}");
        assert_eq!("fixed:1".parse(), Ok(Algorithm::Fixed(1)));
    }

    #[test]
    fn slow_start_names_round_trip() {
        for slow_start in SlowStart::ALL {
            assert_eq!(slow_start.to_string().parse(), Ok(slow_start));
        }
        let error = "fast".parse::<SlowStart>().unwrap_err().to_string();
        assert!(error.contains("\"fast\"") && error.contains("hystart, search or standard"));
    }

    #[test]
    fn only_prague_uses_ect1() {
        for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Fixed(1)] {
            assert_eq!(build(algorithm, 1_200).ecn(), Ect::Ect0);
        }
        assert_eq!(build(Algorithm::Prague, 1_200).ecn(), Ect::Ect1);
    }

    #[test]
    fn built_controller_has_the_name_of_its_algorithm() {
        for (algorithm, name) in Algorithm::ALL.iter().zip(Algorithm::NAMES) {
            assert_eq!(algorithm.to_string(), *name);
            assert_eq!(build(*algorithm, 1_200).name(), *name);
        }
        assert_eq!(build(Algorithm::Fixed(9_000), 1_200).name(), "fixed");
        assert_eq!(build(Algorithm::Fixed(9_000), 1_200).window(), 9_000);
    }

    #[test]
    fn initial_window_is_ten_datagrams_within_14720_bytes() {
        for (mds, window) in [
            (1_200, 12_000),
            (1_472, 14_720),
            (1_500, 14_720),
            (2_000, 14_720),
            (9_000, 18_000),
        ] {
            assert_eq!(initial_window(mds), window, "for {mds}");
        }
    }
}
