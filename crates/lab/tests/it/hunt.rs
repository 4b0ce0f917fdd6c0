//! The search for networks in which a controller does worst, with real runs.
#![allow(
    clippy::unwrap_used,
    missing_docs,
    reason = "a test that cannot go on has failed"
)]

use std::collections::BTreeMap;

use clearway_lab::hunt::{
    Bounds, Envelopes, Evaluate as _, Hunt, HuntSettings, KnownCases, LabEvaluator, Oracle, Trial,
};

/// A controller that is stuck: its window is two datagrams for ever. It is measured as CUBIC is.
const STUCK: &str = "fixed:3000";

const ENVELOPES: &str = r#"
["fixed:3000"]
growth = "cubic"
response = "cubic"
settle = { time = "1s", rtts = 10, reason = "as CUBIC" }
utilisation = { least = 0.5, loss = 0.05, reason = "as CUBIC" }

[cubic]
growth = "cubic"
response = "cubic"
settle = { time = "1s", rtts = 10, reason = "slow start" }
utilisation = { least = 0.5, loss = 0.05, reason = "β = 0.7 at an empty queue leaves 85 %" }
"#;

/// Paths that a debug build runs in a moment, without what would excuse a controller.
fn bounds() -> Bounds {
    let text = r#"
rate = ["500k", "4M"]
rtt = ["40ms", "200ms"]
queue = ["50ms", "500ms"]
duration = ["10s", "20s"]
flows = 1
traffic = "2MB"
"#;
    Bounds::parse("bounds", text).unwrap()
}

#[test]
fn controller_with_a_planted_defect_is_found_shrunk_and_told_from_a_healthy_one() {
    let envelopes = Envelopes::parse("envelopes", ENVELOPES).unwrap();
    let mut evaluator = LabEvaluator {
        envelopes: BTreeMap::from([
            (STUCK.to_owned(), envelopes.of(STUCK).unwrap()),
            ("cubic".to_owned(), envelopes.of("cubic").unwrap()),
        ]),
        threads: 2,
        #[cfg(feature = "specimens")]
        specimen: None,
    };
    let mut hunt = Hunt::new(HuntSettings {
        controller: STUCK.to_owned(),
        seed: 1,
        bounds: bounds(),
        known: KnownCases::default(),
        rivals: Vec::new(),
        at_once: 2,
    });
    let found = hunt.generation(&mut evaluator);
    let case = found.iter().find(|case| case.oracle == Oracle::Utilisation);
    let case = case.expect("24 evaluations and a window of two datagrams");
    assert!(case.ingredients.len() <= 2, "{}", case.cause());
    assert_eq!(case.seeds, 3, "it does not depend on chance");
    // The network is not to blame.
    let healthy = evaluator.evaluate(&[Trial {
        controller: "cubic".to_owned(),
        genome: case.genome.clone(),
        seed: case.seed,
    }]);
    assert!(healthy[0].missed().is_empty(), "{:?}", healthy[0].missed());
    let stuck = evaluator.evaluate(&[Trial {
        controller: STUCK.to_owned(),
        genome: case.genome.clone(),
        seed: case.seed,
    }]);
    assert_eq!(stuck[0], case.evaluation, "the case repeats to the bit");
}
