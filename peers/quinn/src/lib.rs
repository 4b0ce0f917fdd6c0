//! What every peer on quinn shares: certificates, TLS, transport settings, the listening and the
//! raw half of a server, and a witness of what quinn itself does not tell.

pub mod cert;
pub mod host;
pub mod raw;
pub mod tls;
pub mod transport;
pub mod witness;
