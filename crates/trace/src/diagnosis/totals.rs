//! What a trace contains, in numbers.

use serde::Serialize;

use crate::event::{Closed, Event, EventData, PacketType, Role};
use crate::report::{Unit, amount};

/// Bytes beyond which an end that sends little is a receiver: more than a handshake.
const RECEIVED: u64 = 100_000;

/// Packets lost, in number and in tenths of a percent of those sent, from which on the headline
/// mentions them.
const MENTIONED: u64 = 10;

/// Counts and facts of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The end that recorded the trace.
    pub role: Option<Role>,
    /// The congestion controller.
    pub controller: Option<String>,
    /// The application protocol.
    pub protocol: Option<String>,
    /// Events, of which some may be of other protocols.
    pub events: u64,
    /// Nanoseconds from the first event to the last.
    pub duration: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// Bytes sent, as far as the trace records sizes.
    pub bytes_sent: u64,
    /// Bytes received, likewise.
    pub bytes_received: u64,
    /// Packets declared lost.
    pub packets_lost: u64,
    /// Runs of consecutive packets declared lost.
    pub loss_bursts: u64,
    /// Packets in the longest of them.
    pub longest_loss_burst: u64,
    /// Probe timeouts: as recorded, or as the packets sent show them.
    pub probe_timeouts: u64,
    /// How the connection ended, if the trace says so.
    pub end: Option<String>,
    #[serde(skip)]
    first: Option<u64>,
    #[serde(skip)]
    burst: Option<Burst>,
}

/// A run of consecutive packets declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Burst {
    kind: PacketType,
    last: u64,
    packets: u64,
}

impl Totals {
    pub(super) fn new(role: Option<Role>) -> Self {
        Self {
            role,
            ..Self::default()
        }
    }

    /// Whether this end mostly received: then what it waited for says little about the transfer.
    #[must_use]
    pub const fn is_receiver(&self) -> bool {
        self.bytes_received > RECEIVED && self.bytes_received / 4 > self.bytes_sent
    }

    /// What a receiver received, for people; `None` at another end.
    pub(super) fn received_sentence(&self) -> Option<String> {
        let seconds = self.duration as f64 / 1e9;
        if !self.is_receiver() || self.duration == 0 {
            return None;
        }
        let received = amount(self.bytes_received as f64, Unit::Bytes);
        let rate = amount(
            self.bytes_received as f64 * 8.0 / seconds,
            Unit::BitsPerSecond,
        );
        Some(format!(
            "This end received {received} in {seconds:.3} s ({rate}); what limited the transfer is in \
             the trace of the other end, the sender."
        ))
    }

    /// The share of packets declared lost, in tenths of a percent of those sent.
    pub(super) fn loss_permille(&self) -> u64 {
        let scaled = self.packets_lost.saturating_mul(1_000);
        scaled.checked_div(self.packets_sent).unwrap_or(0)
    }

    /// What was lost, for people; `None` if that is too little to mention.
    pub(super) fn loss_sentence(&self) -> Option<String> {
        let permille = self.loss_permille();
        if permille < MENTIONED || self.packets_lost < MENTIONED {
            return None;
        }
        let bursts = match (self.loss_bursts, self.longest_loss_burst) {
            (1, _) => "in one burst".to_owned(),
            (bursts, 1) => format!("in {bursts} places, one at a time"),
            (bursts, longest) => format!("in {bursts} bursts of up to {longest}"),
        };
        let (whole, tenth) = (permille / 10, permille % 10);
        Some(format!(
            "{whole}.{tenth} % of the packets sent were declared lost, {bursts}."
        ))
    }

    fn on_lost(&mut self, kind: PacketType, number: u64) {
        self.packets_lost = self.packets_lost.saturating_add(1);
        let follows =
            |burst: &Burst| burst.kind == kind && burst.last.checked_add(1) == Some(number);
        let packets = match self.burst.filter(follows) {
            Some(burst) => burst.packets.saturating_add(1),
            None => {
                self.loss_bursts = self.loss_bursts.saturating_add(1);
                1
            }
        };
        self.longest_loss_burst = self.longest_loss_burst.max(packets);
        self.burst = Some(Burst {
            kind,
            last: number,
            packets,
        });
    }

    pub(super) fn on_event(&mut self, event: &Event) {
        self.events = self.events.saturating_add(1);
        let first = *self.first.get_or_insert(event.time);
        self.duration = self.duration.max(event.time.saturating_sub(first));
        match &event.data {
            EventData::ConnectionStarted(started) => self.role = started.role.or(self.role),
            EventData::RecoveryParametersSet(set) => {
                let controller = set.controller.as_ref().map(ToString::to_string);
                self.controller = controller.or(self.controller.take());
            }
            EventData::AlpnInformation { chosen } => self.protocol = Some(chosen.to_string()),
            EventData::PacketSent(packet) => {
                self.packets_sent = self.packets_sent.saturating_add(1);
                let size = packet.size.unwrap_or(0);
                self.bytes_sent = self.bytes_sent.saturating_add(size);
            }
            EventData::PacketReceived(packet) => {
                self.packets_received = self.packets_received.saturating_add(1);
                let size = packet.size.unwrap_or(0);
                self.bytes_received = self.bytes_received.saturating_add(size);
            }
            EventData::PacketLost {
                kind,
                number,
                mtu_probe: false,
                ..
            } => self.on_lost(*kind, *number),
            EventData::ConnectionClosed(closed) => self.end = Some(ending(closed)),
            _ => {}
        }
    }
}

/// How a connection ended, in words.
fn ending(closed: &Closed) -> String {
    let who = match closed.initiator {
        Some(crate::event::Initiator::Local) => "closed by this end",
        Some(crate::event::Initiator::Remote) => "closed by the peer",
        None => "closed",
    };
    let mut text = who.to_owned();
    if let Some(trigger) = &closed.trigger {
        text.push_str(&format!(" ({})", trigger.replace('_', " ")));
    }
    if let Some(code) = closed.code {
        let kind = if closed.application {
            "application"
        } else {
            "transport"
        };
        text.push_str(&format!(", {kind} code {code:#x}"));
    }
    if let Some(reason) = closed.reason.as_ref().filter(|reason| !reason.is_empty()) {
        text.push_str(&format!(": {reason}"));
    }
    text
}
