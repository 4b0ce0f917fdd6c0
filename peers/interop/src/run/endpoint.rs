//! The programs that keep the runner's contract, and their directories.

use std::{
    fs::{self, File},
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clearway_recovery::congestion::{Algorithm, AlgorithmError};
use clearway_trace::capture::KeyLog;
use tempfile::TempDir;

use super::{
    cleanup::{self, Group, POLL},
    inside,
};

/// The exit code for a test that an endpoint does not support.
const UNSUPPORTED: i32 = 127;

/// A program that keeps the contract.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    pub(crate) name: String,
    pub(crate) program: PathBuf,
    /// Whether it speaks HTTP/3 only.
    pub(crate) only_http3: bool,
    /// Whether it is Clearway.
    pub(crate) ours: bool,
}

/// Parses `NAME=PROGRAM` of an endpoint without HTTP/0.9.
pub(crate) fn parse_http3(text: &str) -> Result<Endpoint, String> {
    let endpoint = parse(text)?;
    Ok(Endpoint {
        only_http3: true,
        ..endpoint
    })
}

/// Parses `NAME=PROGRAM`.
pub(crate) fn parse(text: &str) -> Result<Endpoint, String> {
    let (name, program) = match text.split_once('=') {
        Some((name, program)) if !name.is_empty() && !program.is_empty() => (name, program),
        _ => return Err(format!("invalid endpoint {text:?}: expected NAME=PROGRAM")),
    };
    // Names are in a Markdown table, and in the names of the folders that are kept.
    let is_unfit = |character: char| "|/".contains(character) || character.is_whitespace();
    if name.contains(is_unfit) {
        return Err(format!(
            "invalid name {name:?}: must not contain '|', '/' or whitespace"
        ));
    }
    Ok(Endpoint::new(name, program))
}

/// Checks the name of a congestion controller of Clearway.
pub(crate) fn parse_controller(name: &str) -> Result<String, AlgorithmError> {
    let _: Algorithm = name.parse()?;
    Ok(name.to_owned())
}

impl Endpoint {
    pub(crate) fn new(name: &str, program: impl Into<PathBuf>) -> Self {
        Self {
            name: name.to_owned(),
            program: program.into(),
            only_http3: false,
            ours: false,
        }
    }

    /// Clearway's endpoint.
    pub(crate) fn ours(program: impl Into<PathBuf>) -> Self {
        Self {
            ours: true,
            ..Self::new("clearway", program)
        }
    }

    fn command(&self, role: &str, test: &str, mounts: &Mounts, extra: &Extra) -> Result<Command> {
        let log = File::create(mounts.path(&format!("{role}.log")))?;
        let mut command = match &extra.namespace {
            None => Command::new(&self.program),
            Some(space) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", space]).arg(&self.program);
                command
            }
        };
        command
            .env("ROLE", role)
            .env("TESTCASE", test)
            .env("WWW", mounts.path("www"))
            .env("DOWNLOADS", mounts.path("downloads"))
            .env("CERTS", mounts.path("certs"))
            .env("SSLKEYLOGFILE", mounts.path(&format!("{role}.keys")))
            .env("QLOGDIR", mounts.path("qlog"))
            .envs(extra.variables.iter().cloned())
            .stdout(log.try_clone()?)
            .stderr(log)
            .stdin(Stdio::null());
        Ok(command)
    }
}

/// How an endpoint is run beside what is the same for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extra {
    variables: Vec<(&'static str, String)>,
    /// The network namespace that it is run in.
    namespace: Option<String>,
}

impl Extra {
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<String>) {
        self.variables.push((name, value.into()));
    }

    pub(crate) fn in_namespace(mut self, name: &str) -> Self {
        self.namespace = Some(name.to_owned());
        self
    }
}

/// The directories that the runner mounts.
pub(crate) struct Mounts(TempDir);

impl Mounts {
    /// Creates them with files of these names and sizes, and a certificate of `chain` links.
    pub(crate) fn new(files: &[(String, usize)], chain: usize) -> Result<Self> {
        let this = {
            let mut present = cleanup::present();
            let this = Self(tempfile::tempdir()?);
            present.folders.insert(this.0.path().to_owned());
            this
        };
        for name in ["www", "downloads", "certs", "qlog"] {
            fs::create_dir(this.path(name))?;
        }
        for (name, size) in files {
            // No period that a lost or repeated packet would hide in.
            let content: Vec<u8> = (0..*size)
                .map(|at| (at ^ at >> 8 ^ at >> 16) as u8)
                .collect();
            fs::write(this.path("www").join(name), content)?;
        }
        certify(&this.path("certs"), chain)?;
        Ok(this)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the first file that did not arrive as it is.
    pub(crate) fn missing(&self, files: &[(String, usize)]) -> Option<String> {
        let read = |folder: &str, name: &str| fs::read(self.path(folder).join(name)).ok();
        let wrong = |name: &str| read("www", name) != read("downloads", name);
        let (name, _) = files.iter().find(|(name, _)| wrong(name))?;
        Some(name.clone())
    }

    /// Returns the secrets that the endpoints wrote down.
    pub(crate) fn secrets(&self) -> KeyLog {
        let read = |role: &str| fs::read(self.path(&format!("{role}.keys"))).unwrap_or_default();
        let text = [read("client"), b"\n".to_vec(), read("server")].concat();
        KeyLog::parse(&text).unwrap_or_default()
    }

    /// Copies the directories to `folder`, to look at what went wrong. What an earlier run left
    /// there is replaced.
    pub(crate) fn keep(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder.parent().unwrap_or(folder))?;
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
        }
        let mut copy = Command::new("cp");
        copy.arg("-r").arg(self.0.path()).arg(folder);
        let status = Group::spawn(&mut copy).and_then(|mut cp| cp.wait());
        let status = status.context("running cp")?;
        ensure!(
            status.success(),
            "copying the directories to {}: cp ended with {status}",
            folder.display()
        );
        Ok(())
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        // Not left to `TempDir`, which would remove it only after it has been forgotten.
        let _ = fs::remove_dir_all(self.0.path());
        cleanup::present().folders.remove(self.0.path());
    }
}

