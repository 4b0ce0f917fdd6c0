//! Applications on tokio over modelled networks.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use clearway::{ClientConfig, Endpoint, ServerConfig, http};
use clearway_sim::network::NetworkStats;
use clearway_sim::{Net, SimError, Simulation, identity};
use http_body_util::BodyExt;

const NAME: &str = "shop.example";

fn address(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], port))
}

/// Serves the router at 10.0.0.1, and returns a client at 10.0.0.2.
fn pair(net: &Net, router: Router) -> http::Client {
    let (certificate, key) = identity([NAME]);
    let at = address(1, 443);
    let config = ServerConfig::with_identity(&certificate, &key).expect("settings");
    let server = http::Server::builder(at, config)
        .endpoint(|endpoint| net.attach(endpoint, at))
        .build()
        .expect("a server");
    tokio::spawn(async move { server.serve(router).await });
    let local = address(2, 0);
    let config = ClientConfig::with_roots(&certificate).expect("settings");
    let client = http::Client::with_endpoint(net.attach(Endpoint::builder(local), local), config);
    let client = client.expect("a client");
    client.resolve(NAME, 443, [at]);
    client
}

async fn fetch(client: &http::Client, path: &str) -> bytes::Bytes {
    let response = client
        .get(&format!("https://{NAME}{path}"))
        .await
        .expect("a response");
    assert_eq!(response.status(), 200);
    response
        .into_body()
        .collect()
        .await
        .expect("a body")
        .to_bytes()
}

/// Downloads, uploads and long calls over a lossy link: their times and the network's record.
fn shop(seed: u64) -> (Vec<Duration>, NetworkStats) {
    let link = "rate=20M delay=20ms queue=100 loss=1%";
    let simulation = Simulation::new(link, seed).expect("a valid link");
    let times = simulation.run(async |net| {
        let router = Router::new()
            .route("/bytes/{n}", get(async |Path(n): Path<usize>| vec![5; n]))
            .route(
                "/count",
                post(async |body: bytes::Bytes| body.len().to_string()),
            )
            .route(
                "/slow",
                get(async || tokio::time::sleep(Duration::from_secs(20)).await),
            );
        let client = pair(&net, router);
        let mut times = Vec::new();
        for n in [10, 100_000, 1_000_000] {
            assert_eq!(fetch(&client, &format!("/bytes/{n}")).await.len(), n);
            times.push(net.now());
        }
        let mut requests = tokio::task::JoinSet::new();
        for n in 0..20 {
            let client = client.clone();
            requests.spawn(async move { fetch(&client, &format!("/bytes/{n}000")).await.len() });
        }
        assert_eq!(
            requests.join_all().await.into_iter().sum::<usize>(),
            190_000
        );
        times.push(net.now());
        fetch(&client, "/slow").await;
        times.push(net.now());
        times
    });
    (times, simulation.stats())
}

#[test]
fn axum_service_over_a_lossy_link_is_the_same_with_the_same_seed() {
    let (times, stats) = shop(3);
    // 1 MB over 20 Mbit/s takes 400 ms at least, and the call that sleeps takes its time.
    assert!(times[2] > Duration::from_millis(400));
    assert!(times[4] >= times[3] + Duration::from_secs(20));
    assert_eq!(shop(3), (times.clone(), stats));
    assert_ne!(shop(4).1.digest, stats.digest);
}

#[test]
fn connection_survives_an_outage_of_the_link() {
    let simulation = Simulation::new("rate=10M delay=10ms queue=100 blackhole=1s-4s", 1);
    let took = simulation.expect("a valid link").run(async |net| {
        let router = Router::new().route("/", get(async || vec![1; 3_000_000]));
        let client = pair(&net, router);
        assert_eq!(fetch(&client, "/").await.len(), 3_000_000);
        net.now()
    });
    assert!(
        took > Duration::from_secs(4) && took < Duration::from_secs(12),
        "{took:?}"
    );
}

#[test]
fn address_in_use_is_an_error() {
    let simulation = Simulation::new("rate=10M", 1).expect("a valid link");
    simulation.run(async |net| {
        let at = address(1, 443);
        let endpoint = || clearway::Endpoint::builder(at);
        let first = net.attach(endpoint(), at);
        let second = net.try_attach(endpoint(), at, Default::default());
        assert!(matches!(second, Err(SimError::AddressInUse(taken)) if taken == at));
        drop(first);
        let _again = net.attach(endpoint(), at);
    });
}

#[test]
fn invalid_link_is_an_error_that_names_it() {
    let error = Simulation::new("rate=fast", 1).expect_err("not a rate");
    assert!(error.to_string().starts_with("invalid link: "), "{error}");
}
