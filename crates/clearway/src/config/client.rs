//! Configuration of clients.

use std::sync::{Arc, OnceLock};

use clearway_quic::connection::Config;
use clearway_quic::crypto::{ClientCrypto, ClientSessions, ConfigError, Identity, Roots};
use clearway_quic::wire::VersionPreference;
use clearway_recovery::congestion::CongestionControl;

use super::fingerprint::Fingerprint;
use super::native_roots::{NativeRootsError, native_roots};

/// Receive windows of a client at the beginning, bytes: for a stream, and for the connection. A client
/// chooses whom it asks, and a download need not wait for larger ones.
const STREAM_WINDOW: u64 = 2 << 20;
const CONNECTION_WINDOW: u64 = 3 << 20;

/// Configuration of a client. The defaults suit most clients. Clones share the store of
/// sessions: tickets for resumption and 0-RTT, and address tokens.
#[derive(Clone, Debug)]
#[must_use]
pub struct ClientConfig {
    crypto: ClientCrypto,
    transport: Arc<Config>,
    pub(crate) sessions: Arc<ClientSessions>,
    built: OnceLock<Arc<rustls::ClientConfig>>,
}

impl ClientConfig {
    /// Trusts servers whose certificates are signed by one of these root certificates (PEM).
    ///
    /// # Errors
    /// If there are none, or they cannot be parsed.
    pub fn with_roots(pem: impl AsRef<[u8]>) -> Result<Self, ConfigError> {
        Ok(Self::with_crypto(ClientCrypto::new(Roots::from_pem(
            pem.as_ref(),
        )?)))
    }

    /// Trusts servers whose certificates are signed by a root certificate of this host.
    ///
    /// # Errors
    /// If the host has no root certificates.
    pub fn with_native_roots() -> Result<Self, NativeRootsError> {
        Ok(Self::with_crypto(ClientCrypto::new(native_roots()?)))
    }

    /// Trusts exactly the certificate with this fingerprint, whatever its names and dates:
    /// for self-signed certificates whose fingerprint was received in a safe way. Its 64
    /// hexadecimal digits become a [`Fingerprint`] by `digits.parse()`.
    pub fn with_fingerprint(fingerprint: Fingerprint) -> Self {
        Self::with_crypto(ClientCrypto::with_certificate_check(move |certificate| {
            match Fingerprint::of(certificate) {
                shown if shown == fingerprint => Ok(()),
                shown => Err(format!(
                    "certificate fingerprint mismatch: expected {fingerprint}, found {shown}"
                )),
            }
        }))
    }

    /// Accepts any certificate for any name, so that anybody on the path can impersonate the
    /// server. For tests only.
    pub fn dangerous_accept_any_certificate() -> Self {
        Self::with_crypto(ClientCrypto::dangerous_accept_any_certificate())
    }

    /// Uses these TLS settings, which control verification, clocks, algorithms and the key
    /// log.
    pub fn with_crypto(crypto: ClientCrypto) -> Self {
        let sessions = Arc::new(ClientSessions::default());
        Self {
            crypto: crypto.sessions(sessions.clone()),
            transport: Arc::new(default_transport()),
            sessions,
            built: OnceLock::new(),
        }
    }

    fn crypto(mut self, change: impl FnOnce(ClientCrypto) -> ClientCrypto) -> Self {
        self.crypto = change(self.crypto);
        self.built = OnceLock::new();
        self
    }

    /// Sets the application protocols (ALPN), most preferred first.
    pub fn alpn<P: Into<Vec<u8>>>(self, protocols: impl IntoIterator<Item = P>) -> Self {
        self.crypto(|crypto| crypto.alpn(protocols))
    }

    /// Sets the certificate for servers that ask for one: its chain, leaf first, and its key,
    /// in PEM.
    ///
    /// # Errors
    /// If either cannot be parsed.
    pub fn identity(
        self,
        certificates_pem: impl AsRef<[u8]>,
        key_pem: impl AsRef<[u8]>,
    ) -> Result<Self, ConfigError> {
        let identity = Identity::from_pem(certificates_pem.as_ref(), key_pem.as_ref())?;
        Ok(self.crypto(|crypto| crypto.identity(identity)))
    }

    /// Whether to offer 0-RTT to servers with which there is an earlier session. On by
    /// default, because nothing is sent in it unless the application chooses to
    /// ([`Connecting::into_zero_rtt`](crate::Connecting::into_zero_rtt)).
    pub fn early_data(self, offer: bool) -> Self {
        self.crypto(|crypto| crypto.early_data(offer))
    }

    /// Appends the secrets of every connection to the file in the environment variable
    /// `SSLKEYLOGFILE`, if that is set, so that a packet capture can be decrypted.
    pub fn key_log_from_env(self) -> Self {
        self.crypto(ClientCrypto::key_log_from_env)
    }

    /// Sets the store of session tickets and address tokens.
    pub fn sessions(mut self, sessions: Arc<ClientSessions>) -> Self {
        self.sessions = sessions.clone();
        self.crypto(|crypto| crypto.sessions(sessions))
    }

