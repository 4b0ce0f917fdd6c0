//! Startup and shutdown.

use std::fs;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{Shutdown, getsockname, shutdown};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, Signal, pidfd_getfd, pidfd_open};

use crate::get::command::expect;
use crate::web::{Site, TempDir, pattern};

/// A `get` whose output nobody reads yet: its transfer is under way for as long.
fn stuck_download(site: &Site) -> std::process::Child {
    Command::new(env!("CARGO_BIN_EXE_clearway"))
        .args(["get", &format!("{}/large", site.url), "-k", "-s"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn requests_in_progress_finish_after_a_signal() {
    let dir = TempDir::new();
    let content = pattern(30_000_000);
    dir.old_file("large", &content);
    let mut site = Site::start(dir.path(), &["--drain", "60s"]);
    let mut child = stuck_download(&site);
    let mut stdout = child.stdout.take().unwrap();
    let mut body = vec![0; 1];
    stdout.read_exact(&mut body).unwrap();
    site.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(100));
    assert!(site.child.try_wait().unwrap().is_none(), "it waits");
    stdout.read_to_end(&mut body).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(body == content);
    assert!(site.child.wait().unwrap().success());
}

#[test]
fn second_signal_ends_the_server_at_once() {
    let dir = TempDir::new();
    dir.old_file("large", &pattern(30_000_000));
    let mut site = Site::start(dir.path(), &["--drain", "60s"]);
    let mut child = stuck_download(&site);
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    site.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(100));
    site.signal(Signal::TERM);
    assert_eq!(site.child.wait().unwrap().code(), Some(130));
    // The client is notified, and does not take half of the file for the whole.
    stdout.read_to_end(&mut Vec::new()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(10), "{said}");
}

#[test]
fn unservable_directory_is_named_in_the_error() {
    let dir = TempDir::new();
    fs::write(dir.join("file"), "x").unwrap();
    let here = dir.path().to_str().unwrap();
    let (missing, file) = (dir.text("missing"), dir.text("file"));
    for (arguments, code, why) in [
        (&[&missing[..]][..], 2, "cannot serve"),
        (&[&file], 2, "cannot serve"),
        (&[here, "--cert", &file, "--key", &file], 2, "file with"),
        (&[here, "--listen", "nonsense"], 2, "expected an IP address"),
        (&[here, "--listen", "192.0.2.1:1"], 3, "cannot listen on"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .arg("serve")
            .args(arguments)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
}

/// The server's own UDP socket, by another descriptor (pidfd_getfd(2)).
fn socket_of(site: &Site) -> OwnedFd {
    let pid = Pid::from_raw(i32::try_from(site.child.id()).unwrap()).unwrap();
    let process = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let port: u16 = site.url.rsplit(':').next().unwrap().parse().unwrap();
    let is_it = |socket: &OwnedFd| {
        let address = getsockname(socket).ok();
        let address = address.and_then(|address| SocketAddr::try_from(address).ok());
        address.is_some_and(|address| address.port() == port)
    };
    let names = fs::read_dir(format!("/proc/{}/fd", site.child.id())).unwrap();
    let numbers = names.map(|name| name.unwrap().file_name().to_str().unwrap().parse().unwrap());
    numbers
        .filter_map(|number| pidfd_getfd(&process, number, PidfdGetfdFlags::empty()).ok())
        .find(is_it)
        .expect("descriptors of a child of ours can be copied (pidfd_getfd)")
}

#[test]
fn broken_socket_ends_the_server_with_message_and_exit_code() {
    let (dir, files) = (TempDir::new(), TempDir::new());
    dir.old_file("a", b"text");
    let log = files.join("log");
    let mut site = Site::start_logging(&log, dir.path(), &[]);
    let url = format!("{}/a", site.url);
    expect(0, &["-k", &url]);
    // From now on nothing can be sent (EPIPE), although it says that it cannot be done
    // to a socket without a peer (inet_shutdown() of Linux).
    let done = shutdown(socket_of(&site), Shutdown::Write);
    assert!(matches!(done, Ok(()) | Err(Errno::NOTCONN)), "{done:?}");
    expect(4, &["-k", "--connect-timeout", "500ms", &url]);
    let mut ended = None;
    for _ in 0..1_200 {
        ended = site.child.try_wait().unwrap();
        if ended.is_some() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(ended.expect("it ends").code(), Some(11));
    let said = fs::read_to_string(log).unwrap();
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("error: server failed: the endpoint's UDP socket failed: "),
        "{said}"
    );
    assert!(last.contains("Broken pipe"), "{said}");
}
