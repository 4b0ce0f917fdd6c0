//! A client, and the kinds of requests it makes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use clearway::http::{self as h3, BoxError, Client, Incoming};
use clearway::{ClientConfig, Connection};
use clearway_links::Dice;
use http::{Request, Response, StatusCode};
use tokio::time::Instant;

use crate::pattern::{Check, Content};
use crate::tally::{Outcome, Tally};

/// A request that takes longer is lost.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What a client asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Get,
    Echo,
    Download,
    Upload,
    /// An upload whose body fails.
    CutUpload,
    /// A download that the client stops reading.
    Abandoned,
    /// A request cancelled before the response.
    GivenUp,
    /// A download whose body fails at the server.
    Broken,
    /// A key update by the client.
    Keys,
    /// A key update by the server.
    ServerKeys,
    /// Another socket of the client.
    Migration,
}

impl Kind {
    /// Each kind of a busy client, and the milliseconds between two of them.
    pub(crate) const BUSY: [(Self, u64); 13] = [
        (Self::Get, 100),
        (Self::Get, 120),
        (Self::Get, 150),
        (Self::Echo, 300),
        (Self::Echo, 500),
        (Self::Download, 3_000),
        (Self::Upload, 3_000),
        (Self::CutUpload, 1_500),
        (Self::Abandoned, 2_000),
        (Self::GivenUp, 1_000),
        (Self::Broken, 1_500),
        (Self::Keys, 6_000),
        (Self::ServerKeys, 7_000),
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Echo => "echo with trailers",
            Self::Download => "download",
            Self::Upload => "upload",
            Self::CutUpload => "upload cut off",
            Self::Abandoned => "download abandoned",
            Self::GivenUp => "request given up",
            Self::Broken => "response cut off",
            Self::Keys => "key update by the client",
            Self::ServerKeys => "key update by the server",
            Self::Migration => "migration",
        }
    }
}

/// A client with a name.
#[derive(Clone)]
pub(crate) struct Visitor {
    name: String,
    client: Client,
    /// Where the server is for it.
    url: String,
    tally: Arc<Tally>,
    /// Whether it keeps its one connection.
    keeps: bool,
}

type Asked = Result<Outcome, String>;

