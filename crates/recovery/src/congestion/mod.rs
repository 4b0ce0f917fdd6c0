//! Congestion controllers: NewReno, CUBIC and Prague keep a window, BBR a model.
//!
//! `classic` holds what the two share, the window and its states; a `law` says
//! how far the window comes down and how it grows (`newreno`, `cubic`). The rest
//! are the parts these are made of: `hystart` leaves slow start in time, `prr`
//! leads the window down, `flight` bounds its growth, `clock` is CUBIC's time.
//!
//! What must be right, and the tests that say so (a file of this module, or
//! after `tests/` of the facade; another test checks that they exist):
//!
//! | requirement | test |
//! |---|---|
//! | target within [cwnd, 1.5 cwnd] (RFC 9438 §4.2) | `cubic::target_is_clamped_between_the_window_and_half_more` |
//! | (target − cwnd)/cwnd per segment, excess carried over | `cubic::each_segment_earns_its_share_of_the_way_to_the_target` |
//! | t without periods that did not use the window (§4.2) | `clock::clock_runs_only_while_congestion_or_pacing_limited`, `cubic::flow_control_stops_the_curve_and_pacing_does_not` |
//! | idle shifts the curve, ±1 MDS | `classic/tests/idle::idle_shifts_the_curve_by_exactly_the_idle_time`, `tests/idle::after_idle_the_window_follows_the_curve_it_left` |
//! | after-idle and initial bursts are paced (RFC 9002 §7.7) | `tests/idle::the_first_flight_after_idle_is_no_burst`, `pacer::bursts_stay_within_the_initial_window_until_the_path_has_shown_more` |
//! | Reno-friendly region, α = 1 from cwnd_prior (§4.3) | `cubic::w_est_alpha_becomes_one_at_cwnd_prior`, `cubic::a_short_path_grows_as_reno_does` |
//! | fast convergence; β applies to cwnd (§4.6, §4.7) | `cubic::fast_convergence_lowers_w_max_and_beta_applies_to_the_window` |
//! | no growth while under-used; pacing is use (§5.8, RFC 9002 §7.8) | `classic::an_under_used_window_does_not_grow`, `cubic::flow_control_stops_the_curve_and_pacing_does_not` |
//! | undo on proof, everything restored (§4.9.2) | `classic::spurious_event_restores_window_ssthresh_and_curve`, `classic::spurious_event_with_another_boundary_is_ignored` |
//! | undo only below cwnd_prior | `classic::a_window_grown_past_cwnd_prior_is_not_undone` |
//! | marks confirm congestion | `classic::a_mark_in_the_same_event_voids_the_undo` |
//! | one late ACK among real losses undoes nothing | `tests/spurious::one_late_ack_among_real_losses_undoes_nothing` |
//! | persistent congestion: span ≥ 3 PTOs, with an RTT sample (RFC 9002 §7.6) | `tests/persistent::losses_over_exactly_three_ptos_do_not`, `tests/persistent::packets_sent_before_the_first_rtt_sample_do_not_span_it` |
//! | persistent congestion once, recovery cleared, K = 0 (RFC 9002 §7.6) | `classic::persistent_congestion_collapses_the_window_exactly_once`, `cubic::after_a_collapse_the_stage_starts_with_k_zero` |
//! | recovery ends with a packet sent in it | `classic::recovery_ends_only_with_a_packet_sent_after_entry` |
//! | one reduction per event, none re-armed within an ACK | `classic::one_ack_cannot_cut_twice`, `classic::multiple_cuts_in_one_round_are_impossible` |
//! | ECN-CE once per round | `classic::marks_reduce_once_per_round` |
//! | `HyStart++` (RFC 9406) | all of `hystart`, `classic::hystart_leaves_to_avoidance_with_w_max_at_the_window` |
//! | rate-limited increase | `classic::rate_limited_increase_follows_the_example_of_its_draft`, `newreno::growth_ends_one_datagram_above_the_largest_flight`, `cubic::growth_is_bounded_by_the_largest_flight` |
//! | minimum window 2 MDS, MDS follows PMTUD | `classic::the_minimum_follows_the_datagram_size`, `classic::before_feedback_the_initial_window_follows_the_datagram_size` |
//! | probes pass the window and count in flight (RFC 9002 §7.5) | `tests/flight::probes_count_in_flight_beyond_the_window` |
//! | reordering thresholds adapt | `tests/spurious::the_packet_threshold_follows_the_reordering`, `tests/spurious::the_time_threshold_follows_the_lateness` |
//! | PRR (RFC 9937), exit at ssthresh | all of `prr`, `classic::recovery_ends_at_ssthresh` |
//! | growth out of a two-packet window | `classic::growth_resumes_after_a_death_spiral` |
//! | no overflow, ≥ minimum, deterministic, at any scale | `classic::arbitrary_events_keep_the_window_in_bounds`, `classic::a_used_window_grows_at_every_scale` |
//! | average window as the models predict | `classic::newreno_averages_what_the_model_predicts`, `classic::cubic_averages_what_the_model_predicts` |
//! | Prague: α, once a round, RTT independence, first mark ends slow start | all of `prague` |
//!
//! `bbr` keeps a model of the path instead (draft-ietf-ccwg-bbr; sections are its).
//! Its tests (paths within `bbr::tests`) hold the 22 example test cases of the
//! draft's appendix, and these:
//!
//! | requirement | test |
//! |---|---|
//! | rate samples: max(send, ack), none below min_rtt (§4.1) | all of `rate`, `checklist::rate_samples_do_not_count_the_wait_in_the_pacer` |
//! | application-limited bubble; ProbeRTT marks it, too | `rate::the_bubble_marks_what_leaves_until_it_is_delivered`, `round_trip::samples_of_probe_rtt_are_marked_and_do_not_lower_max_bw` |
//! | packet-timed rounds (§5.5.1) | `rounds::round_ends_when_data_sent_in_it_is_delivered` |
//! | Startup 2.77 and 2, doubling each round (§5.3.1) | `cycle::the_gains_are_those_of_the_table`, `startup::the_rate_doubles_each_round` |
//! | plateau of 3 rounds < 25 %, not application-limited | `startup::startup_ends_on_a_plateau`, `startup::startup_never_ends_while_application_limited` |
//! | high loss: a round of recovery, > 2 %, ≥ 6 ranges (§5.3.1.3) | `startup::an_overflowing_shallow_queue_ends_startup_by_loss`, `startup::a_few_losses_do_not_end_startup`, `checklist::adjacent_losses_are_one_range` |
//! | Drain 0.5, by BDP or 3 rounds (§5.3.2) | `startup::drain_ends_when_the_queue_is_gone`, `startup::drain_ends_after_three_rounds` |
//! | DOWN 0.90, CRUISE, REFILL a round, UP 1.25 and 2.25 (§5.3.3) | `cycle::the_gains_are_those_of_the_table`, `cycle::refill_lasts_a_round_without_the_short_term_model` |
//! | inflight_longterm rises 1, 2, 4, 8 … | `cycle::ten_times_the_bandwidth_is_found` |
//! | inflight_longterm falls once per probe, to inflight-at-loss or 0.7 BDP | `cycle::the_bound_falls_once_per_probe`, `checklist::inflight_at_loss_is_where_the_threshold_was_crossed`, `checklist::the_long_term_bound_keeps_a_floor_of_beta_times_the_bdp` |
//! | headroom 0.85 | `checklist::headroom_is_fifteen_percent_or_a_packet_above_four`, `cycle::headroom_is_left_in_cruise` |
//! | precautionary probing (§5.3.3.6) | `cycle::a_precautionary_probe_stops_at_the_bound_and_is_followed_by_a_full_one` |
//! | probe clock: 2–3 s or min(BDP, 62..63) rounds (§5.3.3.8) | `cycle::probes_keep_the_clock_of_two_to_three_seconds_or_sixty_three_rounds` |
//! | max_bw over 2 cycles, min_rtt over 10 s | all of `filters` |
//! | ProbeRTT every 5 s, ≥ 200 ms and a round, max(0.5 BDP, 4) (§5.3.4) | all of `round_trip` |
//! | restart from idle at exactly bw (§5.4) | `round_trip::restarting_from_idle_paces_at_exactly_bw` |
//! | extra_acked, quantisation budget, send quantum | `filters::extra_acked_is_the_excess_over_the_delivery_rate`, `checklist::the_quantisation_budget_is_a_quantum_or_four_packets_and_two_more_in_up`, `checklist::the_quantum_is_a_millisecond_within_two_packets_and_64_kib` |
//! | Beta 0.7 once per loss round when not probing (§5.5.10.3) | `checklist::beta_applies_once_per_round_with_loss`, `checklist::loss_while_probing_leaves_the_short_term_model_unset` |
//! | spurious undo (§5.5.11) | all of `spurious`, `checklist::an_undo_restores_what_was_saved_and_no_other_event` |
//! | pacing margin 1 %, minimum window 4 datagrams | `checklist::in_startup_the_pacing_rate_only_rises`, `checklist::the_minimum_window_follows_the_datagram_size` |
//! | persistent congestion: 4 datagrams, no amnesia | `checklist::persistent_congestion_leaves_four_packets_and_the_model`, `checklist::rate_recovers_within_rounds_after_an_outage` |
//! | CE marks are congestion (§3.6) | `marks::ce_marks_are_congestion`, `marks::marks_end_startup` |
//! | 64 kbit/s–400 Gbit/s, 10 µs–2 s, deterministic | all of `extremes`, `paths::speeds_from_64_kbit_to_10_gbit_are_filled` |

