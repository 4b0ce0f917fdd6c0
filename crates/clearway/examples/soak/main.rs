//! A soak test: mixed traffic for any length of time, over networks that lose,
//! reorder, corrupt and rebind, with key updates from both sides. Every byte is
//! checked, every request ends complete or with an error that the soak caused, and
//! the memory of server and clients must not grow.
//!
//! ```sh
//! cargo run --release -p clearway --example soak -- 3600 1    # seconds, seed
//! ```
//!
//! Prints a line every ten seconds, at the end a summary as one line of JSON and
//! in words, and ends with 1 if anything was lost or grew.

mod bare;
mod pattern;
mod relay;
mod server;
mod tally;
mod visitor;

use clearway::http::BoxError;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clearway::{ClientConfig, Fingerprint};
use clearway_links::Dice;
use tokio::time::Instant;

use crate::tally::{Memory, Tally};
use crate::visitor::{Kind, Visitor};

/// Clients that keep one connection busy for the whole run.
const BUSY: u64 = 3;

/// The default duration of a run, in seconds.
const DEFAULT_SECONDS: u64 = 20;

/// Time between two short-lived clients: longer than their network keeps its address for a
/// handshake.
const PASSING: Duration = Duration::from_secs(3);

/// Time between two measurements of memory; less in a short run.
const SAMPLE: Duration = Duration::from_secs(10);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, BoxError> {
    let mut arguments = std::env::args().skip(1);
    let first = arguments.next();
    if first.as_deref() == Some("serve") {
        server::serve().await?;
        return Ok(ExitCode::SUCCESS);
    }
    let seconds = first.map_or(Ok(DEFAULT_SECONDS), |text| text.parse())?;
    let seed = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let (mut child, site) = Site::start()?;
    let result = soak(&site, seconds, seed).await;
    child.kill()?;
    child.wait()?;
    Ok(if result? {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The server's process.
struct Site {
    http: SocketAddr,
    bare: SocketAddr,
    fingerprint: Fingerprint,
    process: u32,
}

impl Site {
    fn start() -> Result<(Child, Self), BoxError> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("serve")
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().ok_or("the server has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let [http, bare, fingerprint] = words[..] else {
            return Err(format!("the server says {line:?}").into());
        };
        let site = Self {
            http: http.parse()?,
            bare: bare.parse()?,
            fingerprint: fingerprint.parse()?,
            process: child.id(),
        };
        Ok((child, site))
    }

    fn trust(&self) -> ClientConfig {
        ClientConfig::with_fingerprint(self.fingerprint)
    }
}

/// Makes a run. Returns whether nothing was lost and memory did not grow.
async fn soak(site: &Site, seconds: u64, seed: u64) -> Result<bool, BoxError> {
    let tally = Arc::new(Tally::new());
    let network = Arc::new(relay::Counts::default());
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut busy = tokio::task::JoinSet::new();
    for n in 0..BUSY {
        let seed = seed * 1_000 + n * 100;
        let way = relay::start(site.http, seed, network.clone()).await?;
        let name = format!("client {n}");
        let visitor = Visitor::new(name, way.port(), site.trust(), tally.clone(), true)?;
        for (turn, (kind, pause)) in (1..).zip(Kind::BUSY) {
            let visitor = visitor.clone();
            busy.spawn(visitor.keep_asking(kind, pause, seed + turn, until));
        }
        let migrating = visitor.keep_asking(Kind::Migration, 15_000, seed + 50, until);
        busy.spawn(migrating);
    }
    // Long pauses: the connection becomes idle in between, and is rebound meanwhile.
    let way = relay::start(site.http, seed * 1_000 + 400, network.clone()).await?;
    let quiet = Visitor::new(
        "quiet".into(),
        way.port(),
        site.trust(),
        tally.clone(),
        true,
    )?;
    busy.spawn(quiet.keep_asking(Kind::Get, 12_000, seed + 60, until));
    let way = relay::start(site.http, seed * 1_000 + 500, network.clone()).await?;
    busy.spawn(come_and_go(
        way.port(),
        site.trust(),
        tally.clone(),
        seed,
        until,
    ));
    let way = relay::start(site.bare, seed * 1_000 + 600, network.clone()).await?;
    let bare = bare::keep_busy(way, site.trust(), tally.clone(), seed, until);
    let (bare_tally, seed) = (tally.clone(), seed);
    busy.spawn(async move {
        if let Err(error) = bare.await {
            bare_tally.lost(format!("bare client: {error}"));
        }
    });
    let mut memory = [site.process, std::process::id()].map(Memory::of);
    let pause = SAMPLE.min(Duration::from_secs(seconds) / 30);
    let watching = watch(&tally, &network, &mut memory, pause);
    tokio::select! {
        () = watching => {}
        () = async { while let Some(ended) = busy.join_next().await {
            if let Err(error) = ended {
                tally.lost(error.to_string());
            }
        } } => {}
    }
    settle(site, &tally).await?;
    Ok(summarise(&tally, &network, &memory, seconds, seed))
}

/// Clients that connect, ask a little and leave: every other one resumes the
/// session of the one before.
async fn come_and_go(
    port: u16,
    config: ClientConfig,
    tally: Arc<Tally>,
    seed: u64,
    until: Instant,
) {
    let mut dice = Dice::new(seed, 99);
    let mut config = config;
    while Instant::now() < until {
        if dice.below(2) == 0 {
            config = config.sessions(Arc::default());
        }
        let visitor = Visitor::new(
            "passer-by".into(),
            port,
            config.clone(),
            tally.clone(),
            false,
        );
        let visitor = match visitor {
            Ok(visitor) => visitor,
            Err(error) => return tally.lost(format!("passer-by: {error}")),
        };
        tally.counts().connections += 1;
        for kind in [Kind::Get, Kind::Echo, Kind::GivenUp, Kind::Get] {
            visitor.ask(kind, &mut dice).await;
        }
        if dice.below(2) == 0 {
            visitor.leave().await;
        }
        tokio::time::sleep(PASSING).await;
    }
}

/// Measures memory, and prints the progress.
async fn watch(tally: &Tally, network: &relay::Counts, memory: &mut [Memory; 2], pause: Duration) {
    loop {
        tokio::time::sleep(pause).await;
        let at = tally.elapsed();
        let [server, client] = memory.each_mut().map(|memory| memory.sample(at) / 1024);
        let counts = tally.counts();
        println!(
            "{at:7.1} s: {} asked, {} lost, {} rebinds, server {server} KiB, clients {client} KiB",
            counts.asked(),
            counts.lost.len(),
            network.rebinds.load(Ordering::Relaxed),
        );
    }
}

/// Checks that the server has no connections left except the one that asks.
async fn settle(site: &Site, tally: &Arc<Tally>) -> Result<(), BoxError> {
    let name = "census".to_owned();
    let visitor = Visitor::new(name, site.http.port(), site.trust(), tally.clone(), false)?;
    let mut left = [0; 3];
    // Clients that left without a close are gone after the idle timeout.
    for _ in 0..60 {
        left = visitor.census().await?;
        if left[..2] == [1, 0] {
            println!("at the server {} uploads ended in an error", left[2]);
            return Ok(());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let [connections, alive, _] = left;
    tally.lost(format!(
        "at the server {connections} connections and {alive} handlers are left"
    ));
    Ok(())
}

/// Prints the result. Returns whether it is as expected.
fn summarise(
    tally: &Tally,
    network: &relay::Counts,
    memory: &[Memory; 2],
    seconds: u64,
    seed: u64,
) -> bool {
    let counts = tally.counts();
    let [server, client] = memory;
    let flat = server.is_flat() && client.is_flat();
    let (lost, unanswered) = (counts.lost.len(), counts.unanswered());
    let good = flat && lost == 0 && unanswered == 0;
    let (asked, bytes) = (counts.asked(), counts.bytes());
    let rebinds = network.rebinds.load(Ordering::Relaxed);
    let datagrams = network.datagrams.load(Ordering::Relaxed);
    println!(
        "{{\"seconds\":{seconds},\"seed\":{seed},\"good\":{good},\"asked\":{asked},\"lost\":{lost},\
         \"unanswered\":{unanswered},\"bytes\":{bytes},\"connections\":{},\"rebinds\":{rebinds},\
         \"datagrams\":{datagrams},\"server\":{},\"clients\":{},\"kinds\":{}}}",
        counts.connections,
        server.json(),
        client.json(),
        tally::json(&counts),
    );
    for (kind, count) in &counts.kinds {
        println!(
            "{kind:24} {:8} asked {:8} whole {:12} bytes {:?}",
            count.asked, count.whole, count.bytes, count.caused
        );
    }
    println!(
        "{asked} asked on {} connections, {bytes} bytes checked, {rebinds} rebinds, \
         {datagrams} datagrams relayed",
        counts.connections
    );
    println!("server: {}", server.json());
    println!("clients: {}", client.json());
    for what in counts.lost.iter().take(20) {
        println!("LOST {what}");
    }
    println!("{}", if good { "nothing lost" } else { "NOT GOOD" });
    good
}
