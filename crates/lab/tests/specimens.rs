//! Every specimen is given away by what its row says, and the right code in the
//! same network with the same seed is not.
#![allow(missing_docs, reason = "a test")]

use clearway_lab::specimens::EXHIBITS;
use clearway_lab::measure::METRICS;

#[test]
fn explore() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for exhibit in EXHIBITS {
        if !exhibit.specimen.name().contains(&only) { continue; }
        let mut exhibit = *exhibit;
        if let Ok(s) = std::env::var("PLACE") { exhibit.scenario = Box::leak(s.into_boxed_str()); }
        if let Ok(s) = std::env::var("CC") { exhibit.controller = Box::leak(s.into_boxed_str()); }
        for bug in [true, false] {
            let seeds = if exhibit.scenario == "spiral_ticks" {8} else {1};
            for seed in 1..=seeds {
            let exhibit = clearway_lab::specimens::Exhibit { seed, ..exhibit };
            let run = exhibit.run(bug).expect("runs");
            println!("== {} {} seed {seed} bug={bug} shows={} fin={} {:?}", exhibit.specimen, exhibit.scenario, exhibit.symptom.shows(&run), run.finished, run.violations);
            let m: Vec<String> = METRICS.iter().filter(|m| ["time","util","loss","spurious","ptos","floor_rtts","recovery","idle_growth","loss_after","queue_mean","rtt_p50","window_max","events"].contains(&m.name)).filter_map(|m| (m.of)(&run).map(|v| format!("{}={v:.4}", m.name))).collect();
            println!("   {}", m.join(" "));
            let mut by = std::collections::BTreeMap::new();
            for (_, f) in &run.findings { by.entry(f.detector).or_insert((f.sentence(), 0)).1 += 1; }
            for (d, (s, n)) in by { println!("   {d} x{n}: {s}"); }
            }
        }
    }
}
