//! The server under test: HTTP/3 on one address, QUIC without it on another.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::routing::{get, post};
use clearway::http::{BoxError, Server};
use clearway::{Connection, DevelopmentIdentity, Endpoint, ServerConfig};
use clearway_quic::crypto::{Identity, ServerCrypto, ServerSessions};
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;

use crate::pattern::{Check, Content};

/// The application protocol of the address without HTTP.
pub(crate) const ALPN: &str = "soak";

/// Sessions that can be resumed. The default number would take a day to fill, and look like a
/// leak until then.
const SESSIONS: usize = 64;

/// Counters of the server.
#[derive(Debug, Default)]
struct Census {
    /// Handlers and bodies alive.
    alive: AtomicUsize,
    /// Uploads that ended in an error.
    cut: AtomicU64,
}

/// Counts a handler or its response body until it is dropped.
#[derive(Debug)]
struct Alive(Arc<Census>);

impl Alive {
    fn new(census: &Arc<Census>) -> Self {
        census.alive.fetch_add(1, Ordering::Relaxed);
        Self(census.clone())
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

type Shared = State<(Arc<Census>, Server)>;

/// Serves until the process is killed. Prints both addresses and the
/// certificate's fingerprint.
pub(crate) async fn serve() -> Result<(), BoxError> {
    let identity = DevelopmentIdentity::generate(["localhost"])?;
    let pem = (identity.certificate_pem(), identity.key_pem());
    let crypto = ServerCrypto::new(Identity::from_pem(pem.0.as_bytes(), pem.1.as_bytes())?);
    let sessions = Arc::new(ServerSessions::new(SESSIONS));
    let config = ServerConfig::with_crypto(crypto.sessions(sessions));
    let server = Server::bind("127.0.0.1:0".parse()?, config.clone())?;
    let bare = Endpoint::server("127.0.0.1:0".parse()?, config.alpn([ALPN]))?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "{} {} {}",
        server.local_addr(),
        bare.local_addr(),
        identity.fingerprint()
    )?;
    tokio::spawn(async move { bare.serve(echo_all).await });
    let router = Router::new()
        .route("/bytes/{seed}/{len}", get(bytes))
        .route("/broken/{seed}/{len}/{cut}", get(broken))
        .route("/never", get(never))
        .route("/check/{seed}/{len}", post(check))
        .route("/echo", post(echo))
        .route("/keys", post(update_keys))
        .route("/census", get(census))
        .with_state((Arc::default(), server.clone()));
    server.serve(router).await?;
    Ok(())
}

/// Sends the requested content.
async fn bytes(State((census, _)): Shared, Path((seed, len)): Path<(u64, u64)>) -> Response<Body> {
    Response::new(Body::new(Content::new(seed, len, Alive::new(&census))))
}

/// Sends half of the content, then fails.
async fn broken(
    State((census, _)): Shared,
    Path((seed, len, cut)): Path<(u64, u64, u64)>,
) -> Response<Body> {
    let content = Content::new(seed, len, Alive::new(&census));
    Response::new(Body::new(content.cut_at(cut)))
}

/// Never answers, so that the client cancels.
async fn never(State((census, _)): Shared) {
    let _alive = Alive::new(&census);
    std::future::pending::<()>().await;
}

/// Checks the content of an upload.
async fn check(
    State((census, _)): Shared,
    Path((seed, len)): Path<(u64, u64)>,
    request: Request,
) -> (StatusCode, String) {
    let _alive = Alive::new(&census);
    let mut body = request.into_body();
    let mut check = Check::new(seed);
    while let Some(frame) = body.frame().await {
        let frame = match frame {
            Ok(frame) => frame,
            Err(error) => {
                census.cut.fetch_add(1, Ordering::Relaxed);
                return (StatusCode::BAD_REQUEST, error.to_string());
            }
        };
        if let Some(Err(why)) = frame.data_ref().map(|data| check.take(data)) {
            return (StatusCode::CONFLICT, why);
        }
    }
    if check.at == len {
        (StatusCode::OK, format!("{len}"))
    } else {
        (StatusCode::CONFLICT, format!("{} of {len} bytes", check.at))
    }
}

/// Echoes the request's body and trailers while they arrive.
async fn echo(request: Request) -> Response<Body> {
    Response::new(request.into_body())
}

/// Initiates a key update from the server's side.
async fn update_keys(request: Request) -> (StatusCode, String) {
    let Some(connection) = request.extensions().get::<Connection>() else {
        return (
            StatusCode::CONFLICT,
            "a request without a connection".to_owned(),
        );
    };
    match connection.update_keys() {
        Ok(()) => (StatusCode::OK, "updated".to_owned()),
        // The client's own update is in progress.
        Err(error) => (StatusCode::TOO_MANY_REQUESTS, error.to_string()),
    }
}

/// Connections, handlers alive, uploads cut.
async fn census(State((census, server)): Shared) -> String {
    format!(
        "{} {} {}",
        server.endpoint().open_connections(),
        census.alive.load(Ordering::Relaxed),
        census.cut.load(Ordering::Relaxed)
    )
}

/// Echoes streams and datagrams.
async fn echo_all(connection: Connection) {
    let datagrams = connection.clone();
    tokio::spawn(async move {
        while let Ok(datagram) = datagrams.read_datagram().await {
            // Dropped when the queue is full, as datagrams may be.
            let _ = datagrams.send_datagram(datagram);
        }
    });
    let keys = connection.clone();
    tokio::spawn(async move {
        while keys.close_reason().is_none() {
            tokio::time::sleep(Duration::from_secs(5)).await;
            // Too early: the client has just updated its keys.
            let _ = keys.update_keys();
        }
    });
    while let Ok((mut send, mut recv)) = connection.accept_bi().await {
        tokio::spawn(async move {
            if tokio::io::copy(&mut recv, &mut send).await.is_ok() {
                let _ = send.finish();
            }
        });
    }
}
