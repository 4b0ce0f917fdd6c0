//! `clearway serve` under floods of forged ICMP errors.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use clearway_udp::testing::{Flood, Forger, IcmpMessage};

use crate::web::{Site, TempDir, pattern};

/// Some hundred trains.
const SIZE: usize = 5_000_000;

/// Downloads while each of them floods the server, one after another, and all at once.
fn floods() -> Vec<Vec<IcmpMessage>> {
    let all = IcmpMessage::all(Ipv4Addr::LOCALHOST.into());
    let mut floods = vec![all.clone()];
    floods.extend(all.into_iter().map(|message| vec![message]));
    floods
}

/// A flood of errors that quote the server's socket; `None`, with a word on stderr, where the
/// tests may not open raw sockets.
fn flood(site: &Site, messages: &[IcmpMessage]) -> Option<Flood> {
    let port = site.url.rsplit(':').next().unwrap().parse().unwrap();
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Not an address that others use: the host remembers a path MTU for it.
    let elsewhere = SocketAddr::from(([127, 9, 9, 9], 9));
    match Forger::new(server, elsewhere) {
        Ok(forger) => Some(forger.flood(messages.to_vec())),
        Err(error) => {
            eprintln!("skipped: forging ICMP needs a raw socket (CAP_NET_RAW): {error}");
            None
        }
    }
}

#[test]
fn downloads_complete_under_a_flood_of_any_icmp_error() {
    let dir = TempDir::new();
    let content = pattern(SIZE);
    dir.old_file("large", &content);
    let mut site = Site::start(dir.path(), &[]);
    let (url, to) = (format!("{}/large", site.url), dir.text("downloaded"));
    for messages in floods() {
        let Some(flood) = flood(&site, &messages) else {
            return;
        };
        // So many that they would fill the receive buffer of a server that does not read them.
        while flood.sent() < 20_000 {
            std::thread::yield_now();
        }
        let output = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["get", &url, "-k", "-s", "-o", &to])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{messages:?}: {said}");
        assert!(fs::read(&to).unwrap() == content, "{messages:?}");
        assert!(site.child.try_wait().unwrap().is_none(), "{messages:?}");
        fs::remove_file(&to).unwrap();
    }
    assert!(site.stop().success());
}
