//! `clearway doctor tune`: advice that changes nothing.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::json;
use crate::doctor::host::unprivileged;
use crate::doctor::{expect, stdout};
use crate::serve::failing_calls::{Call, with_failing};

/// The settings that advice is about, and their values.
fn settings() -> Vec<(PathBuf, String)> {
    let mut folders = vec![PathBuf::from("/proc/sys/net")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let counts = path.ends_with("nf_conntrack_count") || path.ends_with("random_seed");
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(value) = fs::read_to_string(&path)
                && !counts
            {
                found.push((path, value));
            }
        }
    }
    found.sort();
    assert!(
        found
            .iter()
            .any(|(path, _)| path == Path::new("/proc/sys/net/core/rmem_max"))
    );
    found
}

#[test]
fn tune_lists_settings_with_commands_and_changes_none() {
    let before = settings();
    let report = json(&expect(0, &["tune", "--json"]));
    assert!(settings() == before);
    let findings = report.as_array().unwrap();
    assert!(findings.len() > 3, "{report}");
    for finding in findings {
        assert!(
            finding["subject"].is_string() && finding["text"].is_string(),
            "{finding}"
        );
        match finding["status"].as_str().unwrap() {
            "limits" => assert!(finding["command"].is_string(), "{finding}"),
            "fine" => assert_eq!(finding["command"], Value::Null, "{finding}"),
            _ => {}
        }
    }
    let text = stdout(&expect(0, &["tune"]));
    for finding in findings {
        assert!(
            text.contains(finding["subject"].as_str().unwrap()),
            "{text}"
        );
        if let Some(command) = finding["command"].as_str() {
            assert!(text.contains(command), "{text}");
        }
    }
    for words in [
        "rmem_max",
        "wmem_max",
        "netdev_max_backlog",
        "GSO",
        "connection tracking",
    ] {
        let has = |finding: &Value| finding["subject"].as_str().unwrap().contains(words);
        assert!(findings.iter().any(has), "{words}: {report}");
    }
}

/// Neither rights nor files that can be written are needed.
#[test]
fn tune_says_the_same_without_rights_and_without_writing_to_a_file() {
    let all = stdout(&expect(0, &["tune"]));
    let read_only = with_failing(&[Call::OpenToWrite], || expect(0, &["tune"]));
    assert_eq!(stdout(&read_only), all);
    let largest = |text: &str| {
        let line = text.lines().find(|line| line.contains("net.core.rmem_max"));
        line.map(str::to_owned)
    };
    let text = stdout(&unprivileged(|| expect(0, &["tune"])));
    assert_eq!(largest(&text), largest(&all), "{text}");
}