/// Writes a chain of `links` certificates and the key of the first one, in SEC1 form.
fn certify(folder: &Path, links: usize) -> Result<()> {
    let script = format!(
        r#"set -e
        cd "$1"
        openssl ecparam -name prime256v1 -genkey -noout -out ca.key
        openssl req -new -x509 -key ca.key -days 30 -subj "/CN=root" -out ca.pem
        issuer=ca
        chain=""
        for link in $(seq {links} -1 1); do
            name=link$link
            openssl ecparam -name prime256v1 -genkey -noout -out $name.key
            openssl req -new -key $name.key -subj "/CN=$name" -out $name.csr
            if [ $link = 1 ]; then
                echo "subjectAltName=DNS:server,DNS:localhost,IP:127.0.0.1,IP:127.0.0.2,IP:::1" > $name.ext
            else
                echo "basicConstraints=critical,CA:true" > $name.ext
            fi
            openssl x509 -req -in $name.csr -CA $issuer.pem -CAkey $issuer.key -CAcreateserial \
                -days 30 -extfile $name.ext -out $name.pem
            chain="$name.pem $chain"
            issuer=$name
        done
        cat $chain > cert.pem
        cp link1.key priv.key
        "#
    );
    let mut command = Command::new("bash");
    command.args(["-c", &script, "certify"]).arg(folder);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut bash = Group::spawn(&mut command).context("running openssl")?;
    let mut errors = String::new();
    if let Some(mut stderr) = bash.take_stderr() {
        stderr.read_to_string(&mut errors)?;
    }
    if !bash.wait()?.success() {
        bail!("openssl: {errors}");
    }
    Ok(())
}

/// A running server.
pub(crate) struct Server(Group);

impl Server {
    /// Starts a server; `None` if it does not support the test.
    pub(crate) fn start(
        endpoint: &Endpoint,
        test: &str,
        mounts: &Mounts,
        port: u16,
        extra: &Extra,
    ) -> Result<Option<Self>> {
        let mut command = endpoint.command("server", test, mounts, extra)?;
        let group = Group::spawn(command.env("PORT", port.to_string()));
        let mut server = Self(group.with_context(|| format!("starting {}", endpoint.name))?);
        let answered = match &extra.namespace {
            None => inside::wait_for_answer(port, || Ok(server.0.try_wait()?.is_none()))?,
            Some(space) => {
                let mut probe = inside::command(space)?;
                probe.args(["probe", &port.to_string()]);
                probe.stdin(Stdio::null()).stderr(Stdio::null());
                Group::spawn(&mut probe)?.wait()?.success()
            }
        };
        if answered {
            return Ok(Some(server));
        }
        match server.0.try_wait()? {
            Some(status) if status.code() == Some(UNSUPPORTED) => Ok(None),
            Some(status) => bail!("the server {} ended with {status}", endpoint.name),
            None => bail!("the server {} answered no probe", endpoint.name),
        }
    }
}

/// How a client ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Well,
    Unsupported,
    Badly(String),
}

/// Runs a client, for at most `patience`.
pub(crate) fn run_client(
    endpoint: &Endpoint,
    test: &str,
    mounts: &Mounts,
    extra: &Extra,
    patience: Duration,
) -> Result<Ended> {
    let client = Group::spawn(&mut endpoint.command("client", test, mounts, extra)?);
    let mut client = client.with_context(|| format!("starting {}", endpoint.name))?;
    let begun = Instant::now();
    loop {
        if let Some(status) = client.try_wait()? {
            return Ok(match status.code() {
                Some(0) => Ended::Well,
                Some(UNSUPPORTED) => Ended::Unsupported,
                _ => Ended::Badly(format!("the client ended with {status}")),
            });
        }
        if begun.elapsed() > patience {
            return Ok(Ended::Badly(format!(
                "the client was not done in {patience:?}"
            )));
        }
        std::thread::sleep(POLL);
    }
}
