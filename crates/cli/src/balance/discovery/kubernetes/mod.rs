//! The EndpointSlices of a Service of Kubernetes: listed, then watched.

mod slices;

use core::time::Duration;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use self::slices::{Lines, Slices};
use super::{Complaint, Discovered};
use crate::failure::{Failure, Kind};

/// Where a pod finds its token and the API's certificate.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How long a source that failed is left alone.
const PAUSE: Duration = Duration::from_secs(2);

/// Longest time without an answer to a request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Seconds after which the API ends a watch, so that nothing is trusted for long.
const WATCH_SECONDS: u64 = 300;

/// Longest list, and longest event, in bytes.
const LONGEST: usize = 16 << 20;

/// How the API is reached.
#[derive(Clone, Debug)]
struct Api {
    host: String,
    port: u16,
    /// In a pod.
    tls: Option<Arc<rustls::ClientConfig>>,
}

/// Follows the slices of a Service from now on.
///
/// # Errors
/// If there is no API, or its certificate cannot be read.
pub(super) fn follow(
    discovered: Discovered,
    service: &str,
    namespace: &str,
    port: String,
    api: Option<&str>,
) -> Result<(), Failure> {
    let api = match api {
        Some(url) => Api::plain(url),
        None => Api::of_pod(),
    };
    let api =
        api.map_err(|message| Failure::new(Kind::Arguments, format!("[discovery]: {message}")))?;
    for (key, text) in [("service", service), ("namespace", namespace)] {
        let is_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
        if text.is_empty() || !text.bytes().all(is_name) {
            let message = format!("[discovery]: {key}: {text:?} is not a name in Kubernetes");
            return Err(Failure::new(Kind::Arguments, message));
        }
    }
    let path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices\
         ?labelSelector=kubernetes.io%2Fservice-name%3D{service}"
    );
    tokio::spawn(async move {
        let mut complaint = Complaint::default();
        loop {
            let watching = watch(&api, &path, &port, &discovered, &mut complaint);
            if let Err(error) = watching.await {
                complaint.say("EndpointSlices", &error);
                tokio::time::sleep(PAUSE).await;
            }
        }
    });
    Ok(())
}

/// Lists the slices, and follows their changes until the API ends that.
async fn watch(
    api: &Api,
    path: &str,
    port: &str,
    discovered: &Discovered,
    complaint: &mut Complaint,
) -> Result<(), String> {
    let body = api.get(path).await?;
    let listed = tokio::time::timeout(PATIENCE, Limited::new(body, LONGEST).collect()).await;
    let listed = listed.map_err(|_| "the API does not answer".to_owned())?;
    let listed = listed.map_err(|error| error.to_string())?.to_bytes();
    let (mut slices, version) = Slices::listed(&listed)?;
    discovered.update(&slices.servers(port));
    complaint.settle("EndpointSlices");
    let path = format!("{path}&watch=1&resourceVersion={version}&timeoutSeconds={WATCH_SECONDS}");
    let mut body = api.get(&path).await?;
    let mut lines = Lines::new(LONGEST);
    // The API ends it by itself; a connection that died in silence is left after the same time.
    let limit = Duration::from_secs(WATCH_SECONDS) + PATIENCE;
    let ended = tokio::time::timeout(limit, async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| error.to_string())?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            lines.push(data)?;
            while let Some(event) = lines.take() {
                slices.apply(&event)?;
                discovered.update(&slices.servers(port));
            }
        }
        Ok(())
    });
    ended.await.unwrap_or(Ok(()))
}

impl Api {
    fn plain(url: &str) -> Result<Self, String> {
        let wrong = || format!("invalid api {url:?}: expected a URL such as http://127.0.0.1:8001");
        let authority = url.strip_prefix("http://").ok_or_else(wrong)?;
        let authority = authority.trim_end_matches('/');
        let (host, port) = authority.rsplit_once(':').ok_or_else(wrong)?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: port.parse().map_err(|_| wrong())?,
            tls: None,
        })
    }

    /// As the environment and the files of a pod say.
    fn of_pod() -> Result<Self, String> {
        let variable = |name: &str| {
            std::env::var(name).map_err(|_| {
                format!("{name} is not set: run it in a pod, or give the api of `kubectl proxy`")
            })
        };
        let port = variable("KUBERNETES_SERVICE_PORT")?;
        let mut roots = rustls::RootCertStore::empty();
        let path = format!("{ACCOUNT}/ca.crt");
        let certificates = CertificateDer::pem_file_iter(&path);
        let certificates = certificates.map_err(|error| format!("{path}: {error}"))?;
        for certificate in certificates {
            let certificate = certificate.map_err(|error| format!("{path}: {error}"))?;
            roots
                .add(certificate)
                .map_err(|error| format!("{path}: {error}"))?;
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            host: variable("KUBERNETES_SERVICE_HOST")?,
            port: port
                .parse()
                .map_err(|_| format!("invalid port {port:?} of the API"))?,
            tls: Some(Arc::new(config)),
        })
    }

    /// Asks for a path, on a connection of its own.
    async fn get(&self, path: &str) -> Result<Incoming, String> {
        let asked = tokio::time::timeout(PATIENCE, self.ask(path)).await;
        asked.map_err(|_| "the API does not answer".to_owned())?
    }

    async fn ask(&self, path: &str) -> Result<Incoming, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("{}:{}: {error}", self.host, self.port);
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await;
        let stream = stream.map_err(|error| failed(&error))?;
        let mut request = Request::get(path).header("host", &self.host);
        if self.tls.is_some() {
            // It is replaced now and then.
            let token = std::fs::read_to_string(format!("{ACCOUNT}/token"));
            let token = token.map_err(|error| format!("{ACCOUNT}/token: {error}"))?;
            request = request.header("authorization", format!("Bearer {}", token.trim()));
        }
        let request = request.body(Empty::<Bytes>::new());
        let request = request.map_err(|error| failed(&error))?;
        let response = match &self.tls {
            None => exchange(TokioIo::new(stream), request).await,
            Some(config) => {
                let name =
                    ServerName::try_from(self.host.clone()).map_err(|error| failed(&error))?;
                let connector = TlsConnector::from(config.clone());
                let stream = connector.connect(name, stream).await;
                exchange(
                    TokioIo::new(stream.map_err(|error| failed(&error))?),
                    request,
                )
                .await
            }
        };
        let response = response.map_err(|error| failed(&error))?;
        match response.status() {
            StatusCode::OK => Ok(response.into_body()),
            status => Err(failed(&format!("answered {status} to {path}"))),
        }
    }
}

async fn exchange<T>(
    stream: T,
    request: Request<Empty<Bytes>>,
) -> hyper::Result<http::Response<Incoming>>
where
    T: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    // It ends with the body; what goes wrong is an error of the body.
    tokio::spawn(connection);
    sender.send_request(request).await
}

#[cfg(test)]
mod tests;
