//! Clients of the server, each with a source address of its own.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use clearway::ClientConfig;
use clearway::http::{BoxError, Client};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::tally::Class;
use super::{SharedTally, World, on_schedule};
use crate::site::{Known, Site};

/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// The host name that clients use, except attacked ones that need new connections.
pub(super) const NAME: &str = "localhost";

/// A client with a persistent connection: the last byte of its address, what it asks
/// for and how often.
#[derive(Clone, Copy)]
struct Resident {
    number: u8,
    class: Class,
    every: Duration,
}

/// The clients with persistent connections.
const RESIDENTS: [Resident; 7] = [
    Resident::new(1, Class::Small, 25),
    Resident::new(2, Class::Small, 25),
    Resident::new(3, Class::Small, 25),
    Resident::new(4, Class::Small, 25),
    Resident::new(5, Class::Large, 250),
    Resident::new(6, Class::Large, 250),
    Resident::new(7, Class::Upload, 120),
];

/// Interval between two new clients.
const NEWCOMER_EVERY: Duration = Duration::from_millis(80);

/// Size of an upload, bytes.
const UPLOAD: usize = 256 << 10;

impl Resident {
    const fn new(number: u8, class: Class, every_millis: u64) -> Self {
        Self {
            number,
            class,
            every: Duration::from_millis(every_millis),
        }
    }
}

/// Address of a client with a persistent connection: 127.1.0.x.
fn resident_address(number: u8) -> SocketAddr {
    (Ipv4Addr::new(127, 1, 0, number), 0).into()
}

/// Address of a new client: 127.1.(1 to 250).x.
fn newcomer_address(number: u64) -> SocketAddr {
    let [high, low] = [number / 250 % 250 + 1, number % 250 + 1].map(|part| part as u8);
    (Ipv4Addr::new(127, 1, high, low), 0).into()
}

/// Makes a client that connects to `server` for the name `host`.
pub(super) fn client(
    from: SocketAddr,
    host: &str,
    server: SocketAddr,
    site: &Site,
) -> Result<Client, BoxError> {
    let config = ClientConfig::with_roots(&site.certificate_pem)?;
    client_with(config, from, host, server)
}

/// The same, with this configuration.
pub(super) fn client_with(
    config: ClientConfig,
    from: SocketAddr,
    host: &str,
    server: SocketAddr,
) -> Result<Client, BoxError> {
    let client = Client::bind(from, config)?;
    client.resolve(host, server.port(), [server]);
    Ok(client)
}

/// Checks that a new client is served within `patience`.
pub(crate) fn answers(server: SocketAddr, site: &Site, patience: Duration) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let deadline = Instant::now() + patience;
        loop {
            let asked = timeout(patience, newcomer(0, server, site)).await;
            match asked.unwrap_or_else(|_| Err("timed out".into())) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() >= deadline => return Err(error.to_string()),
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    })
}

/// Spawns all well-behaved clients.
pub(super) fn spawn_all(
    tasks: &mut JoinSet<()>,
    world: &World,
    tally: &SharedTally,
    stopped: &watch::Receiver<bool>,
) {
    for resident in RESIDENTS {
        tasks.spawn(stay(
            resident,
            world.clone(),
            tally.clone(),
            stopped.clone(),
        ));
    }
    let (world, tally, stopped) = (world.clone(), tally.clone(), stopped.clone());
    tasks.spawn(on_schedule(NEWCOMER_EVERY, stopped, move |number| {
        let (world, tally) = (world.clone(), tally.clone());
        async move {
            let request = newcomer(number, world.server, &world.site);
            measure(&tally, Class::Newcomer, request).await;
        }
    }));
}

