//! The command line of servers and clients.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};

/// Maximum duration of a timed run, in seconds: a day.
const LONGEST: f64 = 86_400.0;

/// The default length of a response, in bytes.
const DEFAULT_BYTES: u64 = 1 << 20;

/// The length of a response that outlasts any timed run, and fits a quarter of QUIC's offsets.
const ENDLESS: u64 = 1 << 60;

/// Settings that replace a stack's defaults.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Tuning {
    /// All flow-control windows, in bytes
    #[arg(long)]
    pub window: Option<u32>,
    /// Send and receive buffer of the socket, in bytes
    #[arg(long)]
    pub socket_buffer: Option<usize>,
    /// Key exchange by X25519 alone, for a stack that would prefer X25519MLKEM768
    #[arg(long)]
    pub x25519: bool,
}

/// Options of a server.
#[derive(Debug, Clone, Args)]
// The variant `Role::Serve` has a group of this name already.
#[group(skip)]
pub struct Serve {
    /// Address to listen on; port 0 takes a free one
    #[arg(long)]
    pub listen: SocketAddr,
    /// Certificate chain, PEM
    #[arg(long)]
    pub cert: PathBuf,
    /// Private key, PEM
    #[arg(long)]
    pub key: PathBuf,
    /// Validate every client's address with a Retry
    #[arg(long)]
    pub retry: bool,
    /// Accept early data
    #[arg(long)]
    pub zero_rtt: bool,
    /// Speak clearway-raw instead of HTTP/3
    #[arg(long)]
    pub raw: bool,
    /// Print one JSON object per closed connection
    #[arg(long)]
    pub json: bool,
    /// Replaces defaults.
    #[command(flatten)]
    pub tuning: Tuning,
}

/// Where a download without end runs while requests are timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Beside {
    /// On the connection of the requests
    Same,
    /// On another connection to the same server
    Other,
}

/// Streams that a server lets a client have open at once.
pub const STREAMS: u32 = 1_000;

/// Options of a client.
#[derive(Debug, Clone, Args)]
pub struct Get {
    /// The server's address
    pub server: SocketAddr,
    /// Name that the server's certificate must be valid for
    #[arg(long)]
    pub server_name: String,
    /// Trusted certificate authorities, PEM
    #[arg(long)]
    pub ca: PathBuf,
    /// Speak clearway-raw instead of HTTP/3
    #[arg(long)]
    pub raw: bool,
    /// Bytes to download per request [default: 1 MiB; in a timed run, without end]
    #[arg(long)]
    pub bytes: Option<u64>,
    /// Requests to make
    #[arg(long, default_value_t = 1, conflicts_with = "seconds")]
    pub requests: u64,
    /// Requests (with --handshakes: connections) under way at once [default: all of --requests;
    /// in a timed run, 1]
    #[arg(long)]
    pub parallel: Option<u64>,
    /// Connections that share the requests under way, in a timed run
    #[arg(
        long,
        default_value_t = 1,
        requires = "seconds",
        conflicts_with = "handshakes"
    )]
    pub connections: u64,
    /// In a timed run, a download without end beside the requests
    #[arg(
        long,
        requires_all = ["seconds", "bytes"],
        conflicts_with_all = ["handshakes", "connections", "resume", "zero_rtt"]
    )]
    pub beside_bulk: Option<Beside>,
    /// Bytes to upload per request; with HTTP/3 they are echoed, followed by their sum
    #[arg(long, default_value_t = 0)]
    pub post: u64,
    /// Connect a second time and report whether the session was resumed
    #[arg(long)]
    pub resume: bool,
    /// Connect a second time, send the requests as early data, and report whether it was accepted
    #[arg(long)]
    pub zero_rtt: bool,
    /// Start a key update halfway through the download
    #[arg(long, conflicts_with = "seconds")]
    pub key_update: bool,
    /// Repeat requests for this many seconds
    #[arg(long)]
    pub seconds: Option<f64>,
    /// With --seconds: make connections instead of requests
    #[arg(long, requires = "seconds")]
    pub handshakes: bool,
    /// Keep this many idle connections open: prints `{"event":"ready"}`, waits for a line,
    /// connects, prints `{"event":"idle"}`, waits for a line
    #[arg(long, conflicts_with_all = ["seconds", "resume", "zero_rtt", "key_update"])]
    pub idle: Option<u64>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Instead of defaults.
    #[command(flatten)]
    pub tuning: Tuning,
}

impl Get {
    /// Checks that the options can be combined.
    ///
    /// # Errors
    /// Which options cannot be combined.
    pub fn check(&self) -> Result<()> {
        ensure!(
            !self.key_update || self.ask().wanted > 0 && self.requests > 0,
            "--key-update needs a download: --bytes must be greater than zero"
        );
        if let Some(seconds) = self.seconds {
            ensure!(
                (0.0..=LONGEST).contains(&seconds),
                "invalid value '{seconds}' for --seconds: must be between 0 and {LONGEST}"
            );
        }
        ensure!(
            self.connections > 0 && self.connections <= self.lanes().max(1),
            "invalid value '{}' for --connections: must be between 1 and --parallel",
            self.connections
        );
        ensure!(
            self.raw || self.post == 0 || self.bytes.is_none(),
            "--bytes cannot be used with --post: the response is as long as the upload"
        );
        Ok(())
    }

    /// Returns whether session tickets are kept.
    #[must_use]
    pub fn remembers(&self) -> bool {
        self.resume || self.zero_rtt
    }

    /// Returns the request to repeat.
    #[must_use]
    pub fn ask(&self) -> crate::Ask {
        let default = if self.seconds.is_some() {
            ENDLESS
        } else {
            DEFAULT_BYTES
        };
        let wanted = if self.post > 0 && !self.raw {
            self.post
        } else {
            self.bytes.unwrap_or(default)
        };
        crate::Ask {
            wanted,
            upload: self.post,
        }
    }

    /// Returns whether several connections transfer at the same time.
    #[must_use]
    pub fn has_many_connections(&self) -> bool {
        self.connections > 1 || self.beside_bulk == Some(Beside::Other)
    }

    /// Returns the request for a download without end.
    #[must_use]
    pub fn endless() -> crate::Ask {
        crate::Ask {
            wanted: ENDLESS,
            upload: 0,
        }
    }

    /// Returns the maximum number of requests.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.seconds.map_or(self.requests, |_| u64::MAX)
    }

    /// Returns how many requests are open at once, on all connections.
    #[must_use]
    pub fn lanes(&self) -> u64 {
        let default = if self.seconds.is_some() {
            1
        } else {
            self.requests
        };
        self.parallel
            .unwrap_or(default)
            .clamp(1, self.most().max(1))
    }
}
