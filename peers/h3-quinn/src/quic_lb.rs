//! Connection IDs that a load balancer routes to this server (draft-ietf-quic-load-balancers), and
//! the secret by which servers reset connections of each other.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use aws_lc_rs::{hmac, rand};
use clap::Args;
use clearway_balancer::config::{File, parse_server_id};
use clearway_quic::cid::quic_lb::{Config, ServerId};
use quinn::{ConnectionId, ConnectionIdGenerator, EndpointConfig};
use quinn_proto::InvalidCid;
use tokio::signal::unix::{SignalKind, signal};

/// Longest nonce, in bytes: a connection ID has at most 20, of which one is the first octet and at
/// least one the server ID.
const LONGEST_NONCE: usize = 18;

/// Options of a server behind a load balancer.
#[derive(Debug, Args)]
pub(crate) struct Balanced {
    /// Make connection IDs that `clearway balance` with this file routes to this server. SIGHUP has
    /// the file read again
    #[arg(long, value_name = "FILE", requires = "server_id")]
    lb: Option<PathBuf>,
    /// This server's ID in the file of --lb, in hexadecimal digits
    #[arg(long, value_name = "HEX", requires = "lb", value_parser = parse_server_id)]
    server_id: Option<ServerId>,
    /// Make the tokens of stateless resets from this file, which all servers behind a balancer share
    #[arg(long, value_name = "FILE")]
    secret: Option<PathBuf>,
    /// Least time between two stateless resets, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 20)]
    reset_interval: u64,
}

impl Balanced {
    /// Returns the settings of the endpoint, and follows changes of the file.
    ///
    /// # Errors
    /// If a file cannot be read or is invalid, or configurations differ in the length of their
    /// connection IDs.
    pub(crate) fn start(&self) -> Result<EndpointConfig> {
        let mut endpoint = match &self.secret {
            Some(file) => {
                let secret =
                    fs::read(file).with_context(|| format!("reading {}", file.display()))?;
                ensure!(!secret.is_empty(), "{} is empty", file.display());
                EndpointConfig::new(Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
            }
            None => EndpointConfig::default(),
        };
        endpoint.min_reset_interval(Duration::from_millis(self.reset_interval));
        let (Some(file), Some(server_id)) = (&self.lb, self.server_id) else {
            return Ok(endpoint);
        };
        let encoding = Encoding::read(file, server_id)?;
        let (cid_len, lifetime) = (encoding.active.cid_len(), encoding.lifetime);
        let encoding = Arc::new(RwLock::new(encoding));
        tokio::spawn(follow(file.clone(), encoding.clone(), cid_len));
        endpoint.cid_generator(move || {
            Box::new(Generator {
                encoding: encoding.clone(),
                cid_len,
                lifetime,
            })
        });
        Ok(endpoint)
    }
}

/// What connection IDs are made of now.
#[derive(Debug)]
struct Encoding {
    server_id: ServerId,
    active: Config,
    others: Vec<Config>,
    lifetime: Option<Duration>,
}

impl Encoding {
    fn read(file: &Path, server_id: ServerId) -> Result<Self> {
        let place = || file.display().to_string();
        let text = fs::read_to_string(file).with_context(place)?;
        let read = File::parse(&text).and_then(|file| file.server());
        let read = read.with_context(place)?;
        let (expected, found) = (read.active.server_id_len(), server_id.len());
        ensure!(
            expected == found,
            "invalid --server-id: expected {expected} bytes, found {found}"
        );
        let len = read.active.cid_len();
        // quinn learns the length once, for all short headers of an endpoint.
        for other in &read.others {
            ensure!(
                other.cid_len() == len,
                "{}: config {} has connection IDs of {} bytes and config {} of {len}: quinn needs \
                 one length",
                place(),
                other.id(),
                other.cid_len(),
                read.active.id()
            );
        }
        Ok(Self {
            server_id,
            active: read.active,
            others: read.others,
            lifetime: read.lifetime,
        })
    }
}

/// Reads the file again at each SIGHUP. quinn replaces connection IDs of open connections only when
/// their lifetime ends: it has no call for it.
async fn follow(file: PathBuf, encoding: Arc<RwLock<Encoding>>, cid_len: usize) -> Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    while hangup.recv().await.is_some() {
        let server_id = read(&encoding, |encoding| encoding.server_id);
        match Encoding::read(&file, server_id) {
            Ok(new) if new.active.cid_len() == cid_len => {
                *encoding.write().unwrap_or_else(PoisonError::into_inner) = new;
                eprintln!("quinn: connection IDs follow {} anew", file.display());
            }
            Ok(new) => eprintln!(
                "quinn: keeping the old connection IDs of {cid_len} bytes: quinn cannot change \
                 their length to {}",
                new.active.cid_len()
            ),
            Err(error) => eprintln!("quinn: keeping the old connection IDs: {error:#}"),
        }
    }
    Ok(())
}

