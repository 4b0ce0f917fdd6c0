//! Three balancers behind one address, which a router divides clients among (ECMP): processes in
//! network namespaces.

use super::everything::migrate;
use super::fleet::{balancer_file_of, site_at};
use super::*;
use crate::common::namespace::Namespace;

const CLIENTS: usize = 48;
const BALANCERS: usize = 3;

/// The address that all balancers have.
const SERVICE: &str = "10.99.0.1";
const PORT: &str = "4433";
const SERVERS: &str = "10.98.0.2";

/// A router, and the others around it.
struct Network {
    router: Namespace,
    client: Namespace,
    servers: Namespace,
    balancers: Vec<Namespace>,
}

impl Network {
    /// `None`, with a word, where namespaces cannot be made.
    fn new() -> Option<Self> {
        let network = Self {
            router: Namespace::new()?,
            client: Namespace::new()?,
            servers: Namespace::new()?,
            balancers: (0..BALANCERS)
                .map(|_| Namespace::new())
                .collect::<Option<_>>()?,
        };
        let router = &network.router;
        router.set("ipv4/ip_forward", "1");
        // By addresses and ports, as routers in front of balancers do.
        router.set("ipv4/fib_multipath_hash_policy", "1");
        router.connect("clients", "10.97.0.1", &network.client, "10.97.0.2");
        router.connect("servers", "10.98.0.1", &network.servers, SERVERS);
        for (number, balancer) in network.balancers.iter().enumerate() {
            let device = format!("balancer{number}");
            let near = format!("10.96.{number}.1");
            router.connect(&device, &near, balancer, &gateway(number));
            let address = format!("{SERVICE}/32");
            balancer.ip(&["address", "add", &address, "dev", "lo"]);
        }
        Some(network)
    }

    /// Has the router divide clients among these balancers.
    fn route_to(&self, balancers: &[usize]) {
        let gateways: Vec<String> = balancers.iter().map(|number| gateway(*number)).collect();
        let mut arguments = vec!["route", "replace", SERVICE];
        for gateway in &gateways {
            arguments.extend(["nexthop", "via", gateway]);
        }
        self.router.ip(&arguments);
    }
}

fn gateway(balancer: usize) -> String {
    format!("10.96.{balancer}.2")
}

/// Connections that a balancer did not know and gave to a server, all in all.
fn all_assigned(balancers: &[Balance]) -> u64 {
    let statuses = balancers.iter().map(Balance::status);
    statuses
        .map(|status| assigned(&status).iter().sum::<u64>())
        .sum()
}

/// Clients whose next request fails, or needs a new connection.
async fn broken(clients: &[Client], url: &str, balancers: &[Balance], opened: &mut u64) -> u64 {
    for client in clients {
        get_small(client, url).await;
    }
    // Counts are published twenty times a second.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let all = all_assigned(balancers);
    let broken = all - *opened;
    *opened = all;
    broken
}

async fn clients_stay(network: &Network, balancers: &mut Vec<Balance>) {
    let url = format!("https://{SERVICE}:{PORT}");
    let clients: Vec<Client> = (0..CLIENTS).map(|_| client()).collect();
    let mut opened = 0;
    network.route_to(&[0, 1, 2]);
    assert_eq!(
        broken(&clients, &url, balancers, &mut opened).await,
        CLIENTS as u64
    );
    let received = |balance: &Balance| balance.status()["up"]["received"].as_u64().unwrap();
    let shares: Vec<u64> = balancers.iter().map(received).collect();
    assert!(shares.iter().all(|&share| share > 0), "{shares:?}");

    network.route_to(&[0, 2]);
    let gone = broken(&clients, &url, balancers, &mut opened).await;
    network.route_to(&[0, 1, 2]);
    let back = broken(&clients, &url, balancers, &mut opened).await;
    clients.iter().for_each(migrate);
    let moved = broken(&clients, &url, balancers, &mut opened).await;
    network.route_to(&[1, 2]);
    // Whatever it knew is lost.
    balancers.remove(0).stop();
    opened = all_assigned(balancers);
    let dead = broken(&clients, &url, balancers, &mut opened).await;
    println!(
        "{CLIENTS} connections, {BALANCERS} balancers (datagrams {shares:?}): broken when one is \
         withdrawn {gone}, when it returns {back}, when all clients move {moved}, when one ends {dead}"
    );
    assert_eq!((gone, back, moved, dead), (0, 0, 0, 0));
}

#[test]
fn connections_survive_rehashing_moves_and_the_end_of_a_balancer_behind_ecmp() {
    let Some(network) = Network::new() else {
        return;
    };
    let (dir, content) = (TempDir::new(), content());
    write(&dir, "serve.toml", &quic_lb(Rotation::Announced));
    let sites: Vec<Site> = network.servers.run(|| {
        (1..=3)
            .map(|number| site_at(&format!("{SERVERS}:0"), &dir, content.path(), number))
            .collect()
    });
    let port = |site: &Site| format!("{SERVERS}:{}", site.address().port());
    let addresses: Vec<String> = sites.iter().map(port).collect();
    let text = balancer_file_of(&addresses, &quic_lb(Rotation::Announced));
    write(&dir, "balance.toml", &text);
    let file = dir.text("balance.toml");
    // Each has a control socket of its own.
    let dirs = [(); BALANCERS].map(|()| TempDir::new());
    let start = |(space, dir): (&Namespace, &TempDir)| {
        let listen = format!("{SERVICE}:{PORT}");
        space.run(|| Balance::start(dir, &listen, &["--config", &file]))
    };
    let mut balancers: Vec<Balance> = network.balancers.iter().zip(&dirs).map(start).collect();
    network.client.run(|| {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        runtime.block_on(clients_stay(&network, &mut balancers));
    });
    for balancer in balancers {
        balancer.stop();
    }
}
