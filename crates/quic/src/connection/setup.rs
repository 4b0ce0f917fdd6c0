//! How a client's and a server's connection is created.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use clearway_recovery::Recovery;
use clearway_recovery::controller::SavedPath;
use rustls::pki_types::ServerName;

use super::Connection;
use super::cid_replacement::CidReplacement;
use super::client_start::{ClientStart, EncodableParameters};
use super::config::Config;
use super::control::Control;
use super::keyring::Keyring;
use super::lifecycle::Lifecycle;
use super::network::Network;
use super::owners::FrameOwners;
use super::parameters::{
    ack_delays, active_connection_id_limit, datagram_frame_size, local_parameters,
};
use super::reports::Reports;
use super::server_start::ServerStart;
use super::skipped_numbers::SkippedNumbers;
use super::space::{PacketSpace, PacketSpaces};
use super::timers::Timers;
use super::tls::{SessionStart, Tls, TokenStore};
use super::versions::VersionChoice;
use super::work::WorkBudget;
use crate::ack::AckPolicy;
use crate::cid::generator::CidGenerator;
use crate::cid::local::LocalCids;
use crate::cid::remote::RemoteCids;
use crate::cid::{ConnectionId, ResetToken};
use crate::crypto::{
    ClientHello, ClientSessions, InitialKeys, ResetKey, ServerCryptoByVersion, ServerId,
    TokenIssuer, initial_keys,
};
use crate::datagram::{DatagramReceiver, DatagramSender, QueueLimits};
use crate::error::{Code, TransportError};
use crate::path::mtu::MtuDiscovery;
use crate::path::paths::{MAX_PATHS, Paths};
use crate::path::{Addresses, PathDefaults};
use crate::rng::Rng;
use crate::stream::Streams;
use crate::wire::transport_parameters::PreferredAddress;
use crate::wire::{TransportParameters, Version};
use crate::{Instant, Role};

/// Connection IDs kept issued, if the peer accepts as many: one in use, and one for each
/// path that may be probed at once. More would only fill both ends' tables.
const ISSUED_CIDS: usize = MAX_PATHS;

/// Length of the client's random first Destination Connection ID; at least eight bytes (RFC
/// 9000 §7.2).
pub(super) const INITIAL_DCID_LEN: usize = 8;

/// The options of a client's connection.
pub struct ConnectOptions {
    /// The server's address.
    pub remote: SocketAddr,
    /// The local address, if known.
    pub local_ip: Option<IpAddr>,
    /// The name that the server's certificate must be valid for.
    pub server_name: ServerName<'static>,
    /// TLS settings, from [`ClientCrypto`](crate::crypto::ClientCrypto).
    pub crypto: Arc<rustls::ClientConfig>,
    /// Where session tickets and NEW_TOKEN tokens are stored between connections, by the server's
    /// name and port and by QUIC version. `None` = tokens nowhere, and tickets in the store of
    /// `crypto`, by name alone; or nowhere if [`Config::versions`] has several, because a ticket is
    /// valid for one version only (RFC 9369 §5).
    pub sessions: Option<Arc<ClientSessions>>,
}

/// The options of a server's connection, from the client's first datagram.
pub(crate) struct AcceptOptions {
    /// The client's address.
    pub remote: SocketAddr,
    /// The local address that the datagram was sent to, if known.
    pub local_ip: Option<IpAddr>,
    /// The version of the client's first Initial.
    pub version: Version,
    /// Destination Connection ID of the client's first Initial.
    pub original_dcid: ConnectionId,
    /// The keys that opened this Initial; they are derived from its Destination Connection
    /// ID.
    pub initial_keys: Box<InitialKeys>,
    /// Source Connection ID of the Retry that this attempt answers, if it does.
    pub retry_scid: Option<ConnectionId>,
    /// The client's Source Connection ID.
    pub scid: ConnectionId,
    /// Whether a token validated the client's address.
    pub validated: bool,
    /// What an earlier connection measured of the path, from that token.
    pub saved: Option<SavedPath>,
    /// Whether the client's address is in a trusted network
    /// ([`Limits::trusted`](crate::endpoint::Limits::trusted)).
    pub trusted: bool,
    /// Makes the tokens to send to the client in NEW_TOKEN.
    pub tokens: Arc<TokenIssuer>,
    /// The preferred address that the client should move to (RFC 9000 §9.6).
    pub preferred_address: Option<(
        Option<std::net::SocketAddrV4>,
        Option<std::net::SocketAddrV6>,
    )>,
    /// TLS settings, from [`ServerCrypto`](crate::crypto::ServerCrypto).
    pub crypto: ServerCryptoByVersion,
}

