//! The verdict: text, JSON, a page, and the exit code.

use std::fs;

use serde_json::Value;

use crate::common::{json, stderr};
use crate::doctor::host::{Namespace, unprivileged, with_losing_socket};
use crate::doctor::{doctor, expect, stdout};
use crate::web::{Site, TempDir};

const SHORT: [&str; 2] = ["--interval", "500ms"];

/// What scripts may rely on.
fn check_schema(report: &Value) {
    for name in ["verdict", "advice", "notes", "path", "sockets", "missing"] {
        assert!(report[name].is_array(), "{name}: {report}");
    }
    assert_eq!(report["verdict"].as_array().unwrap().len(), 2, "{report}");
    for name in ["health", "kernel", "namespace"] {
        assert!(report[name].is_string(), "{name}: {report}");
    }
    assert!(report["seconds"].as_f64().unwrap() > 0.1);
    let path = report["path"].as_array().unwrap();
    assert_eq!(path.len(), 14, "one for each stage");
    for stage in path {
        assert!(stage["stage"].is_string() && stage["state"].is_string());
        assert!(stage["lost"].is_u64() && stage["lost_per_second"].is_number());
        for counter in stage["counters"].as_array().unwrap() {
            assert!(counter["name"].is_string() && counter["total"].is_u64());
        }
    }
}

#[test]
fn quiet_namespace_is_healthy_and_exits_with_0() {
    let Some(namespace) = Namespace::new() else {
        return;
    };
    let inside = namespace.run(|| expect(0, &[&SHORT[..], &["--json"]].concat()));
    let by_name = [&SHORT[..], &["--json", "--netns", &namespace.0]].concat();
    for output in [inside, expect(0, &by_name)] {
        let report = json(&output);
        check_schema(&report);
        assert_eq!(report["health"], "healthy");
        assert_eq!(report["stage"], Value::Null);
        assert_eq!(report["culprit"], Value::Null);
        assert_eq!(report["missing"].as_array().unwrap().len(), 0, "{report}");
    }
    let text = stdout(&namespace.run(|| expect(0, &SHORT)));
    assert!(
        text.starts_with("HEALTHY: No UDP datagram was lost"),
        "{text}"
    );
}

#[test]
fn full_receive_buffer_is_named_and_exits_with_1() {
    let Some(namespace) = Namespace::new() else {
        return;
    };
    let (port, output, text) = namespace.run(|| {
        with_losing_socket(|port| {
            let output = expect(1, &[&SHORT[..], &["--json"]].concat());
            (port, output, stdout(&expect(1, &SHORT)))
        })
    });
    let report = json(&output);
    check_schema(&report);
    assert_eq!(report["health"], "losing");
    assert_eq!(report["stage"], "receive_buffer");
    let culprit = &report["culprit"];
    assert_eq!(culprit["socket"]["local"], format!("127.0.0.1:{port}"));
    assert_eq!(culprit["process"]["pid"], std::process::id());
    assert!(text.starts_with("LOSING: "), "{text}");
    for words in [
        &format!("process {}", std::process::id())[..],
        &format!("127.0.0.1:{port}"),
        "its receive buffer is full all the time",
        "LOSING",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn port_and_pid_limit_the_verdict_to_their_sockets() {
    let Some(namespace) = Namespace::new() else {
        return;
    };
    let dir = TempDir::new();
    let site = namespace.run(|| Site::start(dir.path(), &[]));
    let healthy = site.address().port().to_string();
    let pid = site.child.id().to_string();
    namespace.run(|| {
        with_losing_socket(|port| {
            let losing = port.to_string();
            expect(1, &[&SHORT[..], &["--port", &losing]].concat());
            expect(0, &[&SHORT[..], &["--port", &healthy]].concat());
        });
    });
    namespace.run(|| {
        with_losing_socket(|_| {
            let output = expect(0, &[&SHORT[..], &["--pid", &pid, "--json"]].concat());
            check_schema(&json(&output));
        });
    });
    // From outside, in the namespace of the process.
    expect(0, &[&SHORT[..], &["--pid", &pid]].concat());
    let none = expect(2, &[&SHORT[..], &["--pid", &pid, "--port", "1"]].concat());
    assert!(stderr(&none).contains("port 1"), "{}", stderr(&none));
}

#[test]
fn unprivileged_run_says_what_root_would_add() {
    let Some(namespace) = Namespace::new() else {
        return;
    };
    let (output, text) = namespace.run(|| {
        unprivileged(|| {
            let output = expect(0, &[&SHORT[..], &["--json"]].concat());
            (output, stdout(&expect(0, &SHORT)))
        })
    });
    let report = json(&output);
    check_schema(&report);
    let missing = report["missing"].as_array().unwrap();
    assert!(!missing.is_empty());
    for place in missing {
        assert!(place["what"].is_string() && place["why"].is_string());
        assert!(place["needs"].as_str().unwrap().contains("root"), "{place}");
    }
    let (_, not_seen) = text.split_once("\nNot seen:\n").unwrap();
    assert!(not_seen.contains("firewall"), "{text}");
    assert!(not_seen.contains("root, or the"), "{text}");
    // Nothing can be seen of a namespace that may not be entered.
    let refused = unprivileged(|| expect(2, &[&SHORT[..], &["--netns", &namespace.0]].concat()));
    let why = stderr(&refused);
    assert!(why.contains("run as root, or with the capability"), "{why}");
    assert!(refused.stdout.is_empty());
}

#[test]
fn report_is_a_page_that_needs_nothing_else() {
    let Some(namespace) = Namespace::new() else {
        return;
    };
    let dir = TempDir::new();
    let page = dir.text("report.html");
    let arguments = [&SHORT[..], &["--report", &page]].concat();
    let output = namespace.run(|| with_losing_socket(|_| expect(1, &arguments)));
    assert!(stdout(&output).starts_with("LOSING: "));
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.to_ascii_lowercase().starts_with("<!doctype html>"));
    assert!(html.trim_end().ends_with("</html>"));
    assert!(
        html.contains("<svg") && html.contains("<polyline"),
        "charts"
    );
    assert!(html.contains("LOSING"));
    // What is loaded from elsewhere would be named by one of these.
    for reference in ["src=", "href=", "url(", "@import", "<script src", "<link"] {
        assert!(!html.contains(reference), "{reference}");
    }
    // It is not replaced by the next one.
    let again = doctor(&arguments);
    assert_eq!(again.status.code(), Some(2));
    assert!(stderr(&again).contains(&format!("cannot create {page}: File exists")));
    assert_eq!(fs::read_to_string(&page).unwrap(), html);
}
