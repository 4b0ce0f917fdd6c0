//! `clearway report`.

use std::fs;

use super::{clearway, file, healthy, stderr, stuck};
use crate::web::TempDir;

#[test]
fn report_is_one_page_with_every_trace() {
    let dir = TempDir::new();
    let traces = [
        file(&dir, "a.sqlog", stuck()),
        file(&dir, "b.sqlog", healthy()),
    ];
    let page = dir.text("page.html");
    let output = clearway(&["report", &traces[0], &traces[1], "-o", &page]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains(&format!("report: wrote {page}")));
    let text = fs::read_to_string(&page).unwrap();
    assert!(text.starts_with("<!doctype html>") && text.trim_end().ends_with("</html>"));
    assert!(text.contains("Stuck: window at its floor for 1.0 s with no loss; cause: "));
    assert!(text.contains("No problems found. "));
    assert!(text.len() < 1_000_000, "{}", text.len());
    for outside in ["http:", "https:", " src=", "href="] {
        assert!(!text.contains(outside), "{outside}");
    }
}

#[test]
fn report_of_an_unreadable_trace_or_to_a_full_disk_fails() {
    let dir = TempDir::new();
    let page = dir.text("page.html");
    let bad = file(&dir, "bad.sqlog", "nonsense");
    let output = clearway(&["report", &bad, "-o", &page]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!fs::exists(&page).unwrap());
    let good = file(&dir, "good.sqlog", stuck());
    let output = clearway(&["report", &good, "-o", "/dev/full"]);
    assert_eq!(output.status.code(), Some(8), "{}", stderr(&output));
}
