//! Cryptography (RFC 9001): packet keys, the TLS handshake that negotiates them, and the tokens
//! of Retry, NEW_TOKEN and stateless reset.
//!
//! ```text
//! suite            the three AEADs of QUIC and their limits
//! packet_key       sealing and opening a payload
//! header_key       protecting and unprotecting packet numbers
//! lazy_cipher      a cipher that can be dropped and created again
//! material         the bytes of a key
//! key_export       our keys out of the trait objects of rustls
//! keys             both keys of a direction, both directions of a level
//! initial, retry   keys and tags that anyone can compute
//! secrets          the keys that each QUIC version derives from a secret
//! secret_capture   the secrets of a handshake whose version changes
//! update, generation   1-RTT keys: phases, limits
//! provider         the algorithms that rustls may negotiate
//! tls, alert       the handshake; alerts and messages of its errors
//! client_hello     the transport parameters in a ClientHello, before there is a session
//! identity, server_config, client_config, common_settings, config_error
//! verified_chains                      certificates that a client need not verify again
//! server_sessions, client_sessions     sessions for resumption and 0-RTT
//! server_versions                      the settings of a server for each QUIC version
//! token, replay, reset                 Retry, NEW_TOKEN, stateless reset
//! ```
//!
//! No clock is read here: tokens are given the wall time in Unix seconds and
//! keys are given an [`Instant`](crate::Instant). (rustls asks its own time
//! provider when it checks certificates and tickets; both configurations let
//! the caller replace it.)
mod alert;
mod client_config;
mod client_hello;
pub(crate) mod client_sessions;
mod common_settings;
mod config_error;
mod generation;
mod header_key;
mod identity;
pub(crate) mod initial;
mod key_export;
pub(crate) mod keys;
mod lazy_cipher;
mod material;
mod packet_key;
pub(crate) mod provider;
mod replay;
mod reset;
pub(crate) mod retry;
mod secret_capture;
mod secrets;
mod server_config;
mod server_sessions;
mod server_versions;
mod suite;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod tls;
pub(crate) mod token;
mod token_issuer;
pub(crate) mod update;
mod verified_chains;

pub use client_config::{ClientCrypto, Roots};
pub use client_sessions::{ClientSessions, ServerId, StoredState};
pub use config_error::ConfigError;
pub use identity::Identity;
pub use provider::{Algorithms, Group};
pub use replay::ReplayFilter;
pub use reset::ResetKey;
pub use server_config::{ClientAuth, ServerCrypto};
pub use server_sessions::ServerSessions;
pub use suite::Suite;
pub use token::{AddressToken, MeasuredPath, RetryToken, Token, TokenError, TokenKey, TokenKind};

pub(crate) use client_hello::ClientHello;
pub(crate) use client_sessions::VersionSessions;
pub(crate) use initial::initial_keys;
pub(crate) use keys::{Direction, InitialKeys, Keys, TAG_LEN};
pub(crate) use server_versions::ServerCryptoByVersion;
pub(crate) use tls::{HandshakeSummary, Level, NewKeys, Session};
pub(crate) use token_issuer::TokenIssuer;
pub(crate) use update::OneRttKeys;

pub use rustls::pki_types::ServerName;
