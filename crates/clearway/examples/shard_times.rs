//! The capacity of two shards, measured on any number of cores: the processor time that each
//! shard's thread takes for the same requests. A shard is one thread, so a server can handle
//! as many requests as its busiest thread has time for. Other processes on the machine, such
//! as the client, do not count.
//!
//! One shard and two shards alternate, and medians over the rounds are compared: the kernel
//! distributes connections at random, and the cost of a request depends on the load.
//!
//! ```sh
//! cargo run --release -p clearway --example shard_times -- 60000 7
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use clearway::http::{Client, Server};
use clearway::{ClientConfig, DevelopmentIdentity, ServerConfig};

/// Clients, each with its own connection: enough for the kernel to distribute them almost
/// evenly.
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
    let rounds = arguments
        .get(1)
        .map_or(Ok(5), |text| text.parse::<usize>())?;
    let mut ratios = Vec::new();
    for _ in 0..rounds.max(1) {
        let one = busiest(1, requests).await?;
        let two = busiest(2, requests).await?;
        ratios.push(one.as_secs_f64() / two.as_secs_f64());
        println!("two shards for one: {:.2}", ratios[ratios.len() - 1]);
    }
    ratios.sort_by(f64::total_cmp);
    println!(
        "two shards carry {:.2} times what one carries: median of {}, {:.2} to {:.2}",
        ratios[ratios.len() / 2],
        ratios.len(),
        ratios[0],
        ratios[ratios.len() - 1],
    );
    Ok(())
}

async fn serve_on(shards: usize) -> Result<(), Box<dyn Error>> {
    let identity = DevelopmentIdentity::generate(["localhost"])?;
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
    let server = Server::builder("127.0.0.1:0".parse()?, config)
        .shards(shards)
        .build()?;
    println!("{}", server.local_addr().port());
    server
        .serve(Router::new().route("/", get(async || "hello")))
        .await?;
    Ok(())
}

/// Processor time that the busiest shard of `shards` took.
async fn busiest(shards: usize, requests: usize) -> Result<Duration, Box<dyn Error>> {
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
    let times = result?;
    for (shard, time) in &times {
        println!("{shards} shards: {shard} took {time:.1?} for its part of {requests}");
    }
    Ok(times.into_values().max().ok_or("no shards")?)
}

async fn load(
    url: &str,
    requests: usize,
    server: u32,
) -> Result<BTreeMap<String, Duration>, Box<dyn Error>> {
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = Client::new(ClientConfig::dangerous_accept_any_certificate())?;
        // The handshake is not measured.
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
    for (shard, time) in &mut after {
        *time -= before.get(shard).copied().unwrap_or_default();
    }
    Ok(after)
}

/// Processor time that each shard's thread has taken (the first figure of
/// `schedstat` is in nanoseconds).
fn shard_times(process: u32) -> Result<BTreeMap<String, Duration>, Box<dyn Error>> {
    let mut times = BTreeMap::new();
    for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = thread?.path();
        let name = std::fs::read_to_string(thread.join("comm"))?;
        if !name.starts_with("clearway-") {
            continue;
        }
        let times_of = std::fs::read_to_string(thread.join("schedstat"))?;
        let running = times_of.split(' ').next().ok_or("no figures")?.parse()?;
        times.insert(name.trim_end().to_owned(), Duration::from_nanos(running));
    }
    Ok(times)
}