mod bbr;
mod carry;
mod classic;
mod clock;
mod cube;
mod cubic;
mod factory;
mod fixed;
mod flight;
mod hystart;
mod law;
mod newreno;
mod prague;
mod prr;
#[cfg(feature = "specimens")]
pub(crate) mod specimens;

#[cfg(test)]
mod sim;
#[cfg(test)]
mod testing;

use core::fmt;
use core::str::FromStr;

use classic::Classic;

use crate::controller::Controller;

pub use factory::{CongestionControl, ControllerFactory, NewPath};

/// Seed of controllers that are built without one.
const DEFAULT_SEED: u64 = 0;
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

/// A congestion controller each: its variant, its name, and how it is built from
/// a choice of slow start, the path's maximum datagram size and a seed.
macro_rules! controllers {
    ($($(#[$attribute:meta])* $variant:ident $name:literal $build:expr;)+) => {
        /// Which congestion controller a path gets.
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

        /// Like [`build_with`], with a seed for controllers that draw random numbers,
        /// so that flows with different seeds do not act in step.
        #[must_use]
        pub fn build_seeded(
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
    /// By congestion only (RFC 9002 §7.3.1).
    Standard,
}

/// Builds a controller for a new path whose maximum datagram size is `mds` bytes,
/// with `HyStart++` where there is a slow start.
#[must_use]
pub fn build(algorithm: Algorithm, mds: u64) -> Box<dyn Controller> {
    build_with(algorithm, SlowStart::default(), mds)
}

/// Like [`build`], with a choice of slow start.
#[must_use]
pub fn build_with(algorithm: Algorithm, slow_start: SlowStart, mds: u64) -> Box<dyn Controller> {
    build_seeded(algorithm, slow_start, mds, DEFAULT_SEED)
}

/// The name of a controller could not be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// No controller has this name.
    Unknown(String),
    /// A fixed window of 0 bytes, which could never send.
    NoWindow,
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
            Self::NoWindow => {
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
            Some(0) => Err(AlgorithmError::NoWindow),
            Some(window) => Ok(Self::Fixed(window)),
            None => Err(AlgorithmError::Unknown(name.to_owned())),
        }
    }
}

impl fmt::Display for SlowStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HyStart => "hystart",
            Self::Standard => "standard",
        })
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
            "unknown slow start {name:?}: expected hystart or standard"
        )
    }
}

impl core::error::Error for UnknownSlowStart {}

impl FromStr for SlowStart {
    type Err = UnknownSlowStart;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "hystart" => Ok(Self::HyStart),
            "standard" => Ok(Self::Standard),
            other => Err(UnknownSlowStart(other.to_owned())),
        }
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
    fn names_round_trip() {
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
    fn fixed_window_of_zero_bytes_is_refused() {
        let error = "fixed:0".parse::<Algorithm>().unwrap_err();
        assert_eq!(error, AlgorithmError::NoWindow);
        assert!(error.to_string().contains("at least 1"), "{error}");
        assert_eq!("fixed:1".parse(), Ok(Algorithm::Fixed(1)));
    }

    #[test]
    fn slow_starts_round_trip() {
        for slow_start in [SlowStart::HyStart, SlowStart::Standard] {
            assert_eq!(slow_start.to_string().parse(), Ok(slow_start));
        }
        let error = "fast".parse::<SlowStart>().unwrap_err().to_string();
        assert!(error.contains("\"fast\"") && error.contains("hystart or standard"));
    }

    #[test]
    fn only_prague_asks_for_ect1() {
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
    fn the_initial_window_is_ten_datagrams_within_14720_bytes() {
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
