//! Configuration of servers and clients.

mod certificates;
mod client;
mod fingerprint;
mod identity;
mod memory;
mod native_roots;
mod server;

pub use self::certificates::Certificates;
pub use self::client::ClientConfig;
pub use self::fingerprint::Fingerprint;
pub use self::identity::{DevelopmentIdentity, GenerateError};
pub use self::native_roots::NativeRootsError;
pub use self::server::{Admission, ServerConfig};
pub use clearway_quic::crypto::{ClientAuth, ClientCrypto, Identity, ServerCrypto};
pub use clearway_quic::endpoint::Limits;
