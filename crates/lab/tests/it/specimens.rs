//! Every specimen is found as its row says, and correct code in the same network with the same seed
//! is not (feature `specimens`).
#![allow(missing_docs, reason = "a test")]

use std::rc::Rc;

use clearway_lab::run::{RunObservers, run_case};
use clearway_lab::specimens::{SPECIMEN_CASES, Specimen, SpecimenCase, specimen_case};
use clearway_lab::stack::{ORIGIN, Observer, Role, SharedObserverFactory, StackSetup};
use clearway_trace::{Examination, Examiner, Recorder, Shared};

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

/// The diagnosis of the server's trace of the first flow.
fn diagnosed(specimen: Specimen, seed: u64) -> Examination {
    let mut case = specimen_case(specimen)
        .expect("a row")
        .case()
        .expect("a case");
    case.transport.specimen = Some(specimen);
    let examiner = Shared::new(Examiner::new(None));
    let sink = examiner.clone();
    let watcher = move |birth: &StackSetup| {
        let server = birth.role == Role::Server && birth.index / 2 == 0;
        server.then(|| Box::new(Recorder::since(ORIGIN, sink.clone())) as Box<dyn Observer>)
    };
    let observers = RunObservers {
        watcher: Some(SharedObserverFactory(Rc::new(watcher))),
        ..RunObservers::default()
    };
    let outcome = run_case(&case, seed, observers);
    let examiner = examiner.with(|it| core::mem::replace(it, Examiner::new(None)));
    examiner.finish_at(outcome.ended.as_nanos(), Vec::new())
}

#[test]
fn headline_of_idle_from_last_send_names_the_disease() {
    let stuck = (1..=12)
        .map(|seed| diagnosed(Specimen::IdleFromLastSend, seed))
        .find(|it| {
            it.diagnosis
                .headline
                .starts_with("Stuck: window at its floor")
        });
    let stuck = stuck.expect("one of twelve seeds shows it");
    let headline = &stuck.diagnosis.headline;
    let cause =
        " s with no loss; cause: an idle adjustment fires once a round trip while data waits.";
    assert!(headline.ends_with(cause), "{headline}");
    let first = &stuck.diagnosis.problems[0];
    // One for each of a thousand round trips.
    assert!(stuck.flips.len() > 500, "{}", stuck.flips.len());
    let shows = |text: &str| {
        first
            .evidence
            .iter()
            .any(|moment| moment.text.starts_with(text))
    };
    for event in [
        "idle adjustment: ",
        "nothing in flight",
        "sent packets ",
        "received an ACK ",
    ] {
        assert!(shows(event), "{event}: {:#?}", first.evidence);
    }
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
