//! What both roles give quiche instead of its defaults.

use std::{
    env,
    fs::{self, File, OpenOptions},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use boring::rand::rand_bytes;
use contract::{
    H3,
    runner::{Environment, Role},
};
use tokio_quiche::quiche::{Config, Connection, ConnectionId, PROTOCOL_VERSION, QlogLevel};

/// The application protocol of HTTP/0.9 over QUIC.
const HQ: &[u8] = b"hq-interop";

/// Length of a connection ID in bytes.
pub(crate) const ID_LENGTH: usize = 16;

/// How long a connection may be silent: with 30 % loss, some handshakes take long.
pub(crate) const IDLE: Duration = Duration::from_secs(120);

/// Streams that a client may open at once. The runner wants 1,000 at most.
const STREAMS: u64 = 1000;

/// Streams of HTTP/3 with a single direction: for control, and two of QPACK.
const UNIDIRECTIONAL_STREAMS: u64 = 3;

/// First flow-control windows in bytes, which quiche enlarges by itself.
const CONNECTION_WINDOW: u64 = 10_000_000;
const STREAM_WINDOW: u64 = 1_000_000;

/// Connection IDs that the peer may give us, and we the peer: one for each change of address.
const CONNECTION_IDS: u64 = 4;

/// Returns the configuration of both roles.
pub(crate) fn config(environment: &Environment) -> Result<Config> {
    let mut config = Config::new(PROTOCOL_VERSION)?;
    config.set_application_protos(&[if is_http3(environment) { H3 } else { HQ }])?;
    config.set_max_idle_timeout(IDLE.as_millis().try_into()?);
    config.set_initial_max_data(CONNECTION_WINDOW);
    config.set_initial_max_stream_data_bidi_local(STREAM_WINDOW);
    config.set_initial_max_stream_data_bidi_remote(STREAM_WINDOW);
    config.set_initial_max_stream_data_uni(STREAM_WINDOW);
    config.set_initial_max_streams_bidi(STREAMS);
    config.set_initial_max_streams_uni(UNIDIRECTIONAL_STREAMS);
    config.set_active_connection_id_limit(CONNECTION_IDS);
    if environment.test_case == "zerortt" {
        config.enable_early_data();
    }
    config.log_keys();
    Ok(config)
}

/// Whether the test case is about HTTP/3.
pub(crate) fn is_http3(environment: &Environment) -> bool {
    environment.test_case == "http3"
}

/// Has a connection write its secrets and its qlog where the runner looks for them. `id` is its own
/// connection ID, after which the qlog is named.
pub(crate) fn trace(
    connection: &mut Connection,
    id: &ConnectionId<'_>,
    environment: &Environment,
) -> Result<()> {
    log_secrets(connection)?;
    let Some(folder) = env::var_os("QLOGDIR").filter(|folder| !folder.is_empty()) else {
        return Ok(());
    };
    let folder = PathBuf::from(folder);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let role = match environment.role {
        Role::Client => "client",
        Role::Server => "server",
    };
    let path = folder.join(format!("quiche_{role}_{id:?}.sqlog"));
    // Without a buffer: the runner ends a server by a signal, which would lose what is in it.
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    let title = format!("endpoint-quiche, {}", environment.test_case);
    connection.set_qlog_with_level(Box::new(file), title, String::new(), QlogLevel::Extra);
    Ok(())
}

fn log_secrets(connection: &mut Connection) -> Result<()> {
    let Some(path) = env::var_os("SSLKEYLOGFILE").filter(|path| !path.is_empty()) else {
        return Ok(());
    };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    let file = file.with_context(|| format!("opening {}", path.display()))?;
    connection.set_keylog(Box::new(file));
    Ok(())
}

/// Returns random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    rand_bytes(&mut bytes)?;
    Ok(bytes)
}

/// Returns a new connection ID.
pub(crate) fn new_id() -> Result<ConnectionId<'static>> {
    Ok(ConnectionId::from_vec(random::<ID_LENGTH>()?.to_vec()))
}
