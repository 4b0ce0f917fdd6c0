//! A running `clearway balance`, its servers, and a relay that changes clients' addresses.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::common::{clearway, json, stderr};
use crate::web::{Site, TempDir, send};

/// Only a failing test waits so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// `clearway balance`, which ends with the test.
pub(crate) struct Balance {
    child: Child,
    stdout: BufReader<ChildStdout>,
    pub(crate) address: String,
    /// Where metrics are, if they were asked for.
    pub(crate) metrics: Option<String>,
    control: String,
}

impl Balance {
    pub(crate) fn start(dir: &TempDir, listen: &str, options: &[&str]) -> Self {
        let log = dir.join("balance.log");
        Self::spawn(dir, &log, &[&["--listen", listen], options].concat())
    }

    /// Replaces the one that was started with this directory.
    pub(crate) fn take_over(dir: &TempDir, options: &[&str]) -> Self {
        let (control, log) = (dir.text("control"), dir.join("balance-2.log"));
        Self::spawn(dir, &log, &[&["--take-over", &control], options].concat())
    }

    fn spawn(dir: &TempDir, log: &Path, options: &[&str]) -> Self {
        let control = dir.text("control");
        let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["balance", "--json", "--control", &control])
            .args(options)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(log).unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let first: Value = serde_json::from_str(&line).unwrap_or_else(|error| {
            let log = fs::read_to_string(log).unwrap();
            panic!("the balancer did not start: {error}: {log}")
        });
        Self {
            child,
            stdout,
            address: first["address"].as_str().unwrap().to_owned(),
            metrics: first["metrics"].as_str().map(str::to_owned),
            control,
        }
    }

    pub(crate) fn url(&self) -> String {
        let port = self.address.rsplit(':').next().unwrap();
        format!("https://localhost:{port}")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn status(&self) -> Value {
        let output = clearway(&["balance", "status", "--json", "--control", &self.control]);
        assert!(output.status.success(), "{}", stderr(&output));
        json(&output)
    }

    pub(crate) fn drain(&self, backend: &str) -> Result<(), String> {
        let output = clearway(&["balance", "drain", backend, "--control", &self.control]);
        match output.status.success() {
            true => Ok(()),
            false => Err(stderr(&output)),
        }
    }

    /// Waits until the status is as `wanted`.
    pub(crate) fn wait_for(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(begin.elapsed() < PATIENCE, "{status:#}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Ends it, and checks that every datagram is accounted for. Returns the counts.
    pub(crate) fn stop(self) -> Value {
        send(&self.child, Signal::TERM);
        self.ended()
    }

    /// Waits until it ends, as `stop` does.
    pub(crate) fn ended(mut self) -> Value {
        let mut rest = String::new();
        self.stdout.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        let ended: Value = serde_json::from_str(&rest).unwrap();
        assert_eq!(ended["event"], "ended");
        for direction in ["up", "down"] {
            let counts = &ended[direction];
            let drops = counts["dropped"].as_object().unwrap().values();
            let dropped: u64 = drops.map(|count| count.as_u64().unwrap()).sum();
            let forwarded = counts["forwarded"].as_u64().unwrap();
            assert_eq!(
                counts["received"],
                forwarded + dropped,
                "{direction}: {ended:#}"
            );
            assert!(forwarded > 0, "{direction}: {ended:#}");
        }
        ended
    }
}

impl Drop for Balance {
    fn drop(&mut self) {
        // Ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `clearway relay` with these options, which ends with the test.
pub(crate) struct Relay {
    child: Child,
    pub(crate) url: String,
    pub(crate) address: String,
}

impl Relay {
    pub(crate) fn start(to: &str, options: &[&str]) -> Self {
        Self::start_at("127.0.0.1:0", to, options)
    }

    /// At the address of a former one: what it forwards comes from another port than before.
    pub(crate) fn start_at(listen: &str, to: &str, options: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_clearway"))
            .args(["relay", "--listen", listen, "--to", to])
            .args(options)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        let address = line.strip_prefix("relay: listening on ");
        let address = address.and_then(|rest| rest.split(',').next()).unwrap();
        let port = address.rsplit(':').next().unwrap();
        let url = format!("https://localhost:{port}");
        let address = address.to_owned();
        // It must not block on what nobody reads.
        std::thread::spawn(move || lines.read_to_string(&mut String::new()));
        Self {
            child,
            url,
            address,
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How far the key has been replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rotation {
    /// Connection IDs are made by config 0; config 1, with another length, is known.
    Announced,
    /// They are made by config 1, and config 0 is still known.
    Active,
    /// Config 0 is not known any more.
    Complete,
}

/// The `[quic_lb]` section of a file.
pub(crate) fn quic_lb(rotation: Rotation) -> String {
    quic_lb_of(rotation, 8)
}

/// The same, with this length of the nonce of config 1; that of config 0 has 15 bytes.
pub(crate) fn quic_lb_of(rotation: Rotation, nonce_len: u8) -> String {
    let config = |id: u8, nonce_len: u8| {
        format!(
            "[[quic_lb.config]]\nid = {id}\nserver_id_len = 1\nnonce_len = {nonce_len}\n\
             key = \"8f95f09245765f80256934e50c66207{id}\"\n"
        )
    };
    let (active, former) = match rotation {
        Rotation::Announced => (0, config(0, 15)),
        Rotation::Active => (1, config(0, 15)),
        Rotation::Complete => (1, String::new()),
    };
    format!(
        "[quic_lb]\nactive = {active}\n{former}{}",
        config(1, nonce_len)
    )
}

/// The address of a server.
pub(crate) fn address(site: &Site) -> String {
    format!("127.0.0.1:{}", site.url.rsplit(':').next().unwrap())
}

/// The balancer's file for these servers, whose IDs are 01, 02 and so on.
pub(crate) fn balancer_file(sites: &[Site], rotation: Rotation) -> String {
    let addresses: Vec<String> = sites.iter().map(address).collect();
    balancer_file_of(&addresses, &quic_lb(rotation))
}

/// The same, by the addresses of the servers and the encoding of their connection IDs.
pub(crate) fn balancer_file_of(addresses: &[String], quic_lb: &str) -> String {
    let mut text = "[health]\ninterval_ms = 100\n".to_owned();
    for (number, address) in (1..).zip(addresses) {
        text += &format!(
            "[[backend]]\nname = \"s{number}\"\naddress = \"{address}\"\n\
             server_ids = [\"{number:02x}\"]\n"
        );
    }
    text + quic_lb
}

/// Writes a file so that nobody reads half of it.
pub(crate) fn write(dir: &TempDir, name: &str, text: &str) {
    let temporary = dir.join(&format!("{name}.new"));
    fs::write(&temporary, text).unwrap();
    fs::rename(temporary, dir.join(name)).unwrap();
}

/// Starts server number `number`, which shares a secret with the others.
pub(crate) fn site(dir: &TempDir, content: &Path, number: u8) -> Site {
    site_at("127.0.0.1:0", dir, content, number)
}

/// The same, at this address.
pub(crate) fn site_at(listen: &str, dir: &TempDir, content: &Path, number: u8) -> Site {
    let id = format!("{number:02x}");
    let (lb, secret) = (dir.text("serve.toml"), dir.text("secret"));
    let options = ["--lb", &lb, "--server-id", &id, "--secret", &secret];
    Site::start_at(listen, content, &options)
}