/// The options of either role.
pub(crate) struct CommonOptions {
    pub(crate) now: Instant,
    pub(crate) config: Arc<Config>,
    pub(crate) rng: Rng,
    pub(crate) generator: Box<dyn CidGenerator>,
    pub(crate) reset_key: Arc<ResetKey>,
    pub(crate) mtu_discovery: bool,
}

impl Connection {
    pub(crate) fn connect(
        mut common: CommonOptions,
        connect: ConnectOptions,
    ) -> Result<Self, TransportError> {
        let dcid = ConnectionId::new(&common.rng.array::<INITIAL_DCID_LEN>());
        let dcid = dcid.ok_or_else(|| {
            TransportError::new(Code::INTERNAL_ERROR, "connection ID of more than 20 bytes")
        })?;
        let scid = common.generator.generate(&mut common.rng);
        let server = ServerId {
            name: connect.server_name,
            port: connect.remote.port(),
        };
        let preference = common.config.versions;
        let original = match &connect.sessions {
            Some(sessions) => sessions.first_version(&server, preference),
            None => preference.first_flight(),
        };
        let versions = VersionChoice::new(preference, original);
        let local = local_parameters(&common.config, Role::Client, scid);
        let mut start = ClientStart {
            crypto: connect.crypto,
            sessions: connect.sessions.clone(),
            server: server.clone(),
            parameters: encodable(local, &mut common),
        };
        let (session, tickets) = start.session(versions)?;
        let now = common.now;
        let local = &start.parameters.local;
        let mut tls = Tls::new(Some(session), versions, local, scid, dcid);
        tls.start = preference
            .has_choice()
            .then(|| Box::new(SessionStart::Client(start)));
        let (remote, local_ip) = (connect.remote, connect.local_ip);
        let mut this = Self::new(common, Role::Client, tls, remote, local_ip, dcid, true);
        this.keys
            .set_initial(initial_keys(original, &dcid, Role::Client));
        if let (Some(sessions), Some(tickets)) = (connect.sessions, tickets) {
            this.tls.use_token_store(TokenStore {
                sessions,
                server,
                tickets,
            });
        }
        this.drive_tls(now)?;
        this.start_zero_rtt();
        this.issue_cids();
        Ok(this)
    }

    pub(crate) fn accept_from(
        mut common: CommonOptions,
        accept: AcceptOptions,
    ) -> Result<Self, TransportError> {
        let scid = common.generator.generate(&mut common.rng);
        let mut local = local_parameters(&common.config, Role::Server, scid);
        local.original_destination_connection_id = Some(accept.original_dcid);
        local.retry_source_connection_id = accept.retry_scid;
        local.stateless_reset_token = Some(common.reset_key.token(&scid));
        let preferred = accept.preferred_address.map(|(v4, v6)| {
            let cid = common.generator.generate(&mut common.rng);
            PreferredAddress {
                v4,
                v6,
                cid,
                reset_token: common.reset_key.token(&cid),
            }
        });
        local.preferred_address = preferred;
        let versions = VersionChoice::new(common.config.versions, accept.version);
        let mut start = ServerStart {
            crypto: accept.crypto,
            parameters: encodable(local, &mut common),
            hello: ClientHello::default(),
        };
        let waits = versions.needs_client_versions();
        let session = if waits {
            None
        } else {
            Some(start.session(versions)?)
        };
        let local = &start.parameters.local;
        let mut tls = Tls::new(session, versions, local, scid, accept.original_dcid);
        tls.retry_scid = accept.retry_scid;
        tls.start = waits.then(|| Box::new(SessionStart::Server(start)));
        let (remote, local_ip) = (accept.remote, accept.local_ip);
        let mut this = Self::new(
            common,
            Role::Server,
            tls,
            remote,
            local_ip,
            accept.scid,
            accept.validated,
        );
        if let Some(preferred) = preferred {
            this.frames
                .local_cids
                .issue_preferred(preferred.cid, preferred.reset_token)?;
        }
        this.tls.set_peer_cid(accept.scid);
        this.keys.initial = Some(accept.initial_keys);
        this.frames.control.tokens = Some(accept.tokens);
        this.network.keeps_state_across_ports = !accept.trusted;
        if let Some(saved) = &accept.saved {
            this.resume_path(saved);
        }
        this.issue_cids();
        Ok(this)
    }

