//! The steps of a case.

use core::time::Duration;

use super::error::unknown;
use super::expected::unknown_frame;
use super::expression::{BytesValue, Expression, Scope};
use super::lexer::unquote;
use super::setup::Mark;
use crate::wire::frame::{Form, Shape, shape_named};
use crate::wire::packet::Level;
use crate::wire::{http, put_prefixed, put_short_prefixed, put_varint};

/// How far a handshake goes before the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectUntil {
    /// The ClientHello is sent; nothing else follows by itself.
    Hello,
    /// All keys are there, and our last flight is held back.
    Keys,
    /// Our last flight is sent.
    Complete,
    /// HANDSHAKE_DONE has arrived.
    Confirmed,
}

/// A field's value in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(Expression),
    Bytes(BytesValue),
}

/// A frame as a script writes it.
#[derive(Clone, Debug)]
pub(crate) struct FrameSpec {
    pub(crate) shape: &'static Shape,
    /// A value for each field of the shape.
    pub(crate) values: Vec<Value>,
}

/// How a packet differs from an ordinary one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SendOptions {
    /// Bits of the first byte that are inverted before protection.
    pub(crate) flip: u8,
    /// Packet numbers that are left out before it.
    pub(crate) skip: u64,
    /// Whether it is sent only once, even if no acknowledgement arrives.
    pub(crate) once: bool,
}

/// Something that is written on a stream.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    /// An integer, such as a stream type.
    Varint(Expression),
    /// An HTTP/3 frame with this payload.
    Frame(u64, BytesValue),
    /// An HTTP/3 frame whose payload is one integer.
    FrameOfVarint(u64, Expression),
    /// SETTINGS with these pairs.
    Settings(Vec<(Expression, Expression)>),
    /// HEADERS with these fields.
    Headers(Vec<(Vec<u8>, Vec<u8>)>),
    /// Bytes as they are.
    Raw(BytesValue),
    /// The end of the stream.
    Fin,
}

/// A datagram that no connection protects.
#[derive(Clone, Debug)]
pub(crate) struct RawDatagram {
    pub(crate) first: Expression,
    /// `None` for a short header.
    pub(crate) version: Option<Expression>,
    pub(crate) dcid: BytesValue,
    pub(crate) scid: BytesValue,
    /// Behind the connection IDs.
    pub(crate) rest: BytesValue,
    /// Random bytes are appended up to this size.
    pub(crate) size: Expression,
}

/// What a `wait` waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WaitFor {
    Time(Duration),
    /// Everything that was sent is acknowledged.
    Acked,
    /// A frame of this type arrives.
    Frame(&'static str),
    /// A response arrives on this stream.
    Response(String),
    /// A session ticket arrives.
    Ticket,
}

/// A step of a case.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Connect(ConnectUntil),
    /// The control stream with SETTINGS, and both QPACK streams.
    Http3,
    Send(Level, SendOptions, Vec<FrameSpec>),
    Stream {
        name: String,
        items: Vec<Item>,
    },
    Datagram(RawDatagram),
    Wait(WaitFor),
    /// From now on, everything leaves from another port.
    Rebind,
    /// The next packets are protected with the next keys, whether that is permitted or not.
    UpdateKeys,
    Ecn(Mark),
    /// Acknowledgements and retransmissions are withheld, or not any more.
    Acks(bool),
    /// The steps, so many times.
    Repeat(Expression, Vec<Self>),
}

impl FrameSpec {
    /// Reads `NAME field=value …`.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let Some((name, fields)) = words.split_first() else {
            return Err("missing frame: expected its name, such as PING".into());
        };
        let shape = shape_named(name).ok_or_else(|| unknown_frame(name))?;
        let mut given = Vec::new();
        for field in fields {
            // RAW has one field, which needs no name.
            let (key, value) = match field.split_once('=') {
                Some((key, value)) if !field.starts_with('"') => (key, value),
                Some(_) | None if shape.name == "RAW" => ("data", field.as_str()),
                Some(_) | None => {
                    return Err(format!(
                        "invalid field {field:?} of {name}: expected FIELD=VALUE"
                    ));
                }
            };
            if !shape.fields.iter().any(|known| known.name == key) {
                let known = shape.fields.iter().map(|known| known.name);
                return Err(unknown(&format!("field of {name}"), key, known));
            }
            given.push((key, value));
        }
        let values = shape.fields.iter().map(|field| {
            let text = given.iter().find(|(key, _)| *key == field.name);
            let text = text.map_or(field.default, |(_, value)| value);
            match field.form {
                Form::Varint | Form::Repeat => Expression::parse(text).map(Value::Number),
                Form::Prefixed | Form::ShortPrefixed | Form::Plain => {
                    BytesValue::parse(text).map(Value::Bytes)
                }
            }
        });
        Ok(Self {
            shape,
            values: values.collect::<Result<_, _>>()?,
        })
    }

    /// Appends the frame's bytes.
    pub(crate) fn encode(&self, scope: &dyn Scope, out: &mut Vec<u8>) -> Result<(), String> {
        let mut frame = Vec::new();
        if let Some(kind) = self.shape.kind {
            put_varint(&mut frame, kind);
        }
        let mut times = 1;
        for (field, value) in self.shape.fields.iter().zip(&self.values) {
            match (field.form, value) {
                (Form::Repeat, Value::Number(count)) => times = count.evaluate(scope)?,
                (_, Value::Number(number)) => number.put_varint(scope, &mut frame)?,
                (Form::Prefixed, Value::Bytes(bytes)) => {
                    put_prefixed(&mut frame, &bytes.evaluate(scope)?);
                }
                (Form::ShortPrefixed, Value::Bytes(bytes)) => {
                    let bytes = bytes.evaluate(scope)?;
                    put_short_prefixed(&mut frame, &bytes)?;
                }
                (Form::Plain | Form::Varint | Form::Repeat, Value::Bytes(bytes)) => {
                    frame.extend_from_slice(&bytes.evaluate(scope)?);
                }
            }
        }
        for _ in 0..times.min(1_200) {
            out.extend_from_slice(&frame);
        }
        Ok(())
    }
}