fn read<T>(encoding: &RwLock<Encoding>, what: impl FnOnce(&Encoding) -> T) -> T {
    what(&encoding.read().unwrap_or_else(PoisonError::into_inner))
}

/// quinn's source of connection IDs.
struct Generator {
    encoding: Arc<RwLock<Encoding>>,
    cid_len: usize,
    lifetime: Option<Duration>,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        let mut random = [0; LONGEST_NONCE + 1];
        rand::fill(&mut random).expect("the system has random numbers");
        let [first, nonce @ ..] = random;
        let cid = read(&self.encoding, |encoding| {
            let nonce = &nonce[..encoding.active.nonce_len()];
            encoding.active.encode(&encoding.server_id, nonce, first)
        });
        // The lengths were checked when the file was read.
        ConnectionId::new(&cid.expect("the server ID and the nonce fit"))
    }

    /// quinn resets only connections whose IDs pass this: those of all servers behind the balancer.
    fn validate(&self, cid: &ConnectionId) -> Result<(), InvalidCid> {
        let known = read(&self.encoding, |encoding| {
            let configs = std::iter::once(&encoding.active).chain(&encoding.others);
            configs
                .into_iter()
                .any(|config| config.decode(cid).is_some())
        });
        if known { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        self.cid_len
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        self.lifetime
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[quic_lb]\nactive = 0\nlifetime_seconds = 2\n\
        [[quic_lb.config]]\nid = 0\nserver_id_len = 1\nnonce_len = 15\n\
        key = \"8f95f09245765f80256934e50c662070\"\n\
        [[quic_lb.config]]\nid = 1\nserver_id_len = 1\nnonce_len = 15\n\
        key = \"8f95f09245765f80256934e50c662071\"\n";

    fn encoding(text: &str) -> Result<Encoding> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("lb.toml");
        fs::write(&file, text)?;
        Encoding::read(&file, ServerId::new(&[7]).unwrap())
    }

    #[test]
    fn connection_ids_carry_the_server_id_and_differ() {
        let encoding = encoding(FILE).unwrap();
        let config = encoding.active.clone();
        let mut generator = Generator {
            cid_len: config.cid_len(),
            lifetime: encoding.lifetime,
            encoding: Arc::new(RwLock::new(encoding)),
        };
        let (a, b) = (generator.generate_cid(), generator.generate_cid());
        assert_ne!(a, b);
        for cid in [a, b] {
            assert_eq!(cid.len(), generator.cid_len());
            assert_eq!(config.decode(&cid), ServerId::new(&[7]));
            assert!(generator.validate(&cid).is_ok());
        }
        assert_eq!(generator.cid_lifetime(), Some(Duration::from_secs(2)));
        let mut unroutable = a.to_vec();
        unroutable[0] |= 7 << 5;
        assert!(generator.validate(&ConnectionId::new(&unroutable)).is_err());
    }

    #[test]
    fn configurations_of_different_lengths_are_refused() {
        let text = FILE.replacen("nonce_len = 15", "nonce_len = 8", 1);
        let error = encoding(&text).unwrap_err().to_string();
        assert!(error.contains("quinn needs one length"), "{error}");
    }
}
