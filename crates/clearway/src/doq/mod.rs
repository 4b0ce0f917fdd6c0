//! DNS over QUIC (RFC 9250): a client, and a server that is an [`Application`](crate::Application).
//!
//! Each query has a bidirectional stream of its own, so that a lost packet delays no other answer.
//! Messages are passed as they are on the wire, with any ID; on the stream it is 0.
//!
//! ```
//! use clearway::doq::{self, Answer, Client, Query, Server};
//! # use clearway::{ClientConfig, DevelopmentIdentity, Endpoint, ServerConfig};
//!
//! /// Answers every query with REFUSED.
//! async fn refuse(query: Query) -> Answer {
//!     Answer::from(doq::error_response(query.message(), 5))
//! }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let identity = DevelopmentIdentity::generate(["localhost"])?;
//! # let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
//! let server = Endpoint::server("127.0.0.1:0".parse()?, config.alpn([doq::ALPN]))?;
//! # let address = server.local_addr();
//! # let serving = server.clone();
//! # tokio::spawn(async move {
//! serving.serve(Server::new(refuse)).await
//! # });
//!
//! # let config = ClientConfig::with_roots(identity.certificate_pem())?;
//! let endpoint = Endpoint::client("127.0.0.1:0".parse()?, config.alpn([doq::ALPN]))?;
//! let client = Client::new(endpoint, address, "localhost");
//! // The root's name servers, with ID 0x1234.
//! let query = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1];
//! let answer = client.query(&query).await?;
//! assert_eq!(answer[..2], [0x12, 0x34]);
//! assert_eq!(answer[3] & 0xf, 5);
//! # Ok(())
//! # }
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `message` | what DoQ has to know of a DNS message: its ID, its OPT record, padding |
//! | `stream` | messages on a stream, and error codes |
//! | `client`, `server` | the two ends |

mod client;
mod message;
mod server;
mod stream;

pub use self::client::{Client, QueryError};
pub use self::message::{
    MAX_MESSAGE, error_response, id, is_query, is_response_to, max_udp_size, set_id, truncated,
};
pub use self::server::{Answer, Query, Resolver, Server};
pub use self::stream::Code;

/// The ALPN identifier (RFC 9250 §4.1.1).
pub const ALPN: &str = "doq";

/// The port (RFC 9250 §4.1.1).
pub const PORT: u16 = 853;