/// Runs a client with a persistent connection. After a failure it makes a new one.
async fn stay(
    resident: Resident,
    world: World,
    tally: SharedTally,
    stopped: watch::Receiver<bool>,
) {
    let make = {
        let world = world.clone();
        move || {
            client(
                resident_address(resident.number),
                NAME,
                world.server,
                &world.site,
            )
        }
    };
    let current = Arc::new(Mutex::new(None::<Client>));
    on_schedule(resident.every, stopped, move |number| {
        let (world, tally) = (world.clone(), tally.clone());
        let (current, make) = (current.clone(), make.clone());
        async move {
            let request = async {
                let client = lock(&current).take().map_or_else(make, Ok)?;
                *lock(&current) = Some(client.clone());
                let asked = ask(&client, resident, number, &world);
                let outcome = timeout(PATIENCE, asked).await;
                let outcome = outcome.unwrap_or_else(|_| Err("timed out".into()));
                if outcome.is_err() {
                    *lock(&current) = None;
                }
                outcome
            };
            measure(&tally, resident.class, request).await;
        }
    })
    .await;
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends the `number`th request of a client with a persistent connection.
async fn ask(
    client: &Client,
    resident: Resident,
    number: u64,
    world: &World,
) -> Result<(), BoxError> {
    let (server, site) = (world.server, &world.site);
    match resident.class {
        Class::Small | Class::Newcomer => get(client, server.port(), &site.small).await,
        Class::Large => {
            let file = &site.large[number as usize % site.large.len()];
            get(client, server.port(), file).await
        }
        Class::Upload => put(client, server.port(), number, site).await,
    }
}

/// Gets the small file with a new client.
async fn newcomer(number: u64, server: SocketAddr, site: &Site) -> Result<(), BoxError> {
    let client = client(newcomer_address(number), NAME, server, site)?;
    let asked = timeout(PATIENCE, get(&client, server.port(), &site.small)).await;
    asked.unwrap_or_else(|_| Err("timed out".into()))
}

/// Awaits a request and adds its result to the tally.
async fn measure(
    tally: &SharedTally,
    class: Class,
    request: impl Future<Output = Result<(), BoxError>>,
) {
    let began = Instant::now();
    let outcome = request.await.map_err(|error| error.to_string());
    tally.with(|tally| tally.add(class, began.elapsed(), outcome));
}

/// Downloads a file and compares every byte.
pub(super) async fn get(client: &Client, port: u16, file: &Known) -> Result<(), BoxError> {
    get_from(client, NAME, port, file).await
}

/// Like [`get`], with another host name.
pub(super) async fn get_from(
    client: &Client,
    host: &str,
    port: u16,
    file: &Known,
) -> Result<(), BoxError> {
    let url = format!("https://{host}:{port}{}", file.path);
    let mut response = client.get(&url).await?;
    if response.status() != StatusCode::OK {
        return Err(format!("GET {}: {}", file.path, response.status()).into());
    }
    let mut at = 0;
    while let Some(chunk) = response.body_mut().chunk().await? {
        if file.content.get(at..at + chunk.len()) != Some(&chunk[..]) {
            return Err(format!("{}: content differs after byte {at}", file.path).into());
        }
        at += chunk.len();
    }
    if at != file.content.len() {
        return Err(format!("{}: content ends after {at} bytes", file.path).into());
    }
    Ok(())
}

/// Uploads a piece of the largest file and compares what the server stored.
async fn put(client: &Client, port: u16, number: u64, site: &Site) -> Result<(), BoxError> {
    let Some(source) = site.large.last() else {
        return Err("there is no file to upload".into());
    };
    let start = number as usize * 4096 % (source.content.len() - UPLOAD);
    let content: Bytes = source.content.slice(start..start + UPLOAD);
    let name = format!("upload-{number}");
    let request = Request::builder()
        .method(Method::PUT)
        .uri(format!("https://{NAME}:{port}/uploads/{name}"))
        .body(Full::new(content.clone()))?;
    let response = client.request(request).await?;
    if !response.status().is_success() {
        return Err(format!("PUT {name}: {}", response.status()).into());
    }
    let uploaded = site.uploaded(&name);
    if std::fs::read(&uploaded)? != content {
        return Err(format!("{name} is not what was uploaded").into());
    }
    std::fs::remove_file(uploaded)?;
    Ok(())
}
