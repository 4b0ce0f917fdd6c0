//! Everything secret (RFC 9001): packet keys, the TLS session that agrees on
//! them, and the tokens by which a server recognises what it once said.
//!
//! ```text
//! suite            the three AEADs of QUIC and their limits
//! packet_key       seal and open a payload
//! header_key       hide and reveal packet numbers
//! resting          a cipher that comes and goes beside its material
//! material         what both keys are made of, at rest
//! handover         our keys back out of rustls's trait objects
//! keys             both keys of a direction, both directions of a level
//! initial, retry   keys and tags that everybody can compute
//! update, generation   1-RTT keys: phases, limits
//! provider         what rustls may negotiate
//! tls, alert       the handshake; its failures in words
//! identity, server_config, client_config, common_settings, config_error
//! server_sessions, client_sessions     what resumption and 0-RTT remember
//! token, replay, reset                 Retry, NEW_TOKEN, stateless reset
//! ```
//!
//! No clock is read here: tokens are given the wall time in Unix seconds and
//! keys are given an [`Instant`](crate::Instant). (rustls asks its own time
//! provider when it checks certificates and tickets; both configurations let
//! the caller replace it.)
mod alert;
mod client_config;
pub mod client_sessions;
mod common_settings;
mod config_error;
mod generation;
mod handover;
mod header_key;
mod identity;
mod initial;
mod keys;
mod material;
mod packet_key;
pub mod provider;
mod replay;
mod reset;
mod resting;
pub mod retry;
mod server_config;
pub mod server_sessions;
mod suite;
#[cfg(test)]
pub(crate) mod testing;
mod tls;
pub mod token;
mod update;

pub use client_config::{ClientCrypto, Roots};
pub use client_sessions::ClientSessions;
pub use config_error::ConfigError;
pub use identity::Identity;
pub use initial::initial_keys;
pub use keys::{Direction, Keys, SAMPLE_LEN, TAG_LEN, Unprotected};
pub use provider::{Algorithms, Group};
pub use replay::ReplayFilter;
pub use reset::ResetKey;
pub use server_config::{ClientAuth, ServerCrypto};
pub use server_sessions::ServerSessions;
pub use suite::Suite;
pub use tls::{KeyStep, Level, Session, Summary};
pub use token::{AddressToken, RetryToken, Token, TokenError, TokenKey, TokenKind};
pub use update::{OneRttKeys, Opened, UpdateRefused};

pub use rustls::pki_types::ServerName;
