//! tokio-quiche as a server.

use std::{collections::BTreeMap, future::pending, path::PathBuf, str, sync::Arc};

use anyhow::{Context, Result, anyhow};
use boring::ssl::{SslContextBuilder, SslFiletype, SslMethod};
use clap::Args;
use contract::{
    Unsupported,
    options::Serve,
    pattern,
    report::{Closed, announce},
};
use tokio_quiche::{
    ConnectionParams, listen,
    metrics::DefaultMetrics,
    quic::{ConnectionHook, QuicheConnection},
    quiche::{
        Shutdown,
        h3::{self, Header, NameValue, WireErrorCode},
    },
    settings::{CertificateKind, Hooks, TlsCertificatePaths},
};

use crate::{
    outflow::Outflow,
    settings::{settings, socket},
    wire::{Driver, Role, Wire, value},
};

/// Options that only this program has.
#[derive(Debug, Clone, Args)]
pub(crate) struct Extra {
    /// Folder for quiche's qlog, a file per connection
    #[arg(long)]
    qlog: Option<PathBuf>,
    /// Switch off quiche's `enable_cubic_idle_restart_fix`, which is on by itself
    #[arg(long)]
    without_idle_restart_fix: bool,
}

/// Serves until killed.
pub(crate) async fn run(options: Serve, extra: Extra) -> Result<()> {
    if options.raw {
        return Err(Unsupported("this program speaks HTTP/3 alone").into());
    }
    pattern::prepare();
    let mut settings = settings(options.tuning);
    settings.disable_client_ip_validation = !options.retry;
    settings.enable_early_data = options.zero_rtt;
    settings.qlog_dir = extra.qlog.as_deref().map(text).transpose()?;
    let (cert, key) = (text(&options.cert)?, text(&options.key)?);
    let identity = TlsCertificatePaths {
        cert: &cert,
        private_key: &key,
        kind: CertificateKind::X509,
    };
    let mut hooks = Hooks::default();
    if extra.without_idle_restart_fix {
        hooks.connection_hook = Some(Arc::new(WithoutFix));
    }
    let params = ConnectionParams::new_server(settings, identity, hooks);
    let socket = socket(options.listen, options.tuning)?;
    let local = socket.local_addr()?;
    let listeners = listen([socket], params, DefaultMetrics)?;
    let listener = listeners.into_iter().next().context("no listener")?;
    announce(local)?;
    let mut incoming = listener.into_inner();
    while let Some(connection) = incoming.recv().await {
        match connection {
            Ok(connection) => {
                connection.start(Driver::new(Host::new(&options)));
            }
            Err(error) => eprintln!("peer-tokio-quiche: {error}"),
        }
    }
    Ok(())
}

fn text(path: &std::path::Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| anyhow!("{}: not UTF-8", path.display()))
}

/// tokio-quiche's settings lack the switch; quiche lets a handshake's callback set it.
struct WithoutFix;

impl ConnectionHook for WithoutFix {
    fn create_custom_ssl_context_builder(
        &self,
        identity: TlsCertificatePaths<'_>,
    ) -> Option<SslContextBuilder> {
        let mut builder = SslContextBuilder::new(SslMethod::tls()).ok()?;
        builder.set_certificate_chain_file(identity.cert).ok()?;
        let kind = SslFiletype::PEM;
        builder
            .set_private_key_file(identity.private_key, kind)
            .ok()?;
        builder.set_select_certificate_callback(|mut hello| {
            let ssl = hello.ssl_mut();
            QuicheConnection::set_enable_cubic_idle_restart_fix_in_handshake(ssl, false)
                .map_err(|_| boring::ssl::SelectCertError::ERROR)
        });
        Some(builder)
    }
}

/// One request under way.
struct Serving {
    /// The response's headers, until they are sent.
    head: Option<Vec<Header>>,
    body: Outflow,
    /// Whether the request's body goes back.
    echo: bool,
    /// Whether the request's body may have bytes that are not read yet.
    unread: bool,
    /// What the client's trailer told.
    told: Option<Vec<u8>>,
}

