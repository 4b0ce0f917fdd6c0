//! UDP through HTTP/3: CONNECT-UDP (RFC 9298), a part of MASQUE.
//!
//! ```text
//! client   UdpTunnel::connect ─▶ /.well-known/masque/udp/{host}/{port}/ ─▶ UdpProxy::serve   server
//!          payloads ◀──────── HTTP datagrams, or capsules ────────▶ a connected UDP socket
//! ```
//!
//! A proxy lets others send from its address, so it does nothing that it was not told to:
//!
//! * Every request has to carry a token ([`UdpProxyBuilder::token`]).
//! * Ports other than 443 and 53 are refused, and so are addresses that mean something else to the
//!   proxy than to its clients ([`AddressPolicy`]). A name is resolved once; the address that was
//!   checked is the one that packets are sent to.
//! * A payload that does not fit into a datagram, or for which the network has no room, is dropped
//!   and counted (RFC 9298 §5). Packets to the target are not marked with ECN.
//! * A tunnel without a packet for two minutes ends.
//!
//! | module | contents |
//! |---|---|
//! | `target` | host and port, and their path |
//! | `policy` | which addresses a proxy sends to |
//! | `proxy` | the server: authentication, resolution, answers |
//! | `relay` | packets between a tunnel and a socket |
//! | `udp_tunnel` | UDP payloads in a tunnel; the client |

mod policy;
mod proxy;
mod relay;
mod target;
mod udp_tunnel;

pub use self::policy::{AddressPolicy, DeniedAddress};
pub use self::proxy::{Resolution, UdpProxy, UdpProxyBuilder, UdpProxyCounters};
pub use self::target::{InvalidTarget, Target};
pub use self::udp_tunnel::{UdpTunnel, UdpTunnelCounters, UdpTunnelMode};

/// The `:protocol` (RFC 9298 §3.4).
const PROTOCOL: &str = "connect-udp";

/// The longest UDP payload, in bytes.
const MAX_PAYLOAD: usize = 65_527;
