//! Downloading from a port where nobody listens.

use std::net::{SocketAddr, UdpSocket};

use crate::get::command::{said, start};

fn url(address: SocketAddr) -> String {
    format!("https://{address}/")
}

/// Both may wait for a minute (`handshake_timeout`), and the one for the silent server began
/// earlier: only what the host says about the closed port lets the other end before it.
#[test]
fn closed_port_ends_the_download_while_a_silent_server_is_still_waited_for() {
    const WAIT: [&str; 3] = ["-k", "--connect-timeout", "1000s"];
    let mute = UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = url(mute.local_addr().unwrap());
    let mut waiting = start(&[&WAIT[..], &[&silent]].concat());
    let closed = UdpSocket::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let closed = url(closed.unwrap());
    let output = start(&[&WAIT[..], &[&closed]].concat())
        .wait_with_output()
        .unwrap();
    let still_waiting = waiting.try_wait().unwrap().is_none();
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    let text = said(&output);
    assert!(still_waiting, "{text}");
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert!(
        text.starts_with(&format!("error: {closed}: cannot connect to "))
            && text.contains("the handshake did not complete in time"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "{text}");
}
