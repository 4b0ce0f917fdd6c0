//! Downloads while everything behind and before the balancer changes, in both of its modes.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::fleet::{Relay, Rotation, write};
use super::quinn::Quinn;
use super::world::World;
use super::*;

const DOWNLOADS: usize = 200;
const AT_ONCE: usize = 10;
const MEDIUM: usize = 400_000;

/// Another socket for the client's endpoint, which migrates to it.
pub(super) fn migrate(client: &Client) {
    let any = match client.endpoint().local_addr().is_ipv6() {
        true => "[::]:0",
        false => "0.0.0.0:0",
    };
    let socket = UdpSocket::bind(any).unwrap();
    client.endpoint().rebind(socket).unwrap();
}

/// Downloads a file over a connection of its own.
pub(super) async fn download(url: &str, expected: &[u8]) -> Result<(), String> {
    download_by(&client(), url, expected, |_| {}).await
}

/// The same, and the client moves meanwhile.
async fn download_moving(url: &str, expected: &[u8]) -> Result<(), String> {
    // No client may move before its handshake is complete (RFC 9000 §9).
    download_by(&client(), url, expected, migrate).await
}

/// Downloads, and does something else once the response has begun.
async fn download_by(
    client: &Client,
    url: &str,
    expected: &[u8],
    meanwhile: impl FnOnce(&Client),
) -> Result<(), String> {
    let request = Request::get(url).body(Empty::<Bytes>::new()).unwrap();
    let attempt = async {
        let mut response = client.request(request).await?;
        meanwhile(client);
        response.body_mut().bytes(LARGE + 1).await
    };
    let limited = tokio::time::timeout(PATIENCE, attempt).await;
    let body = limited.map_err(|_| "no end".to_owned())?;
    let body = body.map_err(|error| format!("{error:?} {error}"))?;
    assert!(body == expected, "{} wrong bytes", body.len());
    Ok(())
}

/// Downloads, `AT_ONCE` at a time, and counts those that ended. Every second client migrates.
async fn downloads(url: String, expected: Vec<u8>, ended: Arc<AtomicUsize>) -> Vec<String> {
    let expected = Arc::new(expected);
    let workers = (0..AT_ONCE).map(|worker| {
        let (url, ended, expected) = (url.clone(), ended.clone(), expected.clone());
        tokio::spawn(async move {
            let mut failures = Vec::new();
            for _ in 0..DOWNLOADS / AT_ONCE {
                let done = match worker % 2 {
                    0 => download(&url, &expected).await,
                    _ => download_moving(&url, &expected).await,
                };
                failures.extend(done.err());
                ended.fetch_add(1, Relaxed);
            }
            failures
        })
    });
    let mut failures = Vec::new();
    for worker in workers.collect::<Vec<_>>() {
        failures.extend(worker.await.unwrap());
    }
    failures
}