impl SendOptions {
    /// Reads `flip=0x18 skip=3 once`.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let mut options = Self::default();
        for word in words {
            let number = |text: &str| match Expression::parse(text)? {
                Expression::Number(number) => Ok(number),
                _ => Err(format!("invalid option {word:?}: expected a number")),
            };
            match word.split_once('=') {
                None if word == "once" => options.once = true,
                Some(("flip", bits)) => options.flip = number(bits)? as u8,
                Some(("skip", count)) => options.skip = number(count)?,
                Some((name, _)) => return Err(unknown("option", name, ["flip", "skip", "once"])),
                None => return Err(unknown("option", word, ["flip=", "skip=", "once"])),
            }
        }
        Ok(options)
    }
}

impl Item {
    const NAMES: [&str; 10] = [
        "TYPE",
        "DATA",
        "HEADERS",
        "SETTINGS",
        "CANCEL_PUSH",
        "GOAWAY",
        "MAX_PUSH_ID",
        "FRAME",
        "RAW",
        "FIN",
    ];

    /// Reads `HEADERS :method=GET …`, `DATA "abc"`, `FIN` and so on.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let Some((name, rest)) = words.split_first() else {
            return Err(format!(
                "missing item: expected one of {}",
                Self::NAMES.join(", ")
            ));
        };
        let one = || match rest {
            [word] => Ok(word),
            _ => Err(format!("{name} needs one value, found {}", rest.len())),
        };
        let number = || Expression::parse(one()?);
        let bytes = || BytesValue::parse(one()?);
        Ok(match name.as_str() {
            "TYPE" => Self::Varint(number()?),
            "DATA" => Self::Frame(http::kind::DATA, bytes()?),
            "HEADERS" => match rest {
                [raw] if raw.starts_with("hex:") => {
                    Self::Frame(http::kind::HEADERS, BytesValue::parse(raw)?)
                }
                fields => Self::Headers(fields.iter().map(|f| field(f)).collect::<Result<_, _>>()?),
            },
            "SETTINGS" => match rest {
                [raw] if raw.starts_with("hex:") => {
                    Self::Frame(http::kind::SETTINGS, BytesValue::parse(raw)?)
                }
                pairs => Self::Settings(pairs.iter().map(|p| pair(p)).collect::<Result<_, _>>()?),
            },
            "CANCEL_PUSH" => Self::FrameOfVarint(http::kind::CANCEL_PUSH, number()?),
            "GOAWAY" => Self::FrameOfVarint(http::kind::GOAWAY, number()?),
            "MAX_PUSH_ID" => Self::FrameOfVarint(http::kind::MAX_PUSH_ID, number()?),
            "FRAME" => match rest {
                [kind, payload] => {
                    let Expression::Number(kind) = Expression::parse(kind)? else {
                        return Err("invalid frame type: expected a number such as 0x21".into());
                    };
                    Self::Frame(kind, BytesValue::parse(payload)?)
                }
                _ => return Err("FRAME needs a type and a payload: FRAME 0x21 \"abc\"".into()),
            },
            "RAW" => Self::Raw(bytes()?),
            "FIN" => Self::Fin,
            other => return Err(unknown("item", other, Self::NAMES)),
        })
    }

    /// Appends the item's bytes. `authority` and `path` take the place of `@authority` and
    /// `@path` in fields.
    pub(crate) fn encode(
        &self,
        scope: &dyn Scope,
        authority: &str,
        path: &str,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match self {
            Self::Varint(value) => value.put_varint(scope, out)?,
            Self::Frame(kind, payload) => http::put_frame(out, *kind, &payload.evaluate(scope)?),
            Self::FrameOfVarint(kind, value) => {
                let mut payload = Vec::new();
                value.put_varint(scope, &mut payload)?;
                http::put_frame(out, *kind, &payload);
            }
            Self::Settings(pairs) => {
                let mut payload = Vec::new();
                for (id, value) in pairs {
                    id.put_varint(scope, &mut payload)?;
                    value.put_varint(scope, &mut payload)?;
                }
                http::put_frame(out, http::kind::SETTINGS, &payload);
            }
            Self::Headers(fields) => {
                let fields = fields.iter().map(|(name, value)| {
                    let value = match value.as_slice() {
                        b"@authority" => authority.as_bytes(),
                        b"@path" => path.as_bytes(),
                        value => value,
                    };
                    (name.as_slice(), value)
                });
                http::put_frame(out, http::kind::HEADERS, &http::field_section(fields));
            }
            Self::Raw(bytes) => out.extend_from_slice(&bytes.evaluate(scope)?),
            Self::Fin => {}
        }
        Ok(())
    }
}

