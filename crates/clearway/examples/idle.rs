//! The memory of an idle connection: opens many, completes their handshakes, and prints by how
//! much the resident memory of server and client grew for each.
//!
//! ```sh
//! cargo run --release -p clearway --example idle -- 10000          # bare QUIC
//! cargo run --release -p clearway --example idle -- 10000 --http3
//! ```
//!
//! Over HTTP/3, every connection has answered a request before it becomes idle. At the end all
//! of them must still be open at both ends: a run that exceeds the idle timeout fails.

use std::error::Error;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use clearway::http::{Client, Server};
use clearway::{ClientConfig, Connection, DevelopmentIdentity, Endpoint, ServerConfig};

/// Connections whose handshakes run at once.
const AT_ONCE: usize = 32;

/// Connections before the first measurement, so that one-time costs of the process are not
/// counted.
const WARM_UP: usize = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let http3 = arguments.iter().any(|argument| argument == "--http3");
    match arguments.first().map(String::as_str) {
        Some("serve") if http3 => serve_http3().await,
        Some("serve") => serve().await,
        Some(count) if count != "--http3" => measure(count.parse()?, http3).await,
        _ => measure(10_000, http3).await,
    }
}

fn server_config() -> Result<ServerConfig, Box<dyn Error>> {
    let identity = DevelopmentIdentity::generate(["localhost"])?;
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
    Ok(config)
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let server = Endpoint::server("127.0.0.1:0".parse()?, server_config()?.alpn(["idle"]))?;
    println!("{}", server.local_addr());
    tell(server.clone());
    let stay = async |connection: Connection| drop(connection.closed().await);
    server.serve(stay).await?;
    Ok(())
}

/// Prints how many connections are open whenever it reads a line.
fn tell(server: Endpoint) {
    std::thread::spawn(move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            println!("{}", server.open_connections());
        }
    });
}

async fn serve_http3() -> Result<(), Box<dyn Error>> {
    // Reachable at every address of the loopback network.
    let server = Server::bind("0.0.0.0:0".parse()?, server_config()?)?;
    println!("127.0.0.1:{}", server.local_addr().port());
    tell(server.endpoint().clone());
    let router = Router::new().route("/", get(async || "hello"));
    server.serve(router).await?;
    Ok(())
}

async fn measure(count: usize, http3: bool) -> Result<(), Box<dyn Error>> {
    let mut server = ServerProcess::start(http3)?;
    let config = ClientConfig::dangerous_accept_any_certificate();
    let result = if http3 {
        let crowd = Crowd::Http3(0, Client::bind("0.0.0.0:0".parse()?, config)?);
        open(crowd, count, &mut server).await
    } else {
        let client = Endpoint::client("127.0.0.1:0".parse()?, config.alpn(["idle"]))?;
        let crowd = Crowd::Bare(Vec::new(), client);
        open(crowd, count, &mut server).await
    };
    server.process.kill()?;
    server.process.wait()?;
    result
}

/// The server, in a process of its own so that its memory can be measured.
struct ServerProcess {
    process: Child,
    says: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl ServerProcess {
    fn start(http3: bool) -> Result<Self, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .arg("serve")
            .args(http3.then_some("--http3"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdout = process.stdout.take().ok_or("the server has no output")?;
        let mut says = BufReader::new(stdout);
        let mut line = String::new();
        says.read_line(&mut line)?;
        Ok(Self {
            process,
            says,
            address: line.trim().parse()?,
        })
    }

    fn open_connections(&mut self) -> Result<usize, Box<dyn Error>> {
        let stdin = self.process.stdin.as_mut();
        stdin.ok_or("the server has no input")?.write_all(b"\n")?;
        let mut line = String::new();
        self.says.read_line(&mut line)?;
        Ok(line.trim().parse()?)
    }

    fn resident(&self) -> Result<u64, Box<dyn Error>> {
        resident(self.process.id())
    }
}

/// The open connections, all from one socket.
enum Crowd {
    Bare(Vec<Connection>, Endpoint),
    /// Opens this number of connections. A client keeps one connection to each authority, so
    /// each goes to another address of the server.
    Http3(usize, Client),
}

async fn open(
    mut crowd: Crowd,
    count: usize,
    server: &mut ServerProcess,
) -> Result<(), Box<dyn Error>> {
    crowd.grow(server.address, WARM_UP).await?;
    let before = (server.resident()?, resident(std::process::id())?);
    crowd.grow(server.address, count).await?;
    let after = (server.resident()?, resident(std::process::id())?);
    let alive = (server.open_connections()?, crowd.alive());
    if alive != (crowd.len(), crowd.len()) {
        let (there, here) = alive;
        let all = crowd.len();
        return Err(format!(
            "of {all} connections {there} are open at the server and {here} at the client: \
             the run has outlasted the idle timeout"
        )
        .into());
    }
    let each =
        |before: u64, after: u64| after.saturating_sub(before) as f64 / 1024.0 / count as f64;
    println!(
        "{count} idle connections: server {:.1} KiB, client {:.1} KiB each",
        each(before.0, after.0),
        each(before.1, after.1)
    );
    Ok(())
}

impl Crowd {
    fn len(&self) -> usize {
        match self {
            Self::Bare(kept, _) => kept.len(),
            Self::Http3(kept, _) => *kept,
        }
    }

    /// Returns how many have not ended.
    fn alive(&self) -> usize {
        match self {
            Self::Bare(kept, _) => {
                let open = kept.iter().filter(|kept| kept.close_reason().is_none());
                open.count()
            }
            Self::Http3(_, client) => client.endpoint().open_connections(),
        }
    }

    async fn grow(&mut self, address: SocketAddr, count: usize) -> Result<(), Box<dyn Error>> {
        let target = self.len() + count;
        while self.len() < target {
            let batch = AT_ONCE.min(target - self.len());
            match self {
                Self::Bare(kept, client) => {
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
                Self::Http3(kept, client) => {
                    let visits: Vec<_> = (*kept..*kept + batch)
                        .map(|n| {
                            let host = Ipv4Addr::from_bits(0x7f00_0001 + n as u32);
                            tokio::spawn(visit(client.clone(), (host, address.port()).into()))
                        })
                        .collect();
                    for visit in visits {
                        visit.await??;
                        *kept += 1;
                    }
                }
            }
        }
        // Wait for tickets, confirmations and the last acknowledgements.
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok(())
    }
}

/// Sends a request over HTTP/3; the connection stays open.
async fn visit(client: Client, server: SocketAddr) -> Result<(), clearway::http::Error> {
    let mut response = client.get(&format!("https://{server}/")).await?;
    response.body_mut().text(100).await?;
    Ok(())
}

/// Returns the resident memory of a process, in bytes.
fn resident(process: u32) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS")?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}
