//! The scenarios that come with the lab.

use std::sync::LazyLock;

use super::error::suggest;
use super::parse::Scenario;

macro_rules! files {
    ($($name:literal)*) => {
        &[$(($name, include_str!(concat!("../../scenarios/", $name)))),*]
    };
}

/// All files, in the order of the catalogue.
const FILES: &[(&str, &str)] = files! {
    "01_death_spiral.toml"
    "02_death_spiral_grid.toml"
    "03_gilbert_elliott.toml"
    "04_random_loss.toml"
    "05_transfer_loss.toml"
    "06_handshake_loss.toml"
    "07_reorder.toml"
    "08_wifi_suspend.toml"
    "09_wifi_jitter.toml"
    "10_ack_aggregation.toml"
    "11_ack_loss.toml"
    "12_ack_thinning.toml"
    "13_policer.toml"
    "14_shallow_25.toml"
    "15_shallow_2pct.toml"
    "16_bufferbloat.toml"
    "17_codel_ecn.toml"
    "18_fq_codel_mix.toml"
    "19_dualq_l4s.toml"
    "20_dc_ecn.toml"
    "21_geo_sat.toml"
    "22_geo_fc.toml"
    "23_leo_handover.toml"
    "24_cellular_trace.toml"
    "25_rate_step.toml"
    "26_blackhole_2s.toml"
    "27_migrate_slower.toml"
    "28_app_limited.toml"
    "29_idle_5s.toml"
    "30_on_off_rpc.toml"
    "31_convergence_5.toml"
    "32_inter_cca.toml"
    "33_rtt_unfair.toml"
    "34_dc_100us.toml"
    "35_lfn_10g.toml"
    "36_ultra_low.toml"
    "37_tiny_window.toml"
    "38_asym_uplink.toml"
    "39_persistent.toml"
    "40_amplification.toml"
    "41_upload_both_ways.toml"
    "42_key_update_in_flight.toml"
    "43_dualq_step.toml"
    "44_http3_page.toml"
    "45_rate_fall.toml"
    "46_late_packets.toml"
    "47_unordered_jitter.toml"
    "48_deep_slow.toml"
    "49_marked_by_step.toml"
    "50_long_path.toml"
    "51_classic_marks.toml"
    "52_pause_fall.toml"
    "53_marked_bursts.toml"
    "54_overwritten_marks.toml"
    "55_late_at_marks.toml"
    "56_resume_50ms.toml"
    "57_resume_600ms.toml"
    "58_resume_changed.toml"
    "59_marks_seen_late.toml"
    "60_bunches_at_dualq.toml"
    "61_thinned_credit.toml"
    "62_short_path_jitter.toml"
    "63_late_and_thinned.toml"
};

/// All scenarios, in the order of their numbers.
#[must_use]
pub fn catalogue() -> &'static [Scenario] {
    static ALL: LazyLock<Vec<Scenario>> = LazyLock::new(|| {
        let read = |(file, text): &(&str, &str)| match Scenario::parse(file, text) {
            Ok(scenario) => scenario,
            // A test parses every file.
            Err(error) => unreachable!("a scenario of the catalogue has a mistake: {error}"),
        };
        FILES.iter().map(read).collect()
    });
    &ALL
}

/// The scenario with this name or number.
///
/// # Errors
/// If there is no such scenario; the message lists the names.
pub fn find(name: &str) -> Result<&'static Scenario, String> {
    let all = catalogue();
    let number = name.parse::<u32>().ok();
    all.iter()
        .find(|scenario| scenario.name == name || Some(scenario.number) == number)
        .ok_or_else(|| {
            let names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
            format!("unknown scenario {name:?}; {}", suggest(name, &names))
        })
}
