//! Servers on quinn, whose connection IDs carry server IDs: `peer-h3-quinn` of `peers/`, which
//! `peers/balance.sh` builds.

use std::path::PathBuf;
use std::process::Command;

use super::fleet::{Rotation, quic_lb_of, write};
use crate::web::{Site, TempDir};

/// The program, and its certificate.
pub(super) struct Quinn {
    program: PathBuf,
    /// A folder with `cert.pem` and `key.pem`.
    certificate: PathBuf,
}

impl Quinn {
    /// Returns `None`, with a word, unless the environment names the program and the folder.
    pub(super) fn find() -> Option<Self> {
        let path = |name| std::env::var_os(name).map(PathBuf::from);
        let found = path("PEER_H3_QUINN").zip(path("PEER_CERTIFICATE"));
        if found.is_none() {
            eprintln!("skipped: needs the servers of peers/, run peers/balance.sh");
        }
        let (program, certificate) = found?;
        Some(Self {
            program,
            certificate,
        })
    }

    pub(super) fn site(&self, listen: &str, dir: &TempDir, number: u8) -> Site {
        let (cert, key) = (
            self.certificate.join("cert.pem"),
            self.certificate.join("key.pem"),
        );
        write(dir, "secret", "a secret that all servers share, to reset");
        let mut command = Command::new(&self.program);
        command
            .args(["serve", "--json", "--listen", listen, "--cert"])
            .arg(cert)
            .arg("--key")
            .arg(key)
            .args(["--lb", &dir.text("serve.toml")])
            .args(["--server-id", &format!("{number:02x}")])
            .args(["--secret", &dir.text("secret")]);
        Site::start_peer(command)
    }

    /// quinn reads connection IDs of one length, and replaces those of open connections only when
    /// their lifetime ends.
    pub(super) fn quic_lb(rotation: Rotation) -> String {
        let lifetime = "[quic_lb]\nlifetime_seconds = 1\n";
        quic_lb_of(rotation, 15).replacen("[quic_lb]\n", lifetime, 1)
    }

    /// Path and content of a file of this length, as all peers have it.
    pub(super) fn file(length: usize) -> (String, Vec<u8>) {
        let byte = |at: usize| (at ^ (at >> 8) ^ (at >> 16)) as u8;
        (format!("/{length}"), (0..length).map(byte).collect())
    }
}
