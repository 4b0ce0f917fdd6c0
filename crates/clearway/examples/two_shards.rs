//! One server on two threads, each with its own socket on the same address. A connection
//! belongs to one of them, and its requests are answered there too.
//!
//! `cargo run --example two_shards`

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use clearway::http::{Client, Server};
use clearway::{ClientConfig, DevelopmentIdentity, ServerConfig};

/// The thread that answers.
async fn where_am_i() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or("nameless").to_owned()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let identity = DevelopmentIdentity::generate(["localhost"])?;
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
    let server = Server::builder("127.0.0.1:0".parse()?, config)
        .shards(2)
        .build()?;
    let url = format!("https://localhost:{}/", server.local_addr().port());
    let serving = tokio::spawn({
        let server = server.clone();
        let router = Router::new().route("/", get(where_am_i));
        async move { server.serve(router).await }
    });

    let mut answers = BTreeMap::<String, u32>::new();
    for _ in 0..20 {
        // Each client has its own connection.
        let client = Client::new(ClientConfig::with_roots(identity.certificate_pem())?)?;
        for _ in 0..3 {
            let mut response = client.get(&url).await?;
            let thread = response.body_mut().text(100).await?;
            *answers.entry(thread).or_default() += 1;
        }
        client.close().await;
    }
    for (thread, count) in &answers {
        println!("{thread} answered {count} requests");
    }

    server.shutdown(Duration::from_secs(5)).await;
    serving.await??;
    Ok(())
}
