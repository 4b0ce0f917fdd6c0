//! Every specimen is given away by what its row says, and the right code in the
//! same network with the same seed is not (feature `specimens`).
#![allow(missing_docs, reason = "a test")]

use clearway_lab::specimens::{EXHIBITS, Exhibit, Specimen, Symptom, exhibit};

/// What a run with the bug, or without, was found to have.
fn told(exhibit: &Exhibit, with_bug: bool) -> (bool, String) {
    let run = exhibit.run(with_bug).expect("a network and a controller");
    let mut found: Vec<&str> = run
        .findings
        .iter()
        .map(|(_, finding)| finding.detector.name())
        .collect();
    found.sort_unstable();
    found.dedup();
    let figure = exhibit.symptom.figure(&run);
    let figure = figure.map_or_else(String::new, |value| format!(", figure {value:.4}"));
    let words = format!("{}{figure}{}", found.join(" "), run.violations.join("; "));
    (exhibit.symptom.shows(&run), words)
}

#[test]
#[cfg_attr(debug_assertions, ignore = "minutes without optimisation")]
fn every_specimen_is_given_away_and_the_right_code_is_not() {
    let mut wrong = Vec::new();
    for exhibit in EXHIBITS {
        let (shown, with_bug) = told(exhibit, true);
        let (blamed, without) = told(exhibit, false);
        let row = format!(
            "{} in {}, {} seed {}: with it [{with_bug}], without [{without}]",
            exhibit.specimen, exhibit.scenario, exhibit.controller, exhibit.seed
        );
        println!("{row}");
        if !shown || blamed {
            wrong.push(row);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn each_has_one_row_and_a_network() {
    let order: Vec<Specimen> = EXHIBITS.iter().map(|exhibit| exhibit.specimen).collect();
    assert_eq!(order, Specimen::ALL);
    for specimen in Specimen::ALL {
        let exhibit = exhibit(*specimen).expect("a row");
        let case = exhibit.case().expect("a case");
        assert_eq!(case.controller, exhibit.controller);
    }
}

#[test]
fn what_no_detector_shows_says_why() {
    for exhibit in EXHIBITS {
        match exhibit.symptom {
            Symptom::Finding(_) => {}
            Symptom::Figure { why, .. } | Symptom::Violation { why, .. } => {
                assert!(why.len() > 40, "{}: {why:?}", exhibit.specimen);
            }
        }
    }
}
