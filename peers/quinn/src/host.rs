//! A listening quinn, as every server on it has one: Retry, early data, and a witness per
//! connection.

use std::{future::Future, net::SocketAddr, path::Path, sync::Arc};

use anyhow::Result;
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, Incoming, ServerConfig, crypto,
};

use crate::{
    tls,
    transport::Transport,
    witness::{Witness, Witnessed},
};

/// What a server does with every client.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The protocol it speaks.
    pub alpn: &'a [u8],
    /// Its certificate chain, PEM.
    pub cert: &'a Path,
    /// Its private key, PEM.
    pub key: &'a Path,
    /// Whether every client must prove its address by a Retry.
    pub retry: bool,
    /// Whether early data is answered before the handshake is done.
    pub early: bool,
    /// Whether connections are witnessed. One that need not report is measured as quinn is.
    pub witnessed: bool,
}

/// A listening quinn.
pub struct Host {
    endpoint: Endpoint,
    config: ServerConfig,
    tls: Arc<dyn crypto::ServerConfig>,
    retry: bool,
    early: bool,
    witnessed: bool,
}

impl Host {
    /// Listens.
    ///
    /// # Errors
    /// Files that cannot be read, an address that cannot be had.
    pub fn new(terms: Terms<'_>, transport: &Transport, listen: SocketAddr) -> Result<Self> {
        Self::with(terms, transport, listen, EndpointConfig::default())
    }

    /// Listens, with these connection IDs and this secret for stateless resets.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn with(
        terms: Terms<'_>,
        transport: &Transport,
        listen: SocketAddr,
        endpoint: EndpointConfig,
    ) -> Result<Self> {
        let tls = tls::server(terms.alpn, terms.cert, terms.key, terms.early)?;
        let tls: Arc<dyn crypto::ServerConfig> = Arc::new(tls);
        let mut config = ServerConfig::with_crypto(Arc::clone(&tls));
        config.transport_config(transport.config());
        Ok(Self {
            endpoint: transport.endpoint_with(endpoint, listen, Some(config.clone()))?,
            config,
            tls,
            retry: terms.retry,
            early: terms.early,
            witnessed: terms.witnessed,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the socket is gone.
    pub fn local_addr(&self) -> Result<SocketAddr> {
        Ok(self.endpoint.local_addr()?)
    }

    /// Has every client that comes visited by a task, until killed.
    pub async fn serve<F>(self, visit: impl Fn(Guest) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        while let Some(incoming) = self.endpoint.accept().await {
            if self.retry && !incoming.remote_address_validated() {
                if let Err(error) = incoming.retry() {
                    eprintln!("quinn: {error}");
                }
                continue;
            }
            let mut config = self.config.clone();
            let witness = Arc::new(Witness::default());
            if self.witnessed {
                let tls = Arc::clone(&self.tls);
                config.crypto = Arc::new(Witnessed::new(tls, Arc::clone(&witness)));
            }
            tokio::spawn(visit(Guest {
                incoming,
                config,
                witness,
                early: self.early,
            }));
        }
    }
}

/// A client that has come, before its handshake.
pub struct Guest {
    incoming: Incoming,
    config: ServerConfig,
    witness: Arc<Witness>,
    early: bool,
}

impl Guest {
    /// Where it comes from.
    #[must_use]
    pub fn remote_address(&self) -> SocketAddr {
        self.incoming.remote_address()
    }

    /// Whether it has brought a Retry token: of validated clients, those that have may not be
    /// sent another one.
    #[must_use]
    pub fn retried(&self) -> bool {
        !self.incoming.may_retry()
    }

    /// What will have been seen of its connection.
    #[must_use]
    pub fn witness(&self) -> Arc<Witness> {
        Arc::clone(&self.witness)
    }

    /// Its connection: once the handshake is done, or at once if early data is to be answered.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn accept(self) -> Result<Connection, ConnectionError> {
        let connecting = self.incoming.accept_with(Arc::new(self.config))?;
        if !self.early {
            return connecting.await;
        }
        match connecting.into_0rtt() {
            Ok((connection, _)) => Ok(connection),
            Err(connecting) => connecting.await,
        }
    }
}
