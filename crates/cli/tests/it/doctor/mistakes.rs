//! Arguments that cannot be used.

use std::fs;
use std::net::UdpSocket;

use crate::common::stderr;
use crate::doctor::{doctor, expect};
use crate::web::TempDir;

#[test]
fn invalid_arguments_are_named_and_exit_with_2() {
    let free = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let free = free.unwrap().port().to_string();
    let none = format!("no program has a UDP socket on port {free}");
    // Above the largest number of a process (proc_sys_kernel(5), pid_max).
    let nobody = "4194305";
    for (arguments, why) in [
        (
            &["--interval", "1ms"][..],
            "must be between 200ms and 3600s",
        ),
        (&["--interval", "3601s"], "must be between 200ms and 3600s"),
        (&["--interval", "soon"], "soon"),
        (&["--port", "0"], "0 is not in 1..=65535"),
        (&["--port", "65536"], "65536 is not in 1..=65535"),
        (&["--port", &free, "--interval", "200ms"], &none),
        (&["--pid", nobody], "namespace of process 4194305"),
        (&["--pid", "x"], "invalid value 'x'"),
        (&["--netns", "no such"], "namespace \"no such\""),
        (
            &["--report", "/no/such/report.html"],
            "cannot create /no/such/report.html",
        ),
        (&["--watch"], "--watch needs a terminal; use --json"),
        (&["--watch", "--json"], "cannot be used with"),
        (&["--json", "tune"], "cannot be used with"),
        (&["path"], "<FILE>..."),
        (&["path", "/no/such"], "cannot read /no/such"),
        (&["path", "/"], "cannot read /"),
    ] {
        let mut output = doctor(arguments);
        // Servers that other tests kill leave datagrams for closed ports on this host, which come first.
        for _ in 0..50 {
            if output.status.code() != Some(1) {
                break;
            }
            output = doctor(arguments);
        }
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        let text = stderr(&output);
        assert!(text.starts_with("error: "), "{arguments:?}: {text}");
        assert!(text.contains(why), "{arguments:?}: {text}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn invalid_line_of_a_file_is_named() {
    let dir = TempDir::new();
    let good = r#"{"second":1,"hop":"client","connection":"a","packets":1,"bytes":1}"#;
    for (line, why) in [
        (r#"{"second":1}"#, "line 2: missing field `hop`"),
        ("text", "line 2: expected"),
        (
            &good.replace(":1,\"hop", ":-1,\"hop"),
            "line 2: invalid value",
        ),
        (
            &good.replace("}", ",\"direction\":\"left\"}"),
            "line 2: unknown variant `left`",
        ),
    ] {
        let file = dir.text("samples");
        fs::write(&file, format!("{good}\n{line}\n")).unwrap();
        let text = stderr(&expect(2, &["path", &file]));
        assert!(text.contains(&format!("{file}, {why}")), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
    let file = dir.text("bytes");
    fs::write(&file, b"\xff\xfe").unwrap();
    let text = stderr(&expect(2, &["path", &file]));
    assert!(text.contains(&format!("cannot read {file}")), "{text}");
}
