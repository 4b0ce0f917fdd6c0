//! The TLS key log.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::web::{Site, TempDir};

#[test]
fn keylog_option_writes_tls_secrets() {
    let dir = TempDir::new();
    dir.old_file("a", b"x");
    let site = Site::start(dir.path(), &[]);
    let log = dir.text("keys");
    for (options, logged) in [(&["-k"][..], false), (&["-k", "--keylog"], true)] {
        let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["get", &format!("{}/a", site.url)])
            .args(options)
            .env("SSLKEYLOGFILE", &log)
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = fs::read_to_string(&log).unwrap_or_default();
        assert_eq!(text.contains("CLIENT_TRAFFIC_SECRET_0 "), logged);
    }
    // Whoever can read it can read what was sent.
    let mode = fs::metadata(&log).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "{mode:o}");
}

#[test]
fn unwritable_keylog_is_an_error() {
    for (file, code, why) in [
        ("", 2, "SSLKEYLOGFILE is not set"),
        ("/none/keys", 8, "cannot write /none/keys"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["get", "-k", "--keylog", "https://localhost:1/"])
            .env("SSLKEYLOGFILE", file)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains(why), "{text}");
    }
}
