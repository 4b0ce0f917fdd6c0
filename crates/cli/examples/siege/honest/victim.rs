//! Clients who are attacked themselves, on their way through a relay.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::time::Duration;

use clearway::http::{BoxError, Client};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::client::{NAME, client, get, get_from};
use super::{Ledger, World, on_schedule};
use crate::attack::Victims;
use crate::site::Known;

/// How long a transfer of a victim may take: its packets go astray now and then.
const PATIENCE: Duration = Duration::from_secs(30);

/// Between two transfers that a victim begins.
const TRANSFER_EVERY: Duration = Duration::from_millis(250);

/// Between two attempts of a victim to connect.
const ATTEMPT_EVERY: Duration = Duration::from_millis(150);

/// Between two victims that are processes.
const PROCESS_EVERY: Duration = Duration::from_millis(700);

/// Between two looks whether a process has ended.
const GLANCE: Duration = Duration::from_millis(20);

/// The last of the exit codes with which `clearway get` says what went wrong.
const LAST_KNOWN_CODE: i32 = 10;

/// The victims of one attacker, as tasks.
pub(super) fn spawn(
    tasks: &mut JoinSet<()>,
    number: usize,
    victims: Victims,
    relay: SocketAddr,
    world: &World,
    ledger: &Ledger,
    stopped: &watch::Receiver<bool>,
) {
    let from = (Ipv4Addr::new(127, 2, 0, number as u8 + 1), 0).into();
    let (world, ledger, stopped) = (world.clone(), ledger.clone(), stopped.clone());
    match victims {
        Victims::None => {}
        Victims::Transfers => {
            tasks.spawn(transfer(from, relay, world, ledger, stopped));
        }
        Victims::Handshakes => {
            tasks.spawn(run_commands(
                relay,
                world.clone(),
                ledger.clone(),
                stopped.clone(),
            ));
            tasks.spawn(connect(from, relay, world, ledger, stopped));
        }
    }
}

/// Downloads through the relay; all has to arrive.
async fn transfer(
    from: SocketAddr,
    relay: SocketAddr,
    world: World,
    ledger: Ledger,
    stopped: watch::Receiver<bool>,
) {
    let client = match client(from, NAME, relay, &world.site) {
        Ok(client) => client,
        Err(error) => return ledger.with(|tally| tally.break_down(error.to_string())),
    };
    on_schedule(TRANSFER_EVERY, stopped, move |_| {
        let (client, world, ledger) = (client.clone(), world.clone(), ledger.clone());
        async move {
            let began = Instant::now();
            let file = &world.site.large[0];
            let outcome = patient(get(&client, relay.port(), file)).await;
            ledger.with(|tally| tally.add_victim(began.elapsed(), outcome));
        }
    })
    .await;
}

/// Connects through the relay again and again, by one endpoint, which goes on
/// serving a connection to the server that nobody touches.
async fn connect(
    from: SocketAddr,
    relay: SocketAddr,
    world: World,
    ledger: Ledger,
    mut stopped: watch::Receiver<bool>,
) {
    let client = match client(from, NAME, world.server, &world.site) {
        Ok(client) => client,
        Err(error) => return ledger.with(|tally| tally.break_down(error.to_string())),
    };
    for number in 0_u64.. {
        if *stopped.borrow_and_update() {
            return;
        }
        let small = &world.site.small;
        let began = Instant::now();
        let attempt = attempt(&client, number, relay, small).await;
        // It may fail, since who reads the handshake may spoil it; it must not hang,
        // and neither hurts the rest of the endpoint.
        match attempt {
            Attempt::Succeeded => {}
            Attempt::Foiled => ledger.with(|tally| tally.foiled += 1),
            Attempt::Hung => {
                let outcome = Err("an attempt to connect never ended".to_owned());
                ledger.with(|tally| tally.add_victim(began.elapsed(), outcome));
            }
        }
        let began = Instant::now();
        let outcome = patient(get(&client, world.server.port(), small)).await;
        ledger.with(|tally| tally.add_victim(began.elapsed(), outcome));
        tokio::time::sleep(ATTEMPT_EVERY).await;
    }
}

/// How an attempt to connect ended.
enum Attempt {
    Succeeded,
    Foiled,
    Hung,
}

/// A request to a host of its own, so that it needs a new connection.
async fn attempt(client: &Client, number: u64, relay: SocketAddr, file: &Known) -> Attempt {
    let host = format!("n{number}.siege.test");
    client.resolve(&host, relay.port(), [relay]);
    let request = get_from(client, &host, relay.port(), file);
    match timeout(PATIENCE, request).await {
        Ok(Ok(())) => Attempt::Succeeded,
        Ok(Err(_)) => Attempt::Foiled,
        Err(_) => Attempt::Hung,
    }
}

/// `clearway get` through the relay: it has to end, and to say how.
async fn run_commands(
    relay: SocketAddr,
    world: World,
    ledger: Ledger,
    stopped: watch::Receiver<bool>,
) {
    on_schedule(PROCESS_EVERY, stopped, move |_| {
        let (world, ledger) = (world.clone(), ledger.clone());
        async move {
            let began = Instant::now();
            let outcome = run_command(relay, &world).await;
            ledger.with(|tally| {
                tally.foiled += u64::from(matches!(outcome, Ok(1..)));
                tally.add_victim(began.elapsed(), outcome.map(|_| ()));
            });
        }
    })
    .await;
}

/// One run of `clearway get`: its exit code, if it is one of those that it may have.
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
        // A line at most, or the words of a panic: the pipe holds either.
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| error.to_string())?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                let mut said = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    // What is no text is no panic either.
                    let _ = stderr.read_to_string(&mut said);
                }
                return match status.code() {
                    Some(code @ 0..=LAST_KNOWN_CODE) if !said.contains("panicked") => Ok(code),
                    _ => {
                        // The words of a panic and their place; a backtrace may follow.
                        let first: Vec<_> = said.trim().lines().take(2).collect();
                        Err(format!("clearway get: {status}: {}", first.join(" ")))
                    }
                };
            }
            Ok(None) if Instant::now() < deadline => tokio::time::sleep(GLANCE).await,
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err("clearway get never ended".to_owned());
            }
        }
    }
}

/// A request that may take long.
async fn patient(request: impl Future<Output = Result<(), BoxError>>) -> Result<(), String> {
    match timeout(PATIENCE, request).await {
        Ok(outcome) => outcome.map_err(|error| error.to_string()),
        Err(_) => Err("no answer in time".to_owned()),
    }
}
