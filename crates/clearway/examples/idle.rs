//! What an idle connection costs: opens many, all handshakes done, and prints
//! how much the resident memory of server and client grew by each.
//!
//! ```sh
//! cargo run --release -p clearway --example idle -- 10000
//! ```

use std::error::Error;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use clearway::{ClientConfig, Connection, DevelopmentIdentity, Endpoint, ServerConfig};

/// Connections whose handshakes run at once.
const AT_ONCE: usize = 32;

/// Connections before the first look: what a process needs once is not theirs.
const WARM_UP: usize = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let argument = std::env::args().nth(1);
    match argument.as_deref() {
        Some("serve") => serve().await,
        Some(count) => measure(count.parse()?).await,
        None => measure(10_000).await,
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let identity = DevelopmentIdentity::generate(["localhost"])?;
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
    let server = Endpoint::server("127.0.0.1:0".parse()?, config.alpn(["idle"]))?;
    println!("{}", server.local_addr());
    let stay = async |connection: Connection| drop(connection.closed().await);
    server.serve(stay).await;
    Ok(())
}

async fn measure(count: usize) -> Result<(), Box<dyn Error>> {
    let mut server = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let stdout = server.stdout.take().ok_or("the server has no output")?;
    BufReader::new(stdout).read_line(&mut line)?;
    let address: SocketAddr = line.trim().parse()?;
    let result = open(address, count, server.id()).await;
    server.kill()?;
    server.wait()?;
    result
}

async fn open(address: SocketAddr, count: usize, server: u32) -> Result<(), Box<dyn Error>> {
    let config = ClientConfig::dangerous_accept_any_certificate().alpn(["idle"]);
    let client = Endpoint::client("127.0.0.1:0".parse()?, config)?;
    let mut kept = Vec::with_capacity(WARM_UP + count);
    connect(&client, address, WARM_UP, &mut kept).await?;
    let before = (resident(server)?, resident(std::process::id())?);
    connect(&client, address, count, &mut kept).await?;
    let after = (resident(server)?, resident(std::process::id())?);
    let each =
        |before: u64, after: u64| after.saturating_sub(before) as f64 / 1024.0 / count as f64;
    println!(
        "{count} idle connections: server {:.1} KiB, client {:.1} KiB each",
        each(before.0, after.0),
        each(before.1, after.1)
    );
    Ok(())
}

async fn connect(
    client: &Endpoint,
    address: SocketAddr,
    count: usize,
    kept: &mut Vec<Connection>,
) -> Result<(), Box<dyn Error>> {
    let target = kept.len() + count;
    while kept.len() < target {
        let batch = AT_ONCE.min(target - kept.len());
        let handshakes: Vec<_> = (0..batch)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.connect(address, "localhost").await })
            })
            .collect();
        for handshake in handshakes {
            kept.push(handshake.await??);
        }
    }
    // Tickets, confirmations and the last acknowledgements.
    tokio::time::sleep(Duration::from_secs(3)).await;
    Ok(())
}

/// Resident bytes of a process.
fn resident(process: u32) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}
