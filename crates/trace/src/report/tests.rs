use super::*;
use crate::detect::healthy_transfer as bulk;
use crate::detect::{Detector, Severity};
use crate::series::Track;

fn report(title: &str, findings: &[Finding]) -> String {
    let events = bulk();
    let mut series = Series::of(&events);
    for at in 0..100 {
        series.push(Track::Queue, at * 10_000_000, at * 1_000);
    }
    html(&ReportInput {
        title,
        facts: &[("controller".into(), "cubic & <co>".into())],
        series: &series,
        breakdown: &Breakdown::of(&events),
        findings,
    })
}

#[test]
fn report_page_has_no_external_references() {
    let page = report("a transfer", &[]);
    let lower = page.to_ascii_lowercase();
    for outside in [
        "http:",
        "https:",
        "//",
        " src=",
        "href=",
        "url(",
        "@import",
        "<link",
        "<img",
        "<iframe",
        "fetch(",
        "xmlhttprequest",
        "import(",
    ] {
        let at = lower.find(outside);
        let around = at.map(|at| &page[at.saturating_sub(40)..(at + 60).min(page.len())]);
        // Comments of the script are no references.
        let comment = around.is_some_and(|text| outside == "//" && text.contains("// Shows"));
        assert!(at.is_none() || comment, "{outside}: {around:?}");
    }
}

#[test]
fn report_page_contains_all_sections() {
    let finding = Finding {
        detector: Detector::FloorPinned,
        t0: 100_000_000,
        t1: 900_000_000,
        severity: Severity::Error,
        evidence: vec![("window".into(), "2700".into())],
    };
    let page = report("x", &[finding]);
    assert_eq!(page.matches("<svg").count(), 3, "window, RTT, queue");
    assert!(page.contains("class=\"diagnosis error\">Problem found"));
    assert!(page.contains("<td>floor_pinned</td><td>0.100 s</td>"));
    assert!(page.contains("class=\"part network\""));
    assert!(page.contains("class=loss"), "the loss is drawn");
    assert_eq!(page.matches("class=\"band error\"").count(), 3);
    for (open, close) in [
        ("<svg", "</svg>"),
        ("<figure", "</figure>"),
        ("<table", "</table>"),
    ] {
        assert_eq!(page.matches(open).count(), page.matches(close).count());
    }
}

#[test]
fn text_from_the_trace_is_escaped() {
    let page = report("<script>alert(1)</script>", &[]);
    assert!(!page.contains("<script>alert"));
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(page.contains("cubic &amp; &lt;co&gt;"));
}

#[test]
fn empty_trace_produces_a_page() {
    let page = html(&ReportInput {
        title: "nothing",
        facts: &[],
        series: &Series::new(),
        breakdown: &Breakdown::new(),
        findings: &[],
    });
    assert!(!page.contains("<svg"));
    assert!(page.contains("The trace does not record what limited the connection."));
}
