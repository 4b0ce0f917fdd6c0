//! What runs within a network namespace: this program starts itself there.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Subcommand};
use socket2::SockRef;

use super::cleanup::Group;

/// How long a server may take to answer the first probe.
const START: Duration = Duration::from_secs(10);

/// How long to try to connect over TCP.
const CONNECT: Duration = Duration::from_secs(5);

/// A packet of an unknown version with empty connection IDs, which a server answers with Version
/// Negotiation: the public runner's check that a server is up.
const PROBE_LEN: usize = 1207;

/// How the kernel sends over TCP
#[derive(Clone, Debug, Args)]
pub(crate) struct TcpSender {
    /// The kernel's congestion controller
    #[arg(long, default_value = "cubic")]
    pub(crate) controller: String,
    /// Pace the packets, as the kernel does by itself with BBR only
    #[arg(long)]
    pub(crate) paced: bool,
}

/// What to do in the namespace
#[derive(Debug, Subcommand)]
pub(crate) enum Inside {
    /// Wait until a QUIC server at this port of loopback answers
    Probe { port: u16 },
    /// Send over TCP until the connection ends
    Send {
        to: SocketAddr,
        #[command(flatten)]
        sender: TcpSender,
    },
    /// Receive a TCP connection at this address and read it to its end
    Receive {
        at: SocketAddr,
        /// Close the connection after as many bytes
        #[arg(long)]
        bytes: Option<usize>,
    },
}

/// Does it.
pub(crate) fn run(what: &Inside) -> Result<()> {
    match what {
        Inside::Probe { port } => {
            let answered = wait_for_answer(*port, || Ok(true))?;
            ensure!(answered, "no answer from port {port}");
        }
        Inside::Send { to, sender } => send(*to, sender)?,
        Inside::Receive { at, bytes } => {
            let (mut stream, _) = TcpListener::bind(at)?.accept()?;
            let mut buffer = vec![0; 1 << 16];
            let mut missing = bytes.unwrap_or(usize::MAX);
            while missing > 0 {
                let read = stream.read(&mut buffer)?;
                if read == 0 {
                    break;
                }
                missing = missing.saturating_sub(read);
            }
        }
    }
    Ok(())
}

fn send(to: SocketAddr, sender: &TcpSender) -> Result<()> {
    let begun = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(to) {
            Ok(stream) => break stream,
            // The receiver may not listen yet.
            Err(_) if begun.elapsed() < CONNECT => std::thread::sleep(Duration::from_millis(50)),
            Err(error) => bail!("connecting to {to}: {error}"),
        }
    };
    let control = |name: &str| {
        let chosen = SockRef::from(&stream).set_tcp_congestion(name.as_bytes());
        chosen.with_context(|| format!("setting the congestion control to {name}"))
    };
    if sender.paced {
        // BBR switches on the kernel's pacing of the socket, and no other controller switches it off.
        // Their rate is 1.2 windows per round trip, and twice a window in slow start.
        control("bbr")?;
    }
    control(&sender.controller)?;
    let content = vec![0; 1 << 16];
    // The receiver ends it.
    while stream.write_all(&content).is_ok() {}
    Ok(())
}

/// Probes a server at this port of loopback until it answers, at most for [`START`], or until
/// `running` says that it is not. Returns whether it answered.
pub(crate) fn wait_for_answer(
    port: u16,
    mut running: impl FnMut() -> Result<bool>,
) -> Result<bool> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    let mut probe = vec![0xc0, 0x57, 0x41, 0x49, 0x54, 0, 0];
    probe.resize(PROBE_LEN, 0);
    let begun = Instant::now();
    while begun.elapsed() < START && running()? {
        // Until it listens, ICMP answers.
        if socket.send_to(&probe, ("127.0.0.1", port)).is_ok()
            && socket.recv_from(&mut [0; 1500]).is_ok()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns a command that runs this program in a namespace.
pub(crate) fn command(space: &str) -> Result<Command> {
    let program: PathBuf = std::env::current_exe()?;
    let mut command = Command::new("ip");
    command
        .args(["netns", "exec", space])
        .arg(program)
        .arg("inside");
    Ok(command)
}

/// A TCP connection between two namespaces that has as much to send as the network carries. It
/// ends when this is dropped.
pub(crate) struct TcpFlow {
    receiver: Group,
    sender: Group,
}

impl TcpFlow {
    /// Starts one from a namespace to an address in another, which closes it after `bytes`.
    pub(crate) fn start(
        from: &str,
        (to, address): (&str, SocketAddr),
        sender: &TcpSender,
        bytes: Option<usize>,
    ) -> Result<Self> {
        let start = |space: &str, what: &str, options: &[&str]| {
            let mut command = command(space)?;
            command.args([what, &address.to_string()]).args(options);
            command.stdin(Stdio::null());
            Group::spawn(&mut command).context("starting a TCP connection")
        };
        let bytes = bytes.map(|bytes| format!("--bytes={bytes}"));
        let mut options = vec!["--controller", &sender.controller];
        options.extend(sender.paced.then_some("--paced"));
        Ok(Self {
            receiver: start(to, "receive", bytes.as_deref().as_slice())?,
            sender: start(from, "send", &options)?,
        })
    }

    /// Waits until the receiver has what it wants.
    pub(crate) fn wait(&mut self, patience: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.receiver.try_wait()? {
                ensure!(status.success(), "the receiver of a TCP connection failed");
                return Ok(());
            }
            if let Some(status) = self.sender.try_wait()? {
                ensure!(status.success(), "the sender of a TCP connection failed");
            }
            ensure!(begun.elapsed() < patience, "not done in {patience:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