    fn new(
        common: CommonOptions,
        role: Role,
        tls: Tls,
        remote: SocketAddr,
        local_ip: Option<IpAddr>,
        dcid: ConnectionId,
        validated: bool,
    ) -> Self {
        let CommonOptions {
            now,
            config,
            mut rng,
            generator,
            reset_key,
            mtu_discovery,
        } = common;
        let mtu = MtuDiscovery::new(config.max_mtu);
        let mds = u64::from(mtu.current());
        // One child for both saves a derivation.
        let mut random = rng.child("congestion");
        let (seed, spin) = (random.u64(), random.u64() as u8);
        let controller = config.build_controller(mds, seed);
        let defaults = PathDefaults {
            max_mtu: config.max_mtu,
            mtu_discovery: mtu_discovery && config.mtu_discovery,
            mark: config.mark(controller.as_ref()),
        };
        let addresses = Addresses { remote, local_ip };
        let paths = Paths::new(role, addresses, validated, defaults);
        let id = paths.active_id();
        let mut recovery = Recovery::new(
            clearway_recovery::Config {
                initial_rtt: config.initial_rtt,
                #[cfg(feature = "specimens")]
                specimen: config.specimen,
                ..clearway_recovery::Config::default()
            },
            now,
        );
        recovery.add_path(id, controller, mds, now);
        let token: ResetToken = reset_key.token(&tls.local_cid);
        let queue = QueueLimits {
            bytes: config.datagram_buffer,
            ..QueueLimits::default()
        };
        let (max_ack_delay, min_ack_delay) = ack_delays(&config);
        let mut remote_cids = RemoteCids::new(dcid, id, active_connection_id_limit(&config));
        remote_cids.set_spin(spin);
        let mut this = Self {
            role,
            lifecycle: Lifecycle::new(),
            keys: Keyring::new(role),
            network: Network::new(paths, recovery),
            frames: FrameOwners {
                spaces: PacketSpaces::new(PacketSpace::new(
                    AckPolicy::delayed(max_ack_delay, min_ack_delay)
                        .with_threshold(config.ack_threshold),
                )),
                streams: Streams::new(role, config.streams.clone()),
                datagrams_in: DatagramReceiver::new(queue, datagram_frame_size(&config)),
                datagrams_out: DatagramSender::new(queue),
                local_cids: LocalCids::new(tls.local_cid, token, ISSUED_CIDS),
                remote_cids,
                control: Control::default(),
            },
            outcome: Default::default(),
            skipped_numbers: SkippedNumbers::new(),
            timers: Timers::new(now, &config),
            reports: Reports::default(),
            undecryptable: Default::default(),
            work: WorkBudget::new(now, config.unproductive_work),
            rested: false,
            last_activity: now,
            receiving_cid: ConnectionId::EMPTY,
            cid_replacement: CidReplacement::new(now, generator.as_ref()),
            tls,
            config,
            rng,
            generator,
            reset_key,
        };
        this.update_pto_context(now);
        this
    }

    /// Tells the congestion controller what an earlier connection measured of the path, for an
    /// application that keeps this itself ([`PathStats::to_save`](super::PathStats::to_save)). A
    /// server that has [`Config::careful_resume`] does it by its tokens. It is used with the care
    /// of RFC 9959: the application has to make sure that it is of the same path, not old, and used
    /// by one connection only. Has no effect once something was acknowledged.
    pub fn resume_path(&mut self, saved: &SavedPath) {
        let active = self.network.paths.active_id();
        self.network.recovery.resume_path(active, saved);
    }

    /// Returns the connection ID that this end chose for the handshake.
    #[must_use]
    pub fn local_cid(&self) -> ConnectionId {
        self.tls.local_cid
    }
}

fn encodable(local: TransportParameters, common: &mut CommonOptions) -> EncodableParameters {
    let grease = common
        .config
        .grease
        .then(|| [common.rng.u64(), common.rng.u64()]);
    EncodableParameters { local, grease }
}
