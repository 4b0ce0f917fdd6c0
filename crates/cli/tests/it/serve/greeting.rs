//! What a server prints when it starts.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Command, Stdio};

use clearway::DevelopmentIdentity;
use rustix::process::Signal;

use crate::web::{TempDir, send};

/// Starts a server, passes what it printed to `check`, and returns it.
fn greeting(options: &[&str], listen: &str) -> (String, String, std::process::Child) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["serve", "--listen", listen])
        .args(options)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("clearway get") {
        if stderr.read_line(&mut text).unwrap() == 0 {
            panic!("no line to paste: {line}{text}");
        }
    }
    // A log that nobody reads any more.
    std::thread::spawn(move || stderr.read_to_end(&mut Vec::new()));
    (line, text, child)
}

/// The command line that is printed, run as it is.
fn run_pasted(text: &str) -> std::process::Output {
    let line = text.lines().find(|line| line.contains("clearway get"));
    let (_, command) = line.unwrap().split_once("clearway ").unwrap();
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(command.split_whitespace())
        .output()
        .unwrap()
}

#[test]
fn server_prints_its_url_and_a_command_that_fetches_it() {
    let dir = TempDir::new();
    dir.old_file("index.html", b"the index");
    let here = dir.path().to_str().unwrap();
    for listen in ["127.0.0.1:0", "[::]:0", ":0", "0.0.0.0:0"] {
        let (line, text, mut child) = greeting(&[here], listen);
        assert!(line.starts_with("listening on "), "{line}");
        let port = line.trim().rsplit(':').next().unwrap();
        assert_ne!(port, "0");
        let host = if listen.starts_with("127") {
            "127.0.0.1"
        } else {
            "localhost"
        };
        assert!(
            text.contains(&format!("https://{host}:{port}/")),
            "{listen}: {text}"
        );
        let output = run_pasted(&text);
        assert_eq!(output.stdout, b"the index", "{listen}: {text}");
        send(&child, Signal::TERM);
        child.wait().unwrap();
    }
}

#[test]
fn server_with_a_certificate_of_ones_own_prints_no_fingerprint() {
    let (dir, keys) = (TempDir::new(), TempDir::new());
    let identity = DevelopmentIdentity::generate(["files.example.org"]).unwrap();
    std::fs::write(keys.join("cert.pem"), identity.certificate_pem()).unwrap();
    std::fs::write(keys.join("key.pem"), identity.key_pem()).unwrap();
    let (cert, key) = (keys.text("cert.pem"), keys.text("key.pem"));
    let here = dir.path().to_str().unwrap();
    let options = [here, "--cert", &cert, "--key", &key];
    let (_, text, mut child) = greeting(&options, "127.0.0.1:0");
    assert!(text.contains("clearway get https://"), "{text}");
    assert!(!text.contains("--fingerprint"), "{text}");
    send(&child, Signal::TERM);
    child.wait().unwrap();
}