fn words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl Visitor {
    pub(crate) fn new(
        name: String,
        port: u16,
        config: ClientConfig,
        tally: Arc<Tally>,
        keeps: bool,
    ) -> Result<Self, BoxError> {
        Ok(Self {
            name,
            client: Client::bind("127.0.0.1:0".parse()?, config)?,
            url: format!("https://localhost:{port}"),
            tally,
            keeps,
        })
    }

    /// Makes this kind of request again and again.
    pub(crate) async fn keep_asking(self, kind: Kind, pause: u64, seed: u64, until: Instant) {
        let mut dice = Dice::new(seed, kind as u64);
        loop {
            let pause = Duration::from_millis(pause / 2 + dice.below(pause));
            tokio::time::sleep(pause).await;
            if Instant::now() >= until {
                return;
            }
            self.ask(kind, &mut dice).await;
        }
    }

    /// Makes one request, and counts its result.
    pub(crate) async fn ask(&self, kind: Kind, dice: &mut Dice) {
        self.tally.asked(kind.name());
        let asking = tokio::time::timeout(PATIENCE, self.perform(kind, dice));
        let result = asking.await.unwrap_or_else(|_| Err("no end".to_owned()));
        let result = result.map_err(|why| format!("{}: {why}", self.name));
        self.tally.ended(kind.name(), result);
    }

    /// Closes, and waits until the server has been told.
    pub(crate) async fn leave(&self) {
        self.client.close().await;
    }

    async fn perform(&self, kind: Kind, dice: &mut Dice) -> Asked {
        let seed = dice.below(u64::MAX);
        match kind {
            Kind::Get => self.fetch(seed, dice.below(4_096)).await,
            Kind::Echo => self.echo(seed, dice.below(64 * 1024)).await,
            Kind::Download => self.fetch(seed, 1_000_000 + dice.below(2_000_000)).await,
            Kind::Upload => self.upload(seed, 100_000 + dice.below(1_000_000)).await,
            Kind::CutUpload => self.cut_upload(seed, dice.below(200_000)).await,
            Kind::Abandoned => self.abandon(seed, dice.below(300_000)).await,
            Kind::GivenUp => self.give_up(Duration::from_millis(dice.below(100))).await,
            Kind::Broken => self.broken(seed, dice.below(100_000)).await,
            Kind::Keys => self.update_keys().await,
            Kind::ServerKeys => self.have_keys_updated().await,
            Kind::Migration => self.migrate(),
        }
    }

    async fn get(&self, path: &str) -> Result<Response<Incoming>, h3::Error> {
        let response = self.client.get(&format!("{}{path}", self.url)).await?;
        self.saw(&response);
        Ok(response)
    }

    async fn post<B>(&self, path: &str, body: B) -> Result<Response<Incoming>, h3::Error>
    where
        B: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let url = format!("{}{path}", self.url);
        let request = Request::post(&url).body(body);
        let request = request.map_err(|_| h3::Error::Url(url, "not a valid URI"))?;
        let response = self.client.request(request).await?;
        self.saw(&response);
        Ok(response)
    }

    fn saw(&self, response: &Response<Incoming>) {
        if let Some(connection) = response.extensions().get::<Connection>()
            && self.keeps
        {
            self.tally.seen(&self.name, connection.id());
        }
    }

    async fn fetch(&self, seed: u64, len: u64) -> Asked {
        let mut response = self
            .get(&format!("/bytes/{seed}/{len}"))
            .await
            .map_err(words)?;
        let mut check = Check::new(seed);
        while let Some(data) = response.body_mut().chunk().await.map_err(words)? {
            check.take(&data)?;
        }
        whole(response.status(), check.at, len)
    }

    async fn echo(&self, seed: u64, len: u64) -> Asked {
        let body = Content::new(seed, len, ()).with_trailer();
        let mut response = self.post("/echo", body).await.map_err(words)?;
        let mut check = Check::new(seed);
        while let Some(data) = response.body_mut().chunk().await.map_err(words)? {
            check.take(&data)?;
        }
        let trailer = response.body().trailers().and_then(|t| t.get("x-length"));
        if trailer.is_none_or(|value| *value != len.to_string()) {
            return Err(format!("the trailer says {trailer:?}, sent was {len}"));
        }
        whole(response.status(), check.at, len)
    }

    async fn upload(&self, seed: u64, len: u64) -> Asked {
        let body = Content::new(seed, len, ());
        let path = format!("/check/{seed}/{len}");
        let mut response = self.post(&path, body).await.map_err(words)?;
        let answer = response.body_mut().text(1_000).await.map_err(words)?;
        match response.status() {
            StatusCode::OK => Ok(Outcome::Whole(len)),
            status => Err(format!("{status}: {answer}")),
        }
    }

    /// Makes an upload fail, which the server may notice in different ways.
    async fn cut_upload(&self, seed: u64, cut: u64) -> Asked {
        let len = cut + 100_000;
        let body = Content::new(seed, len, ()).cut_at(cut);
        let mut response = match self.post(&format!("/check/{seed}/{len}"), body).await {
            Ok(response) => response,
            Err(h3::Error::Reset(code)) => {
                return Ok(Outcome::Caused(format!("reset: {code}"), cut));
            }
            Err(error) => return Err(words(error)),
        };
        let status = response.status();
        let answer = response.body_mut().text(1_000).await.map_err(words)?;
        match status {
            StatusCode::BAD_REQUEST => Ok(Outcome::Caused(answer, cut)),
            status => Err(format!("{status} for half an upload: {answer}")),
        }
    }

    async fn abandon(&self, seed: u64, enough: u64) -> Asked {
        let path = format!("/bytes/{seed}/{}", 10_000_000 + enough);
        let mut response = self.get(&path).await.map_err(words)?;
        let mut check = Check::new(seed);
        while check.at < enough {
            match response.body_mut().chunk().await.map_err(words)? {
                Some(data) => check.take(&data)?,
                None => return Err(format!("ended after {} bytes", check.at)),
            }
        }
        Ok(Outcome::Caused("abandoned".to_owned(), check.at))
    }

    async fn give_up(&self, after: Duration) -> Asked {
        match tokio::time::timeout(after, self.get("/never")).await {
            Ok(Ok(response)) => Err(format!("answered with {}", response.status())),
            Ok(Err(error)) => Err(words(error)),
            Err(_) => Ok(Outcome::Caused("given up".to_owned(), 0)),
        }
    }

    async fn broken(&self, seed: u64, cut: u64) -> Asked {
        let path = format!("/broken/{seed}/{}/{cut}", cut + 100_000);
        let mut check = Check::new(seed);
        let error = match self.get(&path).await {
            Err(error) => error,
            Ok(mut response) => loop {
                match response.body_mut().chunk().await {
                    Ok(Some(data)) => check.take(&data)?,
                    Ok(None) => return Err(format!("looks whole after {} bytes", check.at)),
                    Err(error) => break error,
                }
            },
        };
        match error {
            h3::Error::Reset(code) => Ok(Outcome::Caused(format!("reset: {code}"), check.at)),
            error => Err(words(error)),
        }
    }

    async fn update_keys(&self) -> Asked {
        let url = self.url.parse().map_err(words)?;
        let connection = self.client.connect(&url).await.map_err(words)?;
        Ok(match connection.update_keys() {
            Ok(()) => Outcome::Whole(0),
            // The server's own update is in progress.
            Err(error) => Outcome::Caused(error.to_string(), 0),
        })
    }

    async fn have_keys_updated(&self) -> Asked {
        let body = Content::new(0, 0, ());
        let mut response = self.post("/keys", body).await.map_err(words)?;
        let answer = response.body_mut().text(1_000).await.map_err(words)?;
        match response.status() {
            StatusCode::OK => Ok(Outcome::Whole(0)),
            StatusCode::TOO_MANY_REQUESTS => Ok(Outcome::Caused(answer, 0)),
            status => Err(format!("{status}: {answer}")),
        }
    }

    fn migrate(&self) -> Asked {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").map_err(words)?;
        self.client.endpoint().rebind(socket).map_err(words)?;
        Ok(Outcome::Whole(0))
    }

    /// Connections, handlers and bodies alive at the server, uploads cut.
    pub(crate) async fn census(&self) -> Result<[u64; 3], String> {
        let mut response = self.get("/census").await.map_err(words)?;
        let answer = response.body_mut().text(1_000).await.map_err(words)?;
        let numbers: Vec<u64> = answer
            .split(' ')
            .filter_map(|number| number.parse().ok())
            .collect();
        numbers.try_into().map_err(|_| answer)
    }
}

fn whole(status: StatusCode, arrived: u64, len: u64) -> Asked {
    if status == StatusCode::OK && arrived == len {
        Ok(Outcome::Whole(len))
    } else {
        Err(format!("{status}, {arrived} of {len} bytes"))
    }
}
