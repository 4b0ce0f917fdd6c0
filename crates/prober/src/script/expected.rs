//! What a case expects.

use core::fmt;

use super::error::unknown;
use crate::wire::codes::ErrorCode;
use crate::wire::frame::shape_named;

/// One acceptable outcome of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The server closes the connection with one of these codes.
    Close(Vec<ErrorCode>),
    /// The server resets a stream, or stops reading it, with one of these codes.
    Reset {
        stream: String,
        codes: Vec<ErrorCode>,
    },
    /// The server answers a request with a status from `from` to `to`.
    Status { stream: String, from: u16, to: u16 },
    /// The connection goes on: what was sent is acknowledged, and a further request is answered.
    Alive,
    /// The server sends a frame of this type after the last step.
    Frame(&'static str),
    /// A Version Negotiation packet that repeats the connection IDs and offers a version.
    VersionNegotiation,
    /// A datagram smaller than the last one sent that looks like a stateless reset; with the
    /// token that the server gave, if the connection has one.
    StatelessReset,
    /// Nothing arrives.
    Silence,
    /// The server does not close the connection.
    Open,
    /// The server uses the next keys.
    KeysUpdated,
    /// The server makes a further connection with somebody else, and answers a request on it.
    Serves,
    /// Before the address is validated, the server sends at most this many times what it received.
    AtMost(u64),
}

impl Expected {
    const NAMES: [&str; 12] = [
        "close",
        "reset",
        "status",
        "alive",
        "frame",
        "version-negotiation",
        "stateless-reset",
        "silence",
        "open",
        "keys-updated",
        "serves",
        "at-most",
    ];

    /// Reads the words behind `expect`.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let Some((name, rest)) = words.split_first() else {
            return Err(format!(
                "missing outcome: expected one of {}",
                Self::NAMES.join(", ")
            ));
        };
        let plain = |expected| match rest {
            [] => Ok(expected),
            [word, ..] => Err(format!("unexpected {word:?} behind {name}: remove it")),
        };
        match name.as_str() {
            "close" => Ok(Self::Close(codes(rest)?)),
            "reset" => {
                let (stream, rest) = stream_and_rest(rest)?;
                Ok(Self::Reset {
                    stream,
                    codes: codes(rest)?,
                })
            }
            "status" => {
                let (stream, rest) = stream_and_rest(rest)?;
                let (from, to) = status_range(rest)?;
                Ok(Self::Status { stream, from, to })
            }
            "frame" => match rest {
                [name] => shape_named(name)
                    .map(|shape| Self::Frame(shape.name))
                    .ok_or_else(|| unknown_frame(name)),
                _ => Err("expected one frame type, such as `expect frame PATH_CHALLENGE`".into()),
            },
            "at-most" => match rest.first().and_then(|factor| factor.parse().ok()) {
                Some(factor) if rest.len() == 1 => Ok(Self::AtMost(factor)),
                _ => Err("expected one number, such as `expect at-most 3`".into()),
            },
            "alive" => plain(Self::Alive),
            "version-negotiation" => plain(Self::VersionNegotiation),
            "stateless-reset" => plain(Self::StatelessReset),
            "silence" => plain(Self::Silence),
            "open" => plain(Self::Open),
            "keys-updated" => plain(Self::KeysUpdated),
            "serves" => plain(Self::Serves),
            other => Err(unknown("outcome", other, Self::NAMES)),
        }
    }

    /// Returns whether it can be seen to be missed only by waiting.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Self::Alive | Self::Silence | Self::Open | Self::Serves | Self::AtMost(_) => true,
            Self::Close(_)
            | Self::Reset { .. }
            | Self::Status { .. }
            | Self::Frame(_)
            | Self::VersionNegotiation
            | Self::StatelessReset
            | Self::KeysUpdated => false,
        }
    }
}

pub(super) fn unknown_frame(name: &str) -> String {
    unknown(
        "frame",
        name,
        crate::wire::frame::SHAPES.iter().map(|shape| shape.name),
    )
}

fn stream_and_rest(words: &[String]) -> Result<(String, &[String]), String> {
    match words.split_first() {
        Some((stream, rest)) => Ok((stream.clone(), rest)),
        None => Err("missing stream: expected the name of a stream of this case".into()),
    }
}

fn codes(words: &[String]) -> Result<Vec<ErrorCode>, String> {
    if words.is_empty() {
        return Err("missing error code: expected one or more, such as FINAL_SIZE_ERROR".into());
    }
    let code = |word: &String| {
        ErrorCode::named(word).ok_or_else(|| {
            let known = unknown("error code", word, ErrorCode::names());
            format!("{known} (or tls:ALERT, transport:NUMBER, application:NUMBER)")
        })
    };
    words.iter().map(code).collect()
}

fn status_range(words: &[String]) -> Result<(u16, u16), String> {
    let wrong =
        || "invalid status: expected one such as 200, or a range such as 400-499".to_owned();
    let [word] = words else {
        return Err(wrong());
    };
    let (from, to) = word.split_once('-').unwrap_or((word, word));
    let range = (
        from.parse().map_err(|_| wrong())?,
        to.parse().map_err(|_| wrong())?,
    );
    Ok(range)
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |codes: &[ErrorCode]| {
            let codes: Vec<_> = codes.iter().map(ToString::to_string).collect();
            codes.join(" or ")
        };
        match self {
            Self::Close(codes) => write!(f, "connection closed with {}", join(codes)),
            Self::Reset { stream, codes } => {
                write!(f, "stream {stream:?} reset with {}", join(codes))
            }
            Self::Status { from, to, .. } if from == to => write!(f, "status {from}"),
            Self::Status { from, to, .. } => write!(f, "status {from} to {to}"),
            Self::Alive => f.write_str("the connection goes on"),
            Self::Frame(name) => write!(f, "{name}"),
            Self::VersionNegotiation => f.write_str("Version Negotiation"),
            Self::StatelessReset => f.write_str("stateless reset"),
            Self::Silence => f.write_str("no answer"),
            Self::Open => f.write_str("the connection is not closed"),
            Self::KeysUpdated => f.write_str("the server updates its keys"),
            Self::Serves => f.write_str("a further connection is served"),
            Self::AtMost(factor) => write!(f, "at most {factor} times the bytes sent"),
        }
    }
}
