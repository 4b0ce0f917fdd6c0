//! The first server of the guide: HTTP/3 from an axum router.
//!
//! `cargo run -p clearway --example hello_server`, then, with the fingerprint that it prints,
//! `cargo run -p clearway --example hello_client -- https://localhost:4433/ HEX`

use axum::{Router, routing::get};
use clearway::http::Server;
use clearway::{DevelopmentIdentity, ServerConfig};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let identity = DevelopmentIdentity::generate(["localhost"])?;
    let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
    let server = Server::bind("127.0.0.1:4433".parse()?, config)?;
    println!(
        "https://localhost:4433, fingerprint {}",
        identity.fingerprint()
    );
    server
        .serve(Router::new().route("/", get(async || "hello\n")))
        .await?;
    Ok(())
}
