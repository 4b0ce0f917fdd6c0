//! What every peer on quinn shares: certificates, TLS, transport settings, and a witness of what
//! quinn itself does not tell.

pub mod cert;
pub mod tls;
pub mod transport;
pub mod witness;
