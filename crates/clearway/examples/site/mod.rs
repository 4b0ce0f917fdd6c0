//! Common code of the examples: a server of one router on this host, in a task, and a client
//! that trusts its certificate.

use std::error::Error;
use std::time::Duration;

use axum::Router;
use clearway::http::{Client, Server};
use clearway::{ClientConfig, DevelopmentIdentity, EndpointError, ServerConfig};
use tokio::task::JoinHandle;

pub(crate) struct Site {
    pub(crate) client: Client,
    /// The URL of the router's root, without a slash at its end.
    pub(crate) url: String,
    server: Server,
    serving: JoinHandle<Result<(), EndpointError>>,
}

impl Site {
    pub(crate) fn open(router: Router) -> Result<Self, Box<dyn Error>> {
        let identity = DevelopmentIdentity::generate(["localhost"])?;
        let config = ServerConfig::with_identity(identity.certificate_pem(), identity.key_pem())?;
        let server = Server::bind("127.0.0.1:0".parse()?, config)?;
        Ok(Self {
            client: Client::new(ClientConfig::with_roots(identity.certificate_pem())?)?,
            url: format!("https://localhost:{}", server.local_addr().port()),
            serving: tokio::spawn({
                let server = server.clone();
                async move { server.serve(router).await }
            }),
            server,
        })
    }

    /// Shuts down when everything is answered, or after five seconds.
    pub(crate) async fn close(self) -> Result<(), Box<dyn Error>> {
        self.server.shutdown(Duration::from_secs(5)).await;
        self.serving.await??;
        Ok(())
    }
}
