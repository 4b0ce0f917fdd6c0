//! Every case has to see what is wrong with a server that has its defect.

use std::time::Duration;

use clearway_prober::testing::{Defect, DefectiveServer};
use clearway_prober::{Case, CaseResult, Probe, Report, Trust, Verdict, builtin_cases};

/// Enough on loopback; what a deaf server owes never comes.
const PATIENCE: Duration = Duration::from_millis(300);

async fn probe(defect: Defect, cases: &[Case]) -> Report {
    let report = probe_at_once(defect, cases, 24).await;
    let unsteady = |name: &str| {
        let named = |result: &&CaseResult| result.name == name;
        let result = report.results.iter().find(named);
        result.is_some_and(|result| result.verdict == Verdict::Unsteady)
    };
    // On a busy machine 23 others can make a server too slow for one.
    let again: Vec<_> = (cases.iter().filter(|case| unsteady(&case.name)))
        .cloned()
        .collect();
    if again.is_empty() {
        return report;
    }
    let Report { mut results, .. } = probe_at_once(defect, &again, 1).await;
    let steady = |result: &CaseResult| result.verdict != Verdict::Unsteady;
    results.extend(report.results.iter().filter(|it| steady(it)).cloned());
    Report { results, ..report }
}

async fn probe_at_once(defect: Defect, cases: &[Case], parallel: usize) -> Report {
    let server = DefectiveServer::start(defect).await.unwrap();
    let probe = Probe::new(&server.url(), Trust::Any).unwrap();
    let probe = probe
        .patience(PATIENCE)
        .connect_timeout(Duration::from_secs(30))
        .parallel(parallel);
    probe.run(cases, |_| {}).await.unwrap()
}

/// Checks that every case has found something.
fn check(report: &Report) {
    let found = |verdict| matches!(verdict, Verdict::Deviation | Verdict::Unadvised);
    let blind: Vec<_> = report
        .results
        .iter()
        .filter(|result| !found(result.verdict))
        .collect();
    assert!(
        blind.is_empty(),
        "{} of {}: {blind:#?}",
        blind.len(),
        report.results.len()
    );
}

#[tokio::test]
async fn every_case_that_expects_an_answer_deviates_with_a_server_that_ignores_everything() {
    let cases: Vec<_> = builtin_cases()
        .into_iter()
        .filter(Case::expects_reaction)
        .collect();
    assert!(cases.len() > 150, "{}", cases.len());
    check(&probe(Defect::Deaf, &cases).await);
}

#[tokio::test]
async fn every_case_deviates_with_a_server_that_answers_with_the_wrong_code() {
    let cases: Vec<_> = builtin_cases();
    let cases: Vec<_> = cases.into_iter().filter(|case| !case.intrusive).collect();
    check(&probe(Defect::WrongAnswer, &cases).await);
}

#[tokio::test]
async fn every_intrusive_case_deviates_with_a_server_that_it_ends() {
    let cases: Vec<_> = builtin_cases();
    for case in cases.into_iter().filter(|case| case.intrusive) {
        let defect = match case.name.as_str() {
            "amplification-limit" => Defect::Deaf,
            _ => Defect::Dies,
        };
        let server = DefectiveServer::start(defect).await.unwrap();
        let probe = Probe::new(&server.url(), Trust::Any).unwrap();
        let probe = probe
            .patience(PATIENCE)
            .connect_timeout(Duration::from_secs(2));
        let result = probe.run_case(&case).await.unwrap();
        assert_eq!(result.verdict, Verdict::Deviation, "{result:#?}");
    }
}