impl Serving {
    fn new(list: &[Header]) -> Self {
        let echo = value(list, b":method") == b"POST";
        let path = str::from_utf8(value(list, b":path")).unwrap_or_default();
        let wanted = path.trim_start_matches('/').parse::<u64>().ok();
        let status: &[u8] = if echo || wanted.is_some() {
            b"200"
        } else {
            b"404"
        };
        let mut head = vec![Header::new(b":status", status)];
        if let Some(wanted) = wanted.filter(|_| !echo) {
            head.push(Header::new(
                b"content-length",
                wanted.to_string().as_bytes(),
            ));
        }
        let body = match (echo, wanted) {
            (true, _) => Outflow::echo(),
            (false, wanted) => Outflow::pattern(wanted.unwrap_or_default(), None),
        };
        Self {
            head: Some(head),
            body,
            echo,
            unread: false,
            told: None,
        }
    }

    /// Reads what there is, but no more than may wait; whether it read anything.
    fn read(&mut self, wire: &mut Wire<'_>, stream: u64) -> bool {
        let mut any = false;
        while self.unread && (!self.echo || self.body.has_room()) {
            match wire.read(stream) {
                Some(bytes) if self.echo => self.body.take(bytes),
                Some(_) => {}
                None => self.unread = false,
            }
            any |= self.unread;
        }
        any
    }

    /// Sends what the stream takes.
    fn send(&mut self, wire: &mut Wire<'_>, stream: u64) -> Result<(), h3::Error> {
        if let Some(head) = &self.head {
            wire.http.send_response(wire.quic, stream, head, false)?;
            self.head = None;
        }
        self.body.send(wire, stream)
    }
}

/// A server's part in one connection.
struct Host {
    serving: BTreeMap<u64, Serving>,
    retried: bool,
    early: bool,
    json: bool,
}

impl Host {
    fn new(options: &Serve) -> Self {
        Self {
            serving: BTreeMap::new(),
            // tokio-quiche asks every client for a Retry, or none.
            retried: options.retry,
            early: false,
            json: options.json,
        }
    }
}

impl Role for Host {
    fn look(&mut self, quic: &mut QuicheConnection) {
        self.early |= quic.is_in_early_data();
    }

    fn headers(&mut self, _: &mut Wire<'_>, stream: u64, list: &[Header]) {
        match self.serving.get_mut(&stream) {
            Some(serving) => {
                let sum = list.iter().find(|header| header.name() == b"x-sum");
                serving.told = sum.map(|header| header.value().to_vec());
            }
            None => {
                self.serving.insert(stream, Serving::new(list));
            }
        }
    }

    fn data(&mut self, wire: &mut Wire<'_>, stream: u64) {
        if let Some(serving) = self.serving.get_mut(&stream) {
            serving.unread = true;
            serving.read(wire, stream);
        }
    }

    fn end(&mut self, wire: &mut Wire<'_>, stream: u64, well: bool) {
        let Some(serving) = self.serving.get_mut(&stream) else {
            return;
        };
        let sum = serving.body.sum().unwrap_or_default().to_string();
        let wrong = serving
            .told
            .as_ref()
            .is_some_and(|told| told != sum.as_bytes());
        if !well || wrong {
            let code = WireErrorCode::MessageError as u64;
            // It fails for a direction that is over already.
            let _ = wire.quic.stream_shutdown(stream, Shutdown::Write, code);
            self.serving.remove(&stream);
        } else {
            serving.body.finish();
        }
    }

    fn send(&mut self, wire: &mut Wire<'_>) -> bool {
        let mut any = false;
        self.serving.retain(|stream, serving| {
            let sent = serving.send(wire, *stream);
            any |= serving.read(wire, *stream);
            matches!(sent, Err(h3::Error::Done | h3::Error::StreamBlocked))
        });
        any
    }

    async fn wait(&mut self) {
        pending().await
    }

    fn closed(&mut self, quic: &QuicheConnection, cause: String) {
        if self.json {
            Closed {
                retried: Some(self.retried),
                resumed: Some(quic.is_resumed()),
                zero_rtt_accepted: Some(self.early),
                cause,
                ..Closed::new("tokio-quiche")
            }
            .print();
        }
    }
}
