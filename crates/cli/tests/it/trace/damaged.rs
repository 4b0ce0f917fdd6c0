//! Files that are corrupt, truncated, empty or of another format.

use super::{HEADER, clearway, file, json, sequence, stderr, stuck};
use crate::web::TempDir;

#[test]
fn empty_and_foreign_files_get_a_message_with_the_offset() {
    let dir = TempDir::new();
    let cases: [(&str, &[u8], &str); 6] = [
        ("empty", b"", "the file is empty: found nothing in 0 bytes"),
        (
            "blank",
            b" \n\n",
            "the file is empty: found nothing in 3 bytes",
        ),
        (
            "text",
            b"hello",
            "not a qlog file: found the byte 0x68 at offset 0",
        ),
        (
            "html",
            b"\n<html>",
            "not a qlog file: found the byte 0x3c at offset 1",
        ),
        (
            "capture",
            b"\x0a\x0d\x0d\x0a\x1c\0\0\0",
            "the capture is truncated: the section header at offset 0 has 12 bytes, and only 8 are there",
        ),
        (
            "binary",
            &[0x89, b'P', b'N', b'G'],
            "not a qlog file: found the byte 0x89 at offset 0",
        ),
    ];
    for (name, content, expected) in cases {
        let trace = file(&dir, name, content);
        for command in [
            &["diagnose"][..],
            &["trace", "stat"],
            &["trace", "convert", "-o", "/dev/null"],
        ] {
            let output = clearway(&[command, &[trace.as_str()]].concat());
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{name}: {said}");
            assert!(
                said.starts_with(&format!("error: cannot read {trace}: ")),
                "{said}"
            );
            assert!(said.contains(expected), "{command:?}: {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
        }
    }
}

#[test]
fn truncated_trace_is_diagnosed_up_to_where_it_ends() {
    let dir = TempDir::new();
    let whole = stuck();
    let cut = &whole[..whole.len() - 30];
    let last = cut.rfind('\u{1e}').unwrap();
    let trace = file(&dir, "cut.sqlog", cut);
    let output = clearway(&["diagnose", &trace, "--json"]);
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let headline = json(&output)["traces"][0]["headline"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        headline.starts_with("Stuck: window at its floor"),
        "{headline}"
    );
    let offset = json(&output)["unreadable_offsets"][0].as_u64().unwrap();
    assert!(offset.abs_diff(last as u64) <= 1, "{offset} {last}");
    assert!(
        said.contains(&format!(
            "1 record could not be read, the first at byte {offset}"
        )),
        "{said}"
    );
    let output = clearway(&["trace", "validate", &trace]);
    assert_eq!(output.status.code(), Some(1));
    let line = String::from_utf8(output.stdout).unwrap();
    let expected = format!("{trace}: 1 records are not JSON or are truncated, at byte {offset}\n");
    assert_eq!(line, expected);
}

#[test]
fn corrupt_records_are_skipped_and_their_offset_is_named() {
    let dir = TempDir::new();
    let mut text = stuck().into_bytes();
    let middle = text.len() / 2;
    text[middle..middle + 40].fill(b'{');
    let trace = file(&dir, "corrupt.sqlog", &text);
    let output = clearway(&["diagnose", &trace]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("could not be read, the first at byte "),
        "{}",
        stderr(&output)
    );
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("Stuck: "));
}

#[test]
fn truncated_compressed_trace_shows_what_was_decompressed() {
    let dir = TempDir::new();
    let plain = file(&dir, "plain.sqlog", stuck());
    for ending in ["gz", "zst"] {
        let packed = dir.text(&format!("packed.sqlog.{ending}"));
        let output = clearway(&["trace", "convert", &plain, "-o", &packed]);
        assert!(output.status.success(), "{}", stderr(&output));
        let bytes = std::fs::read(&packed).unwrap();
        let cut = file(
            &dir,
            &format!("cut.sqlog.{ending}"),
            &bytes[..bytes.len() - 12],
        );
        let output = clearway(&["diagnose", &cut, "--json"]);
        let said = stderr(&output);
        if output.status.success() {
            assert!(json(&output)["events"].as_u64().unwrap() > 0);
            assert!(said.contains("reading failed after "), "{said}");
        } else {
            // One compressed block: nothing can be shown.
            assert!(
                said.contains("cannot read ") || said.contains("no qlog events"),
                "{said}"
            );
        }
    }
}

#[test]
fn one_bad_file_among_several_does_not_hide_the_others() {
    let dir = TempDir::new();
    let good = file(&dir, "good.sqlog", stuck());
    let bad = file(&dir, "bad.sqlog", "nonsense");
    let none = file(&dir, "none.sqlog", sequence(&[HEADER.to_owned()]));
    let output = clearway(&["diagnose", &bad, &good, &none]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stdout).contains("Stuck: "));
    let said = stderr(&output);
    assert!(
        said.contains("error: 2 of 3 files could not be read; first: cannot read "),
        "{said}"
    );
    assert!(said.contains("no qlog events in "), "{said}");
}
