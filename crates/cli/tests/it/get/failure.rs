//! Failures and their exit codes.

use std::fs;
use std::net::UdpSocket;

use clearway::DevelopmentIdentity;

use crate::get::command::{expect, said};
use crate::web::{Site, TempDir};

#[test]
fn each_failure_prints_one_line_and_has_its_own_exit_code() {
    let dir = TempDir::new();
    dir.old_file("a", b"x");
    let site = Site::start(dir.path(), &[]);
    let [there, missing] = ["a", "missing"].map(|name| format!("{}/{name}", site.url));
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = format!("https://{}/", mute.local_addr().unwrap());
    let other = DevelopmentIdentity::generate(["localhost"]).unwrap();
    fs::write(dir.join("other.pem"), other.certificate_pem()).unwrap();
    let other_pem = dir.text("other.pem");
    let fingerprint = other.fingerprint().to_string();
    let unwritable = dir.text("none/file");
    for (arguments, code, why) in [
        (&[&missing[..], "-k"][..], 9, "404 Not Found"),
        (&[&there, &missing, "-k"], 9, "1 of 2 failed; first: "),
        (&[&there, "--cacert", &other_pem], 7, "certificate"),
        (&[&there, "--fingerprint", &fingerprint], 7, "certificate"),
        (
            &[&silent, "-k", "--connect-timeout", "200ms"],
            4,
            "no answer within 200ms",
        ),
        (&[&silent, "-k", "-m", "200ms"], 6, "timed out after 200ms"),
        (
            &["https://no.such.host.invalid/", "-k"],
            3,
            "cannot resolve",
        ),
        (&["http://localhost/", "-k"], 2, "https"),
        (&["https://", "-k"], 2, "invalid URL"),
        (&["-k"], 2, "URL"),
        (&[&there, "-k", "-o", &unwritable], 8, "cannot write"),
        (
            &[&there, "-k", "-o", "/dev/full"],
            8,
            "cannot write /dev/full",
        ),
        (
            &[&there, "-k", "--cacert", "/none"],
            2,
            "cannot be used with",
        ),
        (&[&there, "--cacert", "/none"], 2, "cannot read /none"),
        (&[&there, &there, "-k", "-O"], 2, "two URLs"),
        (&[&site.url, "-k", "-O"], 2, "no file name"),
        (&[&there, "-k", "-T", "/none"], 2, "cannot read /none"),
    ] {
        let output = expect(code, arguments);
        let text = said(&output);
        assert!(text.contains(why), "{arguments:?}: {text}");
        let single = !text.contains("Usage") && !text.contains(" of 2 ");
        assert!(
            !single || text.lines().count() == 1,
            "{arguments:?}: {text}"
        );
    }
    let body = expect(0, &[&missing, "-k", "--no-fail"]).stdout;
    assert_eq!(body, b"404 Not Found\n");
    assert!(!dir.join("missing").exists());
}