/// Most bytes of one field's value.
const MAX_FIELD: usize = 4 << 20;

/// Reads `name=value`; the name may begin with a colon, and both may be in quotation marks.
fn field(word: &str) -> Result<(Vec<u8>, Vec<u8>), String> {
    let at = match word.strip_prefix('"') {
        // Behind the closing quotation mark of the name.
        Some(inner) => inner.find("\"=").map(|at| at + 2),
        None => word.find('='),
    };
    let at = at.ok_or_else(|| {
        format!("invalid field {word:?}: expected NAME=VALUE, or hex: and a whole field section")
    })?;
    let value = match word[at + 1..].strip_prefix("fill:") {
        Some(count) => {
            let count: usize = count.parse().unwrap_or(usize::MAX);
            if count > MAX_FIELD {
                return Err(format!(
                    "invalid field {word:?}: expected a number up to {MAX_FIELD} behind fill:"
                ));
            }
            vec![b'a'; count]
        }
        None => unquote(&word[at + 1..])?,
    };
    Ok((unquote(&word[..at])?, value))
}

fn pair(word: &str) -> Result<(Expression, Expression), String> {
    let (id, value) = word
        .split_once('=')
        .ok_or_else(|| format!("invalid setting {word:?}: expected IDENTIFIER=VALUE"))?;
    Ok((Expression::parse(id)?, Expression::parse(value)?))
}

impl RawDatagram {
    /// Reads `long version=… dcid=… scid=… rest=… size=…` or `short dcid=… size=…`.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        let Some((form, fields)) = words.split_first() else {
            return Err("missing form of the header: expected long or short".into());
        };
        let mut datagram = match form.as_str() {
            "long" => Self {
                first: Expression::Number(0xc0),
                version: Some(Expression::Number(1)),
                ..Self::empty()
            },
            "short" => Self::empty(),
            other => return Err(unknown("form of a header", other, ["long", "short"])),
        };
        for word in fields {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("invalid field {word:?}: expected FIELD=VALUE"))?;
            match name {
                "first" => datagram.first = Expression::parse(value)?,
                "version" => datagram.version = Some(Expression::parse(value)?),
                "dcid" => datagram.dcid = BytesValue::parse(value)?,
                "scid" => datagram.scid = BytesValue::parse(value)?,
                "rest" => datagram.rest = BytesValue::parse(value)?,
                "size" => datagram.size = Expression::parse(value)?,
                other => {
                    let known = ["first", "version", "dcid", "scid", "rest", "size"];
                    return Err(unknown("field of a datagram", other, known));
                }
            }
        }
        Ok(datagram)
    }

    fn empty() -> Self {
        Self {
            first: Expression::Number(0x40),
            version: None,
            dcid: BytesValue::Literal(vec![0xd1; 8]),
            scid: BytesValue::Literal(vec![0x51; 8]),
            rest: BytesValue::Literal(Vec::new()),
            size: Expression::Number(1_200),
        }
    }
}

impl WaitFor {
    /// Reads `50ms`, `acked`, `frame NAME`, `response STREAM`, `ticket`.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        match words {
            [word] if word == "acked" => Ok(Self::Acked),
            [word] if word == "ticket" => Ok(Self::Ticket),
            [word, name] if word == "frame" => shape_named(name)
                .map(|shape| Self::Frame(shape.name))
                .ok_or_else(|| unknown_frame(name)),
            [word, stream] if word == "response" => Ok(Self::Response(stream.clone())),
            [time] => duration(time).map(Self::Time),
            _ => Err(
                "invalid wait: expected a time such as 50ms, `acked`, `ticket`, `frame NAME` or \
                      `response STREAM`"
                    .into(),
            ),
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.strip_suffix("ms") {
        Some(number) => number.parse().ok().map(Duration::from_millis),
        None => text
            .strip_suffix('s')
            .and_then(|number| number.parse().ok())
            .map(Duration::from_secs),
    };
    parsed
        .filter(|time| *time <= Duration::from_secs(60))
        .ok_or_else(|| format!("invalid time {text:?}: expected one up to 60s, such as 50ms or 2s"))
}