    /// Sets the transport configuration: stream counts, windows, timeouts, the congestion
    /// controller. It replaces what
    /// [`congestion_control`](Self::congestion_control) set before. By default it is that of
    /// [`Config::default`], with initial receive windows of 2 MiB for a stream and 3 MiB for the
    /// connection.
    pub fn transport(mut self, transport: Config) -> Self {
        self.transport = Arc::new(transport);
        self
    }

    /// Whether connections accept DATAGRAM frames.
    pub(crate) fn accepts_datagrams(&self) -> bool {
        self.transport.datagram_buffer > 0
    }

    /// Sets the congestion control of every path, in place of the one in
    /// [`transport`](Self::transport): a built-in one
    /// ([`CongestionController`](crate::CongestionController)), or one of your own. The
    /// default is CUBIC, which shares a bottleneck fairly with what most hosts use. A later call
    /// of [`transport`](Self::transport) replaces it again.
    ///
    /// ```
    /// use clearway::congestion::{
    ///     Ack, Congestion, CongestionControl, Controller, ControllerFactory, Metrics, NewPath,
    ///     Sent, Spurious, State, WindowPolicy,
    /// };
    /// use clearway::{ClientConfig, CongestionController, Instant, Limit};
    ///
    /// /// A constant window, in datagrams. For private links only.
    /// #[derive(Debug)]
    /// struct Constant {
    ///     datagrams: u64,
    ///     mds: u64,
    /// }
    ///
    /// impl Controller for Constant {
    ///     fn on_sent(&mut self, _: &Sent) {}
    ///     fn on_ack(&mut self, _: &Ack<'_>) {}
    ///     fn on_congestion(&mut self, _: &Congestion) {}
    ///     fn on_spurious(&mut self, _: &Spurious) {}
    ///     fn on_limit(&mut self, _: Limit, _: Instant) {}
    ///     fn restart_from_idle(&mut self, _: Instant) {}
    ///     fn on_mds(&mut self, mds: u64) {
    ///         self.mds = mds;
    ///     }
    ///     fn window(&self) -> u64 {
    ///         self.datagrams * self.mds
    ///     }
    ///     fn min_window(&self) -> u64 {
    ///         self.window()
    ///     }
    ///     fn pacing_rate(&self) -> Option<u64> {
    ///         None
    ///     }
    ///     fn window_policy(&self) -> WindowPolicy {
    ///         WindowPolicy::Constant
    ///     }
    ///     fn state(&self) -> State {
    ///         State::CongestionAvoidance
    ///     }
    ///     fn metrics(&self) -> Metrics {
    ///         Metrics::default()
    ///     }
    ///     fn name(&self) -> &'static str {
    ///         "constant"
    ///     }
    /// }
    ///
    /// #[derive(Debug)]
    /// struct ConstantFactory;
    ///
    /// impl ControllerFactory for ConstantFactory {
    ///     fn build(&self, path: &NewPath) -> Box<dyn Controller> {
    ///         Box::new(Constant { datagrams: 100, mds: path.mds })
    ///     }
    ///     fn name(&self) -> &str {
    ///         "constant"
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let identity = clearway::DevelopmentIdentity::generate(["localhost"])?;
    /// # let pem = identity.certificate_pem();
    /// let ours = ClientConfig::with_roots(pem)?.congestion_control(CongestionController::Bbr);
    /// let own = CongestionControl::custom(ConstantFactory);
    /// let custom = ClientConfig::with_roots(pem)?.congestion_control(own);
    /// # let _ = (ours, custom);
    /// # Ok(())
    /// # }
    /// ```
    pub fn congestion_control(mut self, control: impl Into<CongestionControl>) -> Self {
        Arc::make_mut(&mut self.transport).controller = control.into();
        self
    }

    /// Sets the QUIC versions that connections may use, most preferred first, in place of those in
    /// [`transport`](Self::transport). A connection begins with version 1 if that is among them, or
    /// with the version of a stored session, and follows the server to another. By default version
    /// 1, then version 2, because some networks know version 1 only.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use clearway::{ClientConfig, Version, VersionPreference};
    ///
    /// let versions = VersionPreference::new(&[Version::V2, Version::V1])?;
    /// let config = ClientConfig::dangerous_accept_any_certificate().versions(versions);
    /// # let _ = config;
    /// # Ok(())
    /// # }
    /// ```
    pub fn versions(mut self, versions: VersionPreference) -> Self {
        Arc::make_mut(&mut self.transport).versions = versions;
        self
    }

    pub(crate) fn transport_config(&self) -> Arc<Config> {
        self.transport.clone()
    }

    /// Returns the TLS configuration, which is built once.
    pub(crate) fn tls(&self) -> Result<Arc<rustls::ClientConfig>, ConfigError> {
        if let Some(built) = self.built.get() {
            return Ok(built.clone());
        }
        let built = self.crypto.clone().build()?;
        Ok(self.built.get_or_init(|| built).clone())
    }
}

fn default_transport() -> Config {
    let mut transport = Config::default();
    transport.streams.stream_window = STREAM_WINDOW;
    transport.streams.connection_window = CONNECTION_WINDOW;
    transport
}
