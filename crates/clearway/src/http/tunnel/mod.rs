//! Tunnels: CONNECT requests whose two halves carry another protocol (RFC 9110 §9.3.6, RFC 9220),
//! with HTTP datagrams and capsules beside them (RFC 9297).
//!
//! ```text
//! server   request ─▶ Tunnel (an extension) ─ accept ─▶ TunnelSender, TunnelReceiver, TunnelDatagrams
//! client   Client::tunnel ─────────────────────────────▶ the same
//! ```
//!
//! | module | contents |
//! |---|---|
//! | `accept` | a server's request for a tunnel, which it accepts |
//! | `offer` | whether it was accepted |
//! | `sender`, `receiver` | the two halves of the stream |
//! | `datagrams` | the datagrams of a tunnel |
//! | `capsules` | capsules read from the receiving half |
//! | `open` | the client |

mod accept;
mod capsules;
mod datagrams;
mod offer;
mod open;
mod receiver;
mod sender;

pub use self::accept::Tunnel;
pub use self::capsules::{Capsule, CapsuleReader};
pub use self::datagrams::{TunnelDatagramError, TunnelDatagrams};
pub(super) use self::offer::TunnelOffer;
pub(super) use self::open::OpenedStream;
pub use self::open::{OpenTunnel, OpenTunnelError};
pub use self::receiver::TunnelReceiver;
pub use self::sender::TunnelSender;
