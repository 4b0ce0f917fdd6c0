//! Clients that move, and everything behind them that changes, while they download.

use std::net::UdpSocket;

use super::fleet::{Balance, Relay, Rotation, balancer_file, quic_lb, write};
use super::*;

/// Ports of clients that a server has answered requests of.
fn ports(site: &Site, requests: usize) -> Vec<u64> {
    let remote = |line: Value| {
        let remote = line["remote"].as_str().unwrap().to_owned();
        remote.rsplit(':').next().unwrap().parse().unwrap()
    };
    let mut ports: Vec<u64> = (0..requests).map(|_| remote(site.logged())).collect();
    ports.dedup();
    ports
}

/// Another socket for the client's endpoint, which migrates to it.
fn migrate(client: &Client) {
    let any = match client.endpoint().local_addr().is_ipv6() {
        true => "[::]:0",
        false => "0.0.0.0:0",
    };
    let socket = UdpSocket::bind(any).unwrap();
    client.endpoint().rebind(socket).unwrap();
}

#[tokio::test]
async fn active_migration_is_followed_by_connection_id() {
    let (dir, content) = (TempDir::new(), content());
    let (_sites, balance) = fleet(&dir, &content, 3);
    let url = balance.url();
    let clients: Vec<Client> = (0..6).map(|_| client()).collect();
    for client in &clients {
        get_small(client, &url).await;
        for _ in 0..2 {
            let large = format!("{url}/large");
            let (download, moving) = (get(client, &large, &[]), async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                migrate(client);
            });
            let ((status, _, body), ()) = tokio::join!(download, moving);
            assert_eq!(status, 200);
            assert!(body == pattern(LARGE), "{} bytes", body.len());
            get_small(client, &url).await;
        }
    }
    let ended = balance.stop();
    assert_eq!(assigned(&ended).iter().sum::<u64>(), 6, "{ended:#}");
    assert_eq!(ended["flows"], 6 * 3, "{ended:#}");
}

/// A client whose connection IDs change stays on its upstream port, so that its server sees no
/// migration. Once the old key is gone, only the new connection IDs can tell its server.
#[tokio::test]
async fn rotated_connection_ids_keep_their_port_and_are_followed_to_another_address() {
    let (dir, content) = (TempDir::new(), content());
    let (sites, balance) = fleet(&dir, &content, 2);
    let relay = Relay::start(&balance.address, &[]);
    let (first, url, at) = (client(), relay.url.clone(), relay.address.clone());
    get_small(&first, &url).await;
    let serving = serving(&balance);
    write(&dir, "serve.toml", &quic_lb(Rotation::Active));
    for site in &sites {
        site.signal(Signal::HUP);
    }
    // Connection IDs are replaced when the server has handled the signal and a packet arrives.
    for _ in 0..10 {
        get_small(&first, &url).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    write(
        &dir,
        "balance.toml",
        &balancer_file(&sites, Rotation::Complete),
    );
    wait_for_log(&dir, "configuration reloaded");
    get_small(&first, &url).await;
    assert_eq!(ports(&sites[serving], 12).len(), 1, "no migration");
    assert_eq!(balance.status()["flows"], 1);

    drop(relay);
    let _relay = Relay::start_at(&at, &balance.address, &[]);
    get_small(&first, &url).await;
    assert_eq!(ports(&sites[serving], 1).len(), 1);
    let ended = balance.stop();
    assert_eq!(assigned(&ended).iter().sum::<u64>(), 1, "{ended:#}");
    assert_eq!(ended["flows"], 2, "{ended:#}");
}
