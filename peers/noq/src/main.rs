//! noq as an endpoint of the public QUIC interop runner ([`contract::runner`]), over HTTP/0.9. noq is
//! a successor of quinn with the same functions, and shares the source of quinn's endpoint. It has no
//! crate of HTTP/3.

#[path = "../../h3-quinn/src/endpoint/shared/mod.rs"]
mod shared;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    contract::runner::main("endpoint-noq", shared::run).await
}
