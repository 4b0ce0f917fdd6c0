//! The first client of the guide: fetches a URL, and prints what limited the connection.
//!
//! `cargo run -p clearway --example hello_client -- URL [FINGERPRINT]`

use clearway::http::Client;
use clearway::{ClientConfig, Connection};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments
        .next()
        .ok_or("usage: hello_client URL [FINGERPRINT]")?;
    let config = match arguments.next() {
        Some(hex) => ClientConfig::with_fingerprint(hex.parse()?),
        None => ClientConfig::with_native_roots()?,
    };
    let client = Client::new(config)?;
    let mut response = client.get(&url).await?;
    println!("{}", response.status());
    print!("{}", response.body_mut().text(1_000_000).await?);

    if let Some(connection) = response.extensions().get::<Connection>() {
        for (limit, time) in connection.stats().limits {
            println!("{limit:?}: {time:?}");
        }
    }
    drop(response);
    client.close().await;
    Ok(())
}
