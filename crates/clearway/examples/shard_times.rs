//! What two shards carry, seen on any number of cores: the processor time each
//! shard's thread takes for the same requests. A shard is one thread, so a server
//! carries as many requests as its busiest thread has time for; who else runs on
//! the machine, the client first of all, does not count.
//!
//! ```sh
//! cargo run --release -p clearway --example shard_times -- 100000
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use axum::Router;
use axum::routing::get;
use clearway::http::{Client, Server};
use clearway::{ClientConfig, DevelopmentIdentity, ServerConfig};

/// Clients, each with a connection of its own: so many that the kernel's dice
/// spread them almost evenly.
const CLIENTS: usize = 64;

/// Requests of each client at once.
const AT_ONCE: usize = 4;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [serve, shards] = &arguments[..]
        && serve == "serve"
    {
        return serve_on(shards.parse()?).await;
    }
    let requests = arguments.first().map_or(Ok(20_000), |text| text.parse())?;
    let one = busiest(1, requests).await?;
    let two = busiest(2, requests).await?;
    println!(
        "two shards carry {:.2} times what one carries",
        one as f64 / two as f64
    );
    Ok(())
}

async fn serve_on(shards: usize) -> Result<(), Box<dyn Error>> {
    let identity = DevelopmentIdentity::generate(["localhost"])?;
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
    let server = Server::builder("127.0.0.1:0".parse()?, config)
        .shards(shards)
        .handlers_on_shards()
        .build()?;
    println!("{}", server.local_addr().port());
    server
        .serve(Router::new().route("/", get(async || "hello")))
        .await;
    Ok(())
}

/// Ticks of processor time that the busiest shard of `shards` took.
async fn busiest(shards: usize, requests: usize) -> Result<u64, Box<dyn Error>> {
    let mut server = Command::new(std::env::current_exe()?)
        .args(["serve", &shards.to_string()])
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = server.stdout.take().ok_or("the server has no output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let url = format!("https://localhost:{}/", line.trim());
    let result = load(&url, requests, server.id()).await;
    server.kill()?;
    server.wait()?;
    let ticks = result?;
    for (shard, ticks) in &ticks {
        println!("{shards} shards: {shard} took {ticks} ticks for its part of {requests}");
    }
    Ok(ticks.into_values().max().ok_or("no shards")?.max(1))
}

async fn load(
    url: &str,
    requests: usize,
    server: u32,
) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = Client::new(ClientConfig::dangerous_accept_any_certificate())?;
        // The handshake is not what is measured.
        client.connect(&url.parse()?).await?;
        clients.push(client);
    }
    let before = shard_times(server)?;
    let asking: Vec<_> = (0..CLIENTS * AT_ONCE)
        .map(|n| {
            let (client, url) = (clients[n % CLIENTS].clone(), url.to_owned());
            tokio::spawn(async move {
                for _ in 0..requests / CLIENTS / AT_ONCE {
                    let mut response = client.get(&url).await?;
                    response.body_mut().text(100).await?;
                }
                Ok::<_, clearway::http::Error>(())
            })
        })
        .collect();
    for task in asking {
        task.await??;
    }
    let mut after = shard_times(server)?;
    for (shard, ticks) in &mut after {
        *ticks -= before.get(shard).copied().unwrap_or(0);
    }
    Ok(after)
}

/// Ticks of processor time that each shard's thread has taken: user and system
/// (proc(5), fields 14 and 15 of `stat`).
fn shard_times(process: u32) -> Result<BTreeMap<String, u64>, Box<dyn Error>> {
    let mut times = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
        let name = stat.split(['(', ')']).nth(1).ok_or("no name")?;
        if !name.starts_with("clearway-") {
            continue;
        }
        let (_, rest) = stat.rsplit_once(") ").ok_or("no fields")?;
        let ticks = rest.split(' ').skip(11).take(2).map(str::parse::<u64>);
        times.insert(name.to_owned(), ticks.sum::<Result<u64, _>>()?);
    }
    Ok(times)
}