async fn until(ended: &AtomicUsize, count: usize) {
    while ended.load(Relaxed) < count {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Each client is rebound twice, and every second one migrates. Meanwhile a server is drained, one
/// is added, the balancer is replaced, keys are rotated, and a server is killed: only downloads
/// from that one end early, by a stateless reset.
async fn survive_everything(world: &World) {
    let (dir, content) = (TempDir::new(), content());
    content.old_file("medium", &pattern(MEDIUM));
    write(&dir, "serve.toml", &world.quic_lb(Rotation::Announced));
    let mut sites: Vec<Site> = (1..=3)
        .map(|number| world.site(&dir, content.path(), number))
        .collect();
    let configure = |sites: &[Site], rotation| {
        write(&dir, "balance.toml", &world.balancer_file(sites, rotation));
    };
    configure(&sites, Rotation::Announced);
    let file = dir.text("balance.toml");
    let mut balance = world.balance(&dir, &["--config", &file]);
    // Handshakes should be complete by then: a server follows no client before. Each move is a
    // flow of the relay.
    let options = [
        "--rate",
        "6M",
        "--rebind",
        "250ms,400ms",
        "--max-flows",
        "4096",
    ];
    let relay = Relay::start(&balance.address, &options);
    let ended = Arc::new(AtomicUsize::new(0));
    let (path, expected) = world.file("medium", MEDIUM);
    let url = format!("{}{path}", relay.url);
    let all = tokio::spawn(downloads(url, expected, ended.clone()));

    until(&ended, 20).await;
    balance.drain("s1").unwrap();
    until(&ended, 50).await;
    sites.push(world.site(&dir, content.path(), 4));
    configure(&sites, Rotation::Announced);
    balance.wait_for(|status| status["backends"].as_array().unwrap().len() == 4);
    until(&ended, 80).await;
    let first = balance;
    balance = world.take_over(&dir, &["--config", &file]);
    until(&ended, 110).await;
    configure(&sites, Rotation::Active);
    wait_for_text(&dir.join("balance-2.log"), "configuration reloaded");
    write(&dir, "serve.toml", &world.quic_lb(Rotation::Active));
    for site in &sites {
        site.signal(Signal::HUP);
    }
    until(&ended, 150).await;
    sites[1].child.kill().unwrap();
    balance.wait_for(|status| status["backends"][1]["state"] == "down");

    let failures = all.await.unwrap();
    assert!(failures.len() <= AT_ONCE, "{failures:#?}");
    // Without a complete handshake, a client cannot know a reset from noise.
    let told =
        |failure: &&String| failure.contains("StatelessReset") || failure.starts_with("Connect ");
    let untold: Vec<_> = failures.iter().filter(|failure| !told(failure)).collect();
    // A client that only waits cannot be reached if its port changes before it is told: the relay, as a
    // NAT does, drops what comes for the old port. That happens in about one run of fifty.
    let unreachable = |failure: &&String| failure.contains("IdleTimeout");
    assert!(
        untold.len() <= 1 && untold.iter().all(unreachable),
        "{failures:#?}"
    );
    let remote = sites[3].logged()["remote"].as_str().unwrap().to_owned();
    assert!(remote.contains(world.seen_client()), "{remote}");
    let (first, second) = (first.stop(), balance.stop());
    assert!(assigned(&second)[3] > 0, "the added server takes part");
    assert!(assigned(&first)[0] > 0, "the drained server had its share");
    assert_eq!(assigned(&second)[0], 0, "it is drained after the take-over");
    println!(
        "{DOWNLOADS} downloads, {} ended with their server; flows {} and {}; reset requests {}",
        failures.len(),
        first["flows"],
        second["flows"],
        second["reset_requests"]
    );
}

fn run(world: &World) {
    world.run_clients(|| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(survive_everything(world));
    });
}

#[test]
fn downloads_survive_everything_but_the_death_of_their_server() {
    run(&World::loopback());
}

/// The same with servers on quinn, by `peers/balance.sh`.
#[test]
fn downloads_from_quinn_survive_everything_but_the_death_of_their_server() {
    if let Some(quinn) = Quinn::find() {
        run(&World::loopback().served_by(quinn));
    }
}

#[test]
fn transparent_downloads_from_quinn_survive_everything_but_the_death_of_their_server() {
    if let Some(quinn) = Quinn::find()
        && let Some(world) = World::transparent()
    {
        run(&world.served_by(quinn));
    }
}

/// Each server's replies go to the shard that has their client.
#[test]
fn transparent_downloads_by_two_shards_survive_everything_but_the_death_of_their_server() {
    if let Some(world) = World::transparent() {
        run(&world.with_shards(2));
    }
}

/// In network namespaces, with the clients' addresses kept.
#[test]
fn transparent_downloads_survive_everything_but_the_death_of_their_server() {
    if let Some(world) = World::transparent() {
        run(&world);
    }
}

#[test]
fn transparent_downloads_over_ipv6_survive_everything_but_the_death_of_their_server() {
    if let Some(world) = World::transparent_v6() {
        run(&world);
    }
}
