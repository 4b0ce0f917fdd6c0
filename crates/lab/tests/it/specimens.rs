//! Every specimen is found as its row says, and correct code in the same network with the same seed
//! is not (feature `specimens`).
#![allow(missing_docs, reason = "a test")]

use clearway_lab::specimens::{SPECIMEN_CASES, Specimen, SpecimenCase, specimen_case};

/// Whether a run shows the symptom, and its findings.
fn told(row: &SpecimenCase, seed: u64, with_bug: bool) -> (bool, String) {
    let run = row.run(seed, with_bug).expect("a network and a controller");
    let mut found: Vec<&str> = run
        .findings
        .iter()
        .map(|(_, finding)| finding.detector.name())
        .collect();
    found.sort_unstable();
    found.dedup();
    let words = format!("{}{}", found.join(" "), run.violations.join("; "));
    (row.shows(&run), words)
}

#[test]
fn every_specimen_is_detected_and_correct_code_is_not() {
    let mut wrong = Vec::new();
    for row in SPECIMEN_CASES {
        let mut with_bug = (false, String::new());
        let mut seed = 0;
        while !with_bug.0 && seed < row.seeds {
            seed += 1;
            with_bug = told(row, seed, true);
        }
        let without = told(row, seed, false);
        let row = format!(
            "{} in {}, {} seed {seed}: with it [{}], without [{}]",
            row.specimen, row.scenario, row.controller, with_bug.1, without.1
        );
        println!("{row}");
        if !with_bug.0 || without.0 {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_specimen_has_one_row_and_a_network() {
    let order: Vec<Specimen> = SPECIMEN_CASES.iter().map(|row| row.specimen).collect();
    assert_eq!(order, Specimen::ALL);
    for specimen in Specimen::ALL {
        let row = specimen_case(*specimen).expect("a row");
        let case = row.case().expect("a case");
        assert_eq!(case.controller, row.controller);
    }
}

#[test]
fn busy_loop_error_names_time_and_host() {
    let spin = specimen_case(Specimen::PacerSpin).expect("a row");
    let run = spin.run(1, true).expect("a network and a controller");
    let [(flow, finding)] = &run.findings[..] else {
        panic!("one finding, not {:?}", run.findings);
    };
    assert_eq!((*flow, finding.detector), (0, spin.detector));
    assert_eq!(finding.t0, run.ended.as_nanos());
    assert!(finding.t0 > 0);
    let host = ("host".to_owned(), "server".to_owned());
    assert!(finding.evidence.contains(&host), "{:?}", finding.evidence);
}
