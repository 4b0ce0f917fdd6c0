//! Clients that are attacked themselves, at a relay on their path.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use clearway::ClientConfig;
use clearway::http::{BoxError, Client};
use clearway_quic::connection::Config;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::client::{NAME, client, client_with, get, get_from};
use super::{SharedTally, World, on_schedule};
use crate::attack::Victims;
use crate::site::Known;

/// Timeout of an attacked client's request: longer than usual, since its packets are
/// misdirected now and then.
const PATIENCE: Duration = Duration::from_secs(30);

/// When a client whose handshakes are attacked gives one up: whoever sees its packets can keep it from
/// ending, and it must be over well before [`PATIENCE`].
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Interval between two transfers.
const TRANSFER_EVERY: Duration = Duration::from_millis(250);

/// Pause between two handshakes.
const ATTEMPT_EVERY: Duration = Duration::from_millis(150);

/// Interval between two runs of `clearway get`.
const PROCESS_EVERY: Duration = Duration::from_millis(700);

/// Interval at which a process is polled.
const POLL: Duration = Duration::from_millis(20);

/// The highest documented exit code of `clearway get` without a signal.
const LAST_EXIT_CODE: i32 = 10;

/// Spawns the clients that one attacker attacks.
pub(super) fn spawn(
    tasks: &mut JoinSet<()>,
    number: usize,
    victims: Victims,
    relay: SocketAddr,
    world: &World,
    tally: &SharedTally,
    stopped: &watch::Receiver<bool>,
) {
    let from = (Ipv4Addr::new(127, 2, 0, number as u8 + 1), 0).into();
    let (world, tally, stopped) = (world.clone(), tally.clone(), stopped.clone());
    match victims {
        Victims::None => {}
        Victims::Transfers => {
            tasks.spawn(transfer(from, relay, world, tally, stopped));
        }
        Victims::Handshakes => {
            tasks.spawn(run_commands(
                relay,
                world.clone(),
                tally.clone(),
                stopped.clone(),
            ));
            tasks.spawn(connect(from, relay, world, tally, stopped));
        }
    }
}

/// Downloads through the relay; every transfer must succeed.
async fn transfer(
    from: SocketAddr,
    relay: SocketAddr,
    world: World,
    tally: SharedTally,
    stopped: watch::Receiver<bool>,
) {
    let client = match client(from, NAME, relay, &world.site) {
        Ok(client) => client,
        Err(error) => return tally.with(|tally| tally.add_lost_client(error.to_string())),
    };
    on_schedule(TRANSFER_EVERY, stopped, move |_| {
        let (client, world, tally) = (client.clone(), world.clone(), tally.clone());
        async move {
            let began = Instant::now();
            let file = &world.site.large[0];
            let outcome = patient(get(&client, relay.port(), file)).await;
            tally.with(|tally| tally.add_victim(began.elapsed(), outcome));
        }
    })
    .await;
}

/// Connects through the relay again and again. The same endpoint has a direct
/// connection to the server, which must go on working.
async fn connect(
    from: SocketAddr,
    relay: SocketAddr,
    world: World,
    tally: SharedTally,
    mut stopped: watch::Receiver<bool>,
) {
    let client = match impatient_client(from, &world) {
        Ok(client) => client,
        Err(error) => return tally.with(|tally| tally.add_lost_client(error.to_string())),
    };
    for number in 0_u64.. {
        if *stopped.borrow_and_update() {
            return;
        }
        let small = &world.site.small;
        let began = Instant::now();
        let attempt = attempt(&client, number, relay, small).await;
        // Whoever sees the Initials can make a handshake fail (RFC 9000 §21.2); it must
        // not hang, and the endpoint's other connections must not suffer.
        match attempt {
            Attempt::Succeeded => {}
            Attempt::Failed => tally.with(|tally| tally.handshakes_failed += 1),
            Attempt::Hung => {
                let outcome = Err("a handshake never ended".to_owned());
                tally.with(|tally| tally.add_victim(began.elapsed(), outcome));
            }
        }
        let began = Instant::now();
        let outcome = patient(get(&client, world.server.port(), small)).await;
        tally.with(|tally| tally.add_victim(began.elapsed(), outcome));
        tokio::time::sleep(ATTEMPT_EVERY).await;
    }
}

/// Makes a client that gives up a handshake after [`HANDSHAKE_TIMEOUT`].
fn impatient_client(from: SocketAddr, world: &World) -> Result<Client, BoxError> {
    let mut transport = Config::default();
    transport.handshake_timeout = HANDSHAKE_TIMEOUT;
    let config = ClientConfig::with_roots(&world.site.certificate_pem)?.transport(transport);
    client_with(config, from, NAME, world.server)
}

/// The outcome of a handshake and a request.
enum Attempt {
    Succeeded,
    Failed,
    Hung,
}

/// Sends a request to a host name of its own, which makes a new connection.
async fn attempt(client: &Client, number: u64, relay: SocketAddr, file: &Known) -> Attempt {
    let host = format!("n{number}.siege.test");
    client.resolve(&host, relay.port(), [relay]);
    let request = get_from(client, &host, relay.port(), file);
    match timeout(PATIENCE, request).await {
        Ok(Ok(())) => Attempt::Succeeded,
        Ok(Err(_)) => Attempt::Failed,
        Err(_) => Attempt::Hung,
    }
}

/// Runs `clearway get` through the relay: it must end with a documented exit code.
async fn run_commands(
    relay: SocketAddr,
    world: World,
    tally: SharedTally,
    stopped: watch::Receiver<bool>,
) {
    on_schedule(PROCESS_EVERY, stopped, move |_| {
        let (world, tally) = (world.clone(), tally.clone());
        async move {
            let began = Instant::now();
            let outcome = run_command(relay, &world).await;
            tally.with(|tally| {
                tally.handshakes_failed += u64::from(matches!(outcome, Ok(1..)));
                tally.add_victim(began.elapsed(), outcome.map(|_| ()));
            });
        }
    })
    .await;
}

/// Runs `clearway get` once and returns its exit code.
///
/// # Errors
/// If it panicked, was killed by a signal, or did not end.
async fn run_command(relay: SocketAddr, world: &World) -> Result<i32, String> {
    let port = relay.port();
    let mut child = Command::new(&world.program)
        .args(["get", "--silent", "--cacert"])
        .arg(world.site.certificate())
        .arg("--resolve")
        .arg(format!("{NAME}:{port}:{}", relay.ip()))
        .arg(format!("https://{NAME}:{port}{}", world.site.small.path))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        // An error message or a panic fits into the pipe.
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let mut said = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    // A message that is not UTF-8 is no panic.
                    let _ = stderr.read_to_string(&mut said);
                }
                return match status.code() {
                    Some(code @ 0..=LAST_EXIT_CODE) if !said.contains("panicked") => Ok(code),
                    _ => {
                        // The place and the message of a panic; a backtrace may follow.
                        let first: Vec<_> = said.trim().lines().take(2).collect();
                        Err(format!("clearway get: {status}: {}", first.join(" ")))
                    }
                };
            }
            Ok(None) if Instant::now() < deadline => tokio::time::sleep(POLL).await,
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("clearway get never ended".to_owned());
            }
        }
    }
}

/// Awaits a request with the long timeout.
async fn patient(request: impl Future<Output = Result<(), BoxError>>) -> Result<(), String> {
    match timeout(PATIENCE, request).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err("timed out".to_owned()),
    }
}
