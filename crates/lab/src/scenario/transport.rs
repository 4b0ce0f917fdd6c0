//! Transport settings of a scenario.

use core::time::Duration;

use clearway_quic::connection::Config;
use clearway_recovery::congestion::SlowStart;
use clearway_recovery::controller::SavedPath;

use super::error::{ScenarioError, Source, suggest};
use super::network::{count, time};
use super::tree::{Scalar, Table};
use super::units;
use super::variables::{Assignment, substitute};
use crate::stack::Certificates;

/// From this value on a `max_ack_delay` is invalid (RFC 9000 §18.2).
const ACK_DELAY_LIMIT: Duration = Duration::from_millis(1 << 14);

/// `[transport]` as written in the file.
#[derive(Clone, Debug)]
pub(super) struct TransportText {
    acks: Option<Scalar>,
    max_ack_delay: Option<Scalar>,
    mtu: Option<Scalar>,
    window: Option<Scalar>,
    budget: Option<Scalar>,
    key_update_after: Option<Scalar>,
    certificates: Option<Scalar>,
    x25519_only: Option<Scalar>,
    ecn: Option<Scalar>,
    idle_timeout: Option<Scalar>,
    handshake_timeout: Option<Scalar>,
    initial_rtt: Option<Scalar>,
    slow_start: Option<Scalar>,
    resume_capacity: Option<Scalar>,
    resume_rtt: Option<Scalar>,
}

impl TransportText {
    pub(super) fn read(table: Option<Table>, source: &Source<'_>) -> Result<Self, ScenarioError> {
        let mut table = table.map_or_else(|| Table::parse(&Source { file: "", text: "" }), Ok)?;
        let this = Self {
            acks: table.take_leaf(source, "acks")?,
            max_ack_delay: table.take_leaf(source, "max_ack_delay")?,
            mtu: table.take_leaf(source, "mtu")?,
            window: table.take_leaf(source, "window")?,
            budget: table.take_leaf(source, "budget")?,
            key_update_after: table.take_leaf(source, "key_update_after")?,
            certificates: table.take_leaf(source, "certificates")?,
            x25519_only: table.take_leaf(source, "x25519_only")?,
            ecn: table.take_leaf(source, "ecn")?,
            idle_timeout: table.take_leaf(source, "idle_timeout")?,
            handshake_timeout: table.take_leaf(source, "handshake_timeout")?,
            initial_rtt: table.take_leaf(source, "initial_rtt")?,
            slow_start: table.take_leaf(source, "slow_start")?,
            resume_capacity: table.take_leaf(source, "resume_capacity")?,
            resume_rtt: table.take_leaf(source, "resume_rtt")?,
        };
        table.finish(source, "[transport]")?;
        Ok(this)
    }

