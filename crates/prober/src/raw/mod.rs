//! One end of a connection that checks nothing and sends whatever it is told: TLS and packet
//! protection work, everything else is up to the caller.
//!
//! ```text
//! connection   packets in and out, acknowledgements, retransmission
//! keys         packet protection of each level, over key updates
//! tls          the handshake, and its bytes by level
//! assembler    bytes at offsets -> bytes in order
//! observed     everything that came from the peer
//! ```

mod assembler;
mod connection;
mod keys;
mod observed;
mod tls;

pub(crate) use connection::{PacketOptions, RawConnection};
#[cfg(feature = "testing")]
pub(crate) use observed::Kept;
pub(crate) use observed::{Observed, VersionNegotiation};
pub(crate) use tls::Tls;
