//! Single events as evidence: what happened when.

use clearway_recovery::limit::Limit;
use serde::Serialize;

use crate::event::Name;

/// An event that supports a finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// Nanoseconds of the trace.
    pub time: u64,
    /// What happened, in a few words.
    pub text: String,
}

/// What happened, before it is put into words: most is forgotten again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    /// Packets sent, by number.
    Sent { from: u64, to: u64, bytes: u64 },
    /// An ACK received, with its largest packet number.
    Acked { largest: u64 },
    /// Bytes in flight, if they became zero.
    FlightEmpty,
    /// A new congestion window.
    Window { old: Option<u64>, new: u64 },
    /// Another field of the controller that changed.
    Internal { name: Name, old: u64, new: u64 },
    /// The controller's new state.
    State { new: Name, trigger: Option<Name> },
    /// What the sender waits for.
    Limit(Option<Limit>),
}

impl core::fmt::Display for Happening {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Sent { from, to, bytes } if from == to => {
                write!(f, "sent packet {from} ({bytes} bytes)")
            }
            Self::Sent { from, to, bytes } => {
                write!(f, "sent packets {from} to {to} ({bytes} bytes)")
            }
            Self::Acked { largest } => write!(f, "received an ACK up to packet {largest}"),
            Self::FlightEmpty => f.write_str("nothing in flight"),
            Self::Window { old: None, new } => write!(f, "congestion window {new} bytes"),
            Self::Window {
                old: Some(old),
                new,
            } => write!(f, "congestion window {old} -> {new} bytes"),
            Self::Internal { name, old, new } if name == "epoch_shift" => {
                let by = crate::detect::span(new.saturating_sub(*old));
                write!(f, "idle adjustment: the growth curve is moved by {by}")
            }
            Self::Internal { name, old, new } => write!(f, "controller's {name} {old} -> {new}"),
            Self::State { new, trigger: None } => write!(f, "congestion state {new}"),
            Self::State {
                new,
                trigger: Some(trigger),
            } => write!(f, "congestion state {new} ({trigger})"),
            Self::Limit(None) => f.write_str("the recorder no longer says what limits the sender"),
            Self::Limit(Some(limit)) => write!(f, "limited by {}", limit.name().replace('_', " ")),
        }
    }
}