    pub(super) fn compile(
        &self,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<(Config, Certificates, bool), ScenarioError> {
        let mut config = Config::default();
        let span = |leaf: &Option<Scalar>| -> Result<Option<Duration>, ScenarioError> {
            let leaf = leaf.as_ref();
            leaf.map(|leaf| time(leaf, variables, source)).transpose()
        };
        config.max_ack_delay = span(&self.max_ack_delay)?.unwrap_or(config.max_ack_delay);
        if let Some(leaf) = &self.max_ack_delay
            && config.max_ack_delay >= ACK_DELAY_LIMIT
        {
            let problem = format!("invalid max_ack_delay {:?}: peers reject it", leaf.text);
            let help = "expected less than 2^14 ms, which is 16.384s (RFC 9000 §18.2)";
            return Err(source.error(&leaf.span, problem, help));
        }
        config.idle_timeout = span(&self.idle_timeout)?.unwrap_or(config.idle_timeout);
        if let Some(timeout) = span(&self.handshake_timeout)? {
            config.handshake_timeout = timeout;
            config.client_hello_timeout = timeout;
        }
        config.initial_rtt = span(&self.initial_rtt)?.unwrap_or(config.initial_rtt);
        if let Some(leaf) = &self.acks {
            acks(&mut config, &substitute(leaf, variables, source)?)
                .map_err(|help| source.error(&leaf.span, "unknown acknowledgement policy", help))?;
        }
        if let Some(leaf) = &self.mtu {
            config.max_mtu = u16::try_from(count(leaf, u32::MAX, variables, source)?)
                .ok()
                .filter(|mtu| *mtu >= 1_200)
                .ok_or_else(|| {
                    let help = "expected bytes from 1200 to 65527 (RFC 9000 §14)";
                    source.error(&leaf.span, "datagram size out of range", help)
                })?;
        }
        let size = |leaf: &Option<Scalar>| -> Result<Option<u64>, ScenarioError> {
            let Some(leaf) = leaf else { return Ok(None) };
            let text = substitute(leaf, variables, source)?;
            let bytes = units::bytes(&text).map_err(|why| source.error(&leaf.span, why, ""))?;
            Ok(Some(bytes))
        };
        // A window without a budget never grows.
        if let Some(window) = size(&self.window)? {
            config.streams.stream_window = window;
            config.streams.connection_window = window;
            config.streams.receive_budget = size(&self.budget)?.unwrap_or(window);
        }
        if let Some(leaf) = &self.key_update_after {
            config.key_update_after = Some(u64::from(count(leaf, u32::MAX, variables, source)?));
        }
        if let Some(leaf) = &self.ecn {
            config.ecn = truth(leaf, variables, source)?;
        }
        if let Some(leaf) = &self.slow_start {
            let name = substitute(leaf, variables, source)?;
            config.slow_start = name.parse().map_err(|_| {
                let known = SlowStart::ALL.map(SlowStart::name);
                let problem = format!("unknown slow start {name:?}");
                source.error(&leaf.span, problem, suggest(&name, &known))
            })?;
        }
        let x25519_only = self
            .x25519_only
            .as_ref()
            .map(|leaf| truth(leaf, variables, source));
        Ok((
            config,
            self.certificates(source)?,
            x25519_only.transpose()?.unwrap_or(false),
        ))
    }

    /// What an earlier connection measured of the path, which senders resume.
    pub(super) fn resumed(
        &self,
        variables: &Assignment,
        source: &Source<'_>,
    ) -> Result<Option<SavedPath>, ScenarioError> {
        let (capacity, rtt) = match (&self.resume_capacity, &self.resume_rtt) {
            (None, None) => return Ok(None),
            (Some(capacity), Some(rtt)) => (capacity, rtt),
            (Some(leaf), None) | (None, Some(leaf)) => {
                let problem = "resume_capacity and resume_rtt have no effect without each other";
                return Err(source.error(&leaf.span, problem, "add the other one, or remove it"));
            }
        };
        let text = substitute(capacity, variables, source)?;
        let bytes = units::bytes(&text).map_err(|why| source.error(&capacity.span, why, ""))?;
        let rtt = time(rtt, variables, source)?;
        let saved = SavedPath {
            capacity: bytes,
            rtt,
        };
        Ok((bytes > 0).then_some(saved))
    }

    fn certificates(&self, source: &Source<'_>) -> Result<Certificates, ScenarioError> {
        match &self.certificates {
            None => Ok(Certificates::One),
            Some(leaf) => match leaf.text.as_str() {
                "1" => Ok(Certificates::One),
                "9" => Ok(Certificates::ChainOfNine),
                _ => Err(source.error(&leaf.span, "unknown certificate chain", "expected 1 or 9")),
            },
        }
    }
}

fn truth(
    leaf: &Scalar,
    variables: &Assignment,
    source: &Source<'_>,
) -> Result<bool, ScenarioError> {
    let text = substitute(leaf, variables, source)?;
    text.parse().map_err(|_| {
        let problem = format!("{text:?} is not a boolean");
        source.error(&leaf.span, problem, "expected true or false")
    })
}

/// Sets the acknowledgement policy of receivers.
fn acks(config: &mut Config, text: &str) -> Result<(), &'static str> {
    let (asked, threshold) = match text {
        "asked" => (true, 2),
        "every" => (false, 1),
        "every-2" => (false, 2),
        "every-10" => (false, 10),
        _ => {
            return Err(
                "expected asked (as the sender's ACK_FREQUENCY says), every, every-2 or every-10",
            );
        }
    };
    config.ack_frequency = asked;
    config.ack_threshold = threshold;
    Ok(())
}
