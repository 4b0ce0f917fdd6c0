//! quiche as an endpoint of the public QUIC interop runner ([`contract::runner`]), over HTTP/0.9 and
//! HTTP/3.

mod client;
mod content;
mod server;

use std::{net::SocketAddr, process::ExitCode};

use anyhow::{Context, Result};
use contract::runner::{self, Environment, Role};
use tokio::net::UdpSocket;
use tokio_quiche::quiche::{self, Config, Connection, RecvInfo, h3::APPLICATION_PROTOCOL};

/// The application protocol of HTTP/0.9 over QUIC.
const HQ: &[u8] = b"hq-interop";

/// How long a connection may be silent, in milliseconds: with 30 % loss, some handshakes take long.
const IDLE: u64 = 120_000;

/// Streams that a client may open at once. The runner wants 1,000 at most.
const STREAMS: u64 = 1000;

/// Flow-control windows in bytes.
const WINDOW: u64 = 16 << 20;

/// Largest UDP payload that is sent.
const PAYLOAD: usize = 1452;

/// Test cases that quiche supports. It has no version 2, no ECN, no preferred address of a server,
/// and no setting for cipher suites.
const CASES: &[&str] = &[
    "handshake",
    "transfer",
    "longrtt",
    "multiplexing",
    "retry",
    "resumption",
    "zerortt",
    "http3",
    "blackhole",
    "amplificationlimit",
    "multiconnect",
    "handshakeloss",
    "transferloss",
    "handshakecorruption",
    "transfercorruption",
    "ipv6",
    "goodput",
    "crosstraffic",
    "rebind-port",
    "rebind-addr",
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    runner::main("endpoint-quiche", run).await
}

async fn run(environment: Environment) -> Result<bool> {
    let test = environment.test_case.as_str();
    // A server answers the key updates of others; quiche has no function that starts one.
    let answers = environment.role == Role::Server && test == "keyupdate";
    if !CASES.contains(&test) && !answers {
        return Ok(false);
    }
    match environment.role {
        Role::Client => client::run(&environment).await?,
        Role::Server => server::run(&environment).await?,
    }
    Ok(true)
}

fn is_http3(environment: &Environment) -> bool {
    environment.http3 || environment.test_case == "http3"
}

fn config(environment: &Environment) -> Result<Config> {
    let mut config = Config::new(quiche::PROTOCOL_VERSION)?;
    if is_http3(environment) {
        config.set_application_protos(APPLICATION_PROTOCOL)?;
    } else {
        config.set_application_protos(&[HQ])?;
    }
    config.verify_peer(false);
    config.log_keys();
    config.enable_early_data();
    config.set_max_idle_timeout(IDLE);
    config.set_max_send_udp_payload_size(PAYLOAD);
    config.discover_pmtu(environment.test_case != "zerortt");
    config.set_initial_max_data(WINDOW);
    config.set_initial_max_stream_data_bidi_local(WINDOW);
    config.set_initial_max_stream_data_bidi_remote(WINDOW);
    config.set_initial_max_stream_data_uni(WINDOW);
    config.set_initial_max_streams_bidi(STREAMS);
    config.set_initial_max_streams_uni(STREAMS);
    if let Some(congestion) = &environment.congestion {
        config
            .set_cc_algorithm_name(congestion)
            .context("CONGESTION")?;
    }
    Ok(config)
}

/// Has a connection write its secrets down.
fn log_keys(connection: &mut Connection) -> Result<()> {
    if let Some(file) = std::env::var_os("SSLKEYLOGFILE") {
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(file)?;
        connection.set_keylog(Box::new(file));
    }
    Ok(())
}

/// A random connection ID.
fn connection_id() -> Result<quiche::ConnectionId<'static>> {
    let mut id = [0; 16];
    boring::rand::rand_bytes(&mut id)?;
    Ok(quiche::ConnectionId::from_vec(id.to_vec()))
}

/// Gives a connection a datagram. Invalid ones are dropped.
fn receive(connection: &mut Connection, datagram: &mut [u8], from: SocketAddr, to: SocketAddr) {
    // An error closes the connection, which its owner sees.
    let _ = connection.recv(datagram, RecvInfo { from, to });
}

/// Sends what a connection has to send.
async fn send(connection: &mut Connection, socket: &UdpSocket) -> Result<()> {
    let mut buffer = [0; 2048];
    loop {
        match connection.send(&mut buffer) {
            Ok((len, info)) => {
                let datagram = buffer.get(..len).unwrap_or_default();
                // What cannot be sent is lost.
                let _ = socket.send_to(datagram, info.to).await;
            }
            Err(quiche::Error::Done) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}
