//! s2n-quic as a client.

use std::{net::SocketAddr, sync::Arc, sync::Mutex, sync::PoisonError};

use anyhow::{Context, Result};
use contract::{
    Ask, Session, Stack, Start, Unsupported,
    answer::Answer,
    options::Get,
    pattern::{self, pattern},
    report::Facts,
};
use s2n_quic::{
    client::Connect,
    connection::Handle,
    provider::tls::rustls::{
        Client as Tls,
        rustls::{
            ClientConfig, RootCertStore,
            client::Resumption,
            pki_types::{CertificateDer, pem::PemObject},
        },
    },
};

use crate::tuning;

/// A client of one server.
pub(crate) struct Client {
    options: Get,
    client: s2n_quic::Client,
    /// Connections whose streams nobody accepts, kept for their handles.
    held: Arc<Mutex<Vec<s2n_quic::Connection>>>,
}

impl Stack for Client {
    const PEER: &'static str = "s2n-quic";
    type Session = Visit;

    fn new(options: &Get) -> Result<Self> {
        if !options.raw {
            return Err(Unsupported("HTTP/3").into());
        }
        if options.remembers() {
            return Err(Unsupported("resumption and early data").into());
        }
        let any: SocketAddr = if options.server.is_ipv4() {
            ([0, 0, 0, 0], 0).into()
        } else {
            ([0_u16; 8], 0).into()
        };
        let client = s2n_quic::Client::builder()
            .with_tls(tls(options)?)?
            .with_io(tuning::io(any, options.tuning)?)?
            .with_limits(tuning::limits(options.tuning)?)?
            .start()?;
        Ok(Self {
            options: options.clone(),
            client,
            held: Arc::default(),
        })
    }

    async fn connect(&self, _: Start) -> Result<Visit> {
        let connect =
            Connect::new(self.options.server).with_server_name(self.options.server_name.as_str());
        let connection = self.client.connect(connect).await?;
        let handle = connection.handle();
        if self.options.idle.is_some() {
            let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.push(connection);
        }
        Ok(Visit(handle))
    }

    async fn ticket(&self) -> Result<()> {
        Err(Unsupported("resumption").into())
    }

    async fn quiet(&self) {}
}

/// rustls without tickets: others would not measure full handshakes.
fn tls(options: &Get) -> Result<Tls> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(&options.ca)
        .with_context(|| format!("reading {}", options.ca.display()))?
    {
        roots.add(certificate?)?;
    }
    let mut config = ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![pattern::ALPN.to_vec()];
    config.resumption = Resumption::disabled();
    #[expect(deprecated, reason = "the builder cannot turn resumption off")]
    Ok(Tls::new(config))
}

/// One connection.
#[derive(Clone)]
pub(crate) struct Visit(Handle);

impl Session for Visit {
    async fn exchange(&self, ask: Ask, answer: &mut Answer) -> Result<()> {
        let stream = self.0.clone().open_bidirectional_stream().await?;
        let (mut receive, mut send) = stream.split();
        send.send(bytes::Bytes::copy_from_slice(&ask.wanted.to_be_bytes()))
            .await?;
        let mut offset = 0;
        while offset < ask.upload {
            let piece = pattern(offset, ask.upload - offset);
            offset += piece.len() as u64;
            send.send(piece).await?;
        }
        send.finish()?;
        while let Some(chunk) = receive.receive().await? {
            answer.take(&chunk)?;
        }
        Ok(())
    }

    async fn update_keys(&self) -> Result<()> {
        Err(Unsupported("a key update when the caller wants it").into())
    }

    async fn facts(&self) -> Facts {
        Facts::default()
    }

    fn close(&self, well: bool) {
        self.0.close(u8::from(!well).into());
    }
}
