//! The steps of a script.

use core::time::Duration;
use std::time::Instant;

use super::{Facts, Session, Stop};
use crate::raw::{PacketOptions, RawConnection, Tls};
use crate::script::{
    ConnectUntil, FrameSpec, Item, MAX_DATAGRAM, MAX_ROUNDS, Mark, RawDatagram, SendOptions, Step,
    WaitFor,
};
use crate::wire::packet::Level;
use crate::wire::parameters::Parameters;
use crate::wire::{hex, http, put_short_prefixed};

/// How long SETTINGS and a ticket are waited for behind the first response.
const MORE_FACTS: Duration = Duration::from_millis(500);
/// How many rounds pass between two looks at the socket.
const ROUNDS_AT_ONCE: u64 = 16;

impl Session<'_> {
    /// Executes steps, until the connection is over.
    pub(crate) async fn execute(&mut self, steps: &[Step]) -> Result<(), Stop> {
        for step in steps {
            // The steps of a `repeat` are behind a pointer of their own.
            Box::pin(self.step(step)).await?;
            if self.is_over() {
                return Err(Stop::Over);
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), Stop> {
        match step {
            Step::Connect(until) => self.connect(*until).await,
            Step::Http3 => self.open_http().await,
            Step::Send(level, options, frames) => self.send(*level, options, frames).await,
            Step::Stream { name, items } => self.write_items(name, items).await,
            Step::Datagram(datagram) => self.raw_datagram(datagram).await,
            Step::Wait(what) => self.wait(what).await,
            Step::Rebind => {
                self.note("from here on from another port".to_owned());
                self.observed.mark();
                self.rebind()
                    .await
                    .map_err(|error| Stop::Failed(error.to_string()))
            }
            Step::UpdateKeys => {
                self.note("from here on with the next keys".to_owned());
                self.raw.iter_mut().for_each(RawConnection::update_keys);
                Ok(())
            }
            Step::Ecn(mark) => self.ecn(*mark),
            Step::Acks(on) => {
                self.responsive = *on;
                self.raw.iter_mut().for_each(|raw| raw.responsive = *on);
                Ok(())
            }
            Step::Repeat(count, steps) => {
                let rounds = count.evaluate(self).map_err(Stop::Failed)?;
                if rounds > MAX_ROUNDS {
                    let why = format!("{rounds} rounds are more than the {MAX_ROUNDS} of a case");
                    return Err(Stop::NotApplicable(why));
                }
                for round in 0..rounds {
                    self.round = round;
                    self.execute(steps).await?;
                }
                Ok(())
            }
        }
    }

    /// Sends what waits, without waiting for answers.
    async fn settle(&mut self) {
        if self.round.is_multiple_of(ROUNDS_AT_ONCE) {
            self.pump(Instant::now()).await;
        }
    }

    fn ecn(&mut self, mark: Mark) -> Result<(), Stop> {
        self.note(format!("from here on with ECN codepoint {mark:?}"));
        self.set_mark(mark)
            .map_err(|error| Stop::NotApplicable(format!("cannot set the ECN codepoint: {error}")))
    }

    async fn connect(&mut self, until: ConnectUntil) -> Result<(), Stop> {
        let failed = |error: &dyn core::fmt::Display| Stop::Failed(error.to_string());
        let config = self
            .target
            .client_config(&self.setup.alpn)
            .map_err(|error| failed(&error))?;
        if self.setup.early_data {
            self.begin(config.clone(), ConnectUntil::Confirmed)?;
            self.handshake(ConnectUntil::Confirmed).await?;
            let patience = self.limits.patience;
            let ticket = |session: &Self| {
                let raw = session.raw.as_ref();
                raw.is_some_and(|raw| raw.tls().tickets() > 0)
            };
            self.wait_for(patience, ticket).await;
            self.close().await;
            self.rebind().await.map_err(|error| failed(&error))?;
            self.observed = crate::raw::Observed::default();
            self.begin(config, until)?;
            if !self
                .raw
                .as_ref()
                .is_some_and(|raw| raw.has_keys(Level::ZeroRtt))
            {
                let why = "the server offered no 0-RTT".to_owned();
                return Err(Stop::NotApplicable(why));
            }
        } else {
            self.begin(config, until)?;
        }
        self.handshake(until).await
    }

    /// Sends the ClientHello.
    fn begin(
        &mut self,
        config: std::sync::Arc<rustls::ClientConfig>,
        until: ConnectUntil,
    ) -> Result<(), Stop> {
        let mut cids = [[0; 8]; 2];
        for cid in &mut cids {
            // Fails on no system that this runs on.
            aws_lc_rs::rand::fill(cid).map_err(|_| Stop::Failed("no random numbers".to_owned()))?;
        }
        let mut parameters = Parameters::ordinary(&cids[0]);
        for edit in &self.setup.parameters {
            parameters.edit(edit);
        }
        let tls = Tls::client(config, self.target.name.clone(), parameters.encode())
            .map_err(|error| Stop::Failed(error.to_string()))?;
        let setup = self.setup;
        let raw = RawConnection::client(tls, cids, setup.version, setup.initial_size, &setup.hello);
        let mut raw = raw.map_err(Stop::Failed)?;
        raw.set_token(&setup.token);
        raw.responsive = self.responsive;
        raw.hold_tls = until == ConnectUntil::Hello;
        raw.hold_handshake = until == ConnectUntil::Keys;
        self.last_datagram = Some((setup.initial_size, cids[1].to_vec(), cids[0].to_vec()));
        self.raw = Some(raw);
        Ok(())
    }

    /// Waits for a point of the handshake.
    async fn handshake(&mut self, until: ConnectUntil) -> Result<(), Stop> {
        if until == ConnectUntil::Hello {
            self.pump(Instant::now()).await;
            return Ok(());
        }
        let reached = |session: &Self| {
            let Some(raw) = &session.raw else {
                return false;
            };
            match until {
                ConnectUntil::Hello => true,
                ConnectUntil::Keys => raw.has_keys(Level::OneRtt),
                ConnectUntil::Complete => raw.tls().is_complete(),
                ConnectUntil::Confirmed => session.observed.handshake_done,
            }
        };
        let ordinary = self.setup.is_ordinary();
        let limit = match ordinary {
            true => self.limits.connect,
            false => self.limits.patience,
        };
        let failed = |session: &Self| {
            let raw = session.raw.as_ref();
            raw.is_some_and(|raw| raw.tls().failure().is_some())
                || session.observed.version_negotiation.is_some()
        };
        let done = self
            .wait_for(limit, |session| reached(session) || failed(session))
            .await;
        if done && reached(self) {
            return Ok(());
        }
        match ordinary {
            true => Err(Stop::Failed(format!("could not connect: {}", self.came()))),
            false => Err(Stop::Over),
        }
    }

    /// Makes an ordinary request on a connection that is confirmed. Returns its status and what
    /// the server offers.
    pub(crate) async fn ordinary_request(&mut self, limit: Duration) -> Option<(u16, Facts)> {
        self.open_http().await.ok()?;
        self.write_request("request").ok()?;
        self.wait_for(limit, |session| session.status("request").is_some())
            .await;
        let status = self.status("request")?;
        // SETTINGS and tickets come on their own streams, at any time.
        let complete = |session: &Self| {
            let raw = session.raw.as_ref();
            let ticket = raw.is_some_and(|raw| raw.tls().tickets() > 0);
            ticket && session.settings().is_some()
        };
        self.wait_for(limit.min(MORE_FACTS), complete).await;
        let raw = self.raw.as_ref()?;
        let facts = Facts {
            parameters: raw.peer_parameters.clone().unwrap_or_default(),
            settings: self.settings().unwrap_or_default(),
            early_data: raw.tls().tickets() > 0,
        };
        Some((status, facts))
    }

    /// Returns why TLS failed on this side.
    pub(crate) fn tls_failure(&self) -> Option<String> {
        let raw = self.raw.as_ref()?;
        raw.tls().failure().map(ToOwned::to_owned)
    }

    /// Writes an ordinary GET.
    pub(super) fn write_request(&mut self, stream: &str) -> Result<(), Stop> {
        let target = self.target;
        let fields = [
            (&b":method"[..], &b"GET"[..]),
            (b":scheme", b"https"),
            (b":authority", target.authority.as_bytes()),
            (b":path", target.path.as_bytes()),
        ];
        let mut frame = Vec::new();
        http::put_frame(
            &mut frame,
            http::kind::HEADERS,
            &http::field_section(fields),
        );
        self.write(stream, &frame, true)
    }

    /// Opens the streams that every HTTP/3 client opens.
    pub(crate) async fn open_http(&mut self) -> Result<(), Stop> {
        // H3_DATAGRAM, so that cases may use HTTP datagrams (RFC 9297 §2.1.1).
        self.write("control", &[0x00, 0x04, 0x02, 0x33, 0x01], false)?;
        self.write("encoder", &[0x02], false)?;
        self.write("decoder", &[0x03], false)?;
        self.http_is_open = true;
        self.settle().await;
        Ok(())
    }

    async fn send(
        &mut self,
        level: Level,
        options: &SendOptions,
        frames: &[FrameSpec],
    ) -> Result<(), Stop> {
        let mut payload = Vec::new();
        for frame in frames {
            frame.encode(self, &mut payload).map_err(Stop::Failed)?;
        }
        // A packet without frames has to be answered as well.
        let eliciting = frames.iter().any(|frame| frame.shape.ack_eliciting) || frames.is_empty();
        let options = PacketOptions {
            flip: options.flip,
            skip: options.skip,
            reliable: eliciting && !options.once && level != Level::ZeroRtt,
        };
        self.observed.mark();
        self.send_packet(level, &payload, options)?;
        self.settle().await;
        Ok(())
    }

    async fn write_items(&mut self, name: &str, items: &[Item]) -> Result<(), Stop> {
        let mut bytes = Vec::new();
        for item in items {
            let target = self.target;
            item.encode(self, &target.authority, &target.path, &mut bytes)
                .map_err(Stop::Failed)?;
        }
        let fin = items.iter().any(|item| matches!(item, Item::Fin));
        self.observed.mark();
        self.write(name, &bytes, fin)?;
        self.settle().await;
        Ok(())
    }

    async fn raw_datagram(&mut self, datagram: &RawDatagram) -> Result<(), Stop> {
        let bytes = self.encode_datagram(datagram).map_err(Stop::Failed)?;
        let shown = hex(bytes.get(..40).unwrap_or(&bytes));
        self.note(format!("datagram of {} bytes: {shown}…", bytes.len()));
        self.observed.mark();
        self.send_datagram(&bytes).await;
        self.settle().await;
        Ok(())
    }

    fn encode_datagram(&mut self, datagram: &RawDatagram) -> Result<Vec<u8>, String> {
        let dcid = datagram.dcid.evaluate(self)?;
        let scid = datagram.scid.evaluate(self)?;
        let size = datagram.size.evaluate(self)?;
        if size > MAX_DATAGRAM {
            return Err(format!(
                "a datagram of {size} bytes exceeds the {MAX_DATAGRAM} of UDP"
            ));
        }
        let mut bytes = vec![datagram.first.evaluate(self)? as u8];
        if let Some(version) = &datagram.version {
            bytes.extend((version.evaluate(self)? as u32).to_be_bytes());
            for cid in [&dcid, &scid] {
                put_short_prefixed(&mut bytes, cid)?;
            }
        } else {
            bytes.extend_from_slice(&dcid);
        }
        bytes.extend(datagram.rest.evaluate(self)?);
        let mut filler = vec![0; (size as usize).saturating_sub(bytes.len())];
        aws_lc_rs::rand::fill(&mut filler).map_err(|_| "no random numbers".to_owned())?;
        bytes.extend(filler);
        self.last_datagram = Some((bytes.len(), dcid, scid));
        Ok(bytes)
    }

    async fn wait(&mut self, what: &WaitFor) -> Result<(), Stop> {
        let patience = self.limits.patience;
        match what {
            WaitFor::Time(time) => {
                self.wait_for((*time).min(Duration::from_secs(60)), |_| false)
                    .await;
                Ok(())
            }
            WaitFor::Acked => {
                let acked = |session: &Self| {
                    let raw = session.raw.as_ref();
                    raw.is_some_and(RawConnection::is_acked)
                };
                self.require(patience, acked, "an acknowledgement").await
            }
            WaitFor::Frame(name) => {
                let arrived = |session: &Self| session.observed.has_frame(name);
                self.require(patience, arrived, name).await
            }
            WaitFor::Response(stream) => {
                let answered = |session: &Self| session.status(stream).is_some();
                self.require(patience, answered, "a response").await
            }
            WaitFor::Ticket => {
                let ticket = |session: &Self| {
                    let raw = session.raw.as_ref();
                    raw.is_some_and(|raw| raw.tls().tickets() > 0)
                };
                self.require(patience, ticket, "a session ticket").await
            }
        }
    }

    /// Waits for what has to come before the next step; what came instead is judged.
    async fn require(
        &mut self,
        limit: Duration,
        done: impl Fn(&Self) -> bool,
        what: &str,
    ) -> Result<(), Stop> {
        if self.wait_for(limit, done).await {
            return Ok(());
        }
        self.note(format!("waited for {what}, which did not come"));
        Err(Stop::Over)
    }
}
