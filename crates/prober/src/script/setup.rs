//! What is decided before a connection begins, and what a case needs of the server.

use super::error::unknown;
use super::expression::{BytesValue, Expression, Scope};
use super::lexer::unquote;
use crate::wire::hello::{EXTENSIONS, HelloEdit};
use crate::wire::packet::{MIN_INITIAL, VERSION_1};
use crate::wire::parameters::{self, ParameterEdit};
use crate::wire::put_short_prefixed;

/// The client that a case uses.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    /// Application protocols; `h3` unless the case says otherwise.
    pub(crate) alpn: Vec<Vec<u8>>,
    pub(crate) parameters: Vec<ParameterEdit>,
    pub(crate) hello: Vec<HelloEdit>,
    /// Version of the packets.
    pub(crate) version: u32,
    /// Datagrams with Initial packets are padded to this size.
    pub(crate) initial_size: usize,
    /// Token of the first Initial packets.
    pub(crate) token: Vec<u8>,
    /// Whether the case runs on a second, resumed connection with 0-RTT keys.
    pub(crate) early_data: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            alpn: vec![b"h3".to_vec()],
            parameters: Vec::new(),
            hello: Vec::new(),
            version: VERSION_1,
            initial_size: MIN_INITIAL,
            token: Vec::new(),
            early_data: false,
        }
    }
}

impl Setup {
    /// Returns whether a correct server completes the handshake with this client.
    pub(crate) fn is_ordinary(&self) -> bool {
        let ordinary = Self::default();
        self.alpn == ordinary.alpn
            && self.parameters.is_empty()
            && self.hello.is_empty()
            && self.token.is_empty()
            && self.version == ordinary.version
            && self.initial_size == ordinary.initial_size
    }

    /// Reads `alpn "h3" "other"` or `alpn none`.
    pub(super) fn alpn(&mut self, words: &[String]) -> Result<(), String> {
        self.alpn = match words {
            [] => return Err("missing protocols: expected `alpn none` or `alpn \"h3\"`".into()),
            [word] if word == "none" => Vec::new(),
            words => words
                .iter()
                .map(|word| unquote(word))
                .collect::<Result<_, _>>()?,
        };
        Ok(())
    }

    /// Reads `token BYTES`.
    pub(super) fn token(&mut self, words: &[String]) -> Result<(), String> {
        let [bytes] = words else {
            return Err("expected the token's bytes: `token \"abc\"`".into());
        };
        self.token = constant(bytes)?;
        Ok(())
    }

    /// Reads `parameter NAME=VALUE`, `parameter remove NAME`, `parameter duplicate NAME`, or
    /// `parameter trailing BYTES`.
    pub(super) fn parameter(&mut self, words: &[String]) -> Result<(), String> {
        let edit = match words {
            [verb, name] if verb == "remove" => ParameterEdit::Remove(parameter_id(name)?),
            [verb, name] if verb == "duplicate" => ParameterEdit::Duplicate(parameter_id(name)?),
            [verb, bytes] if verb == "trailing" => ParameterEdit::Trailing(constant(bytes)?),
            [assignment] => {
                let (name, value) = assignment.split_once('=').ok_or_else(|| {
                    format!("invalid parameter {assignment:?}: expected NAME=VALUE")
                })?;
                ParameterEdit::Set(parameter_id(name)?, parameter_value(value)?)
            }
            _ => {
                return Err("invalid parameter: expected NAME=VALUE, `remove NAME`, \
                            `duplicate NAME` or `trailing BYTES`"
                    .into());
            }
        };
        self.parameters.push(edit);
        Ok(())
    }

    /// Reads `hello remove EXTENSION` and the other changes of a ClientHello.
    pub(super) fn hello(&mut self, words: &[String]) -> Result<(), String> {
        let [verb, argument] = words else {
            return Err(
                "invalid change of the ClientHello: expected `remove EXTENSION`, \
                        `duplicate EXTENSION`, `set EXTENSION=BYTES`, `session-id BYTES`, \
                        `compression BYTES`, `suites BYTES`, `append BYTES` or `type NUMBER`"
                    .into(),
            );
        };
        self.hello.push(match verb.as_str() {
            "remove" => HelloEdit::Remove(extension(argument)?),
            "duplicate" => HelloEdit::Duplicate(extension(argument)?),
            "set" => {
                let (name, bytes) = argument.split_once('=').ok_or_else(|| {
                    format!("invalid extension {argument:?}: expected EXTENSION=BYTES")
                })?;
                HelloEdit::Set(extension(name)?, constant(bytes)?)
            }
            "session-id" => HelloEdit::SessionId(short(constant(argument)?)?),
            "compression" => HelloEdit::Compression(short(constant(argument)?)?),
            "suites" => HelloEdit::Suites(constant(argument)?),
            "append" => HelloEdit::Append(constant(argument)?),
            "type" => HelloEdit::MessageType(argument.parse().map_err(|_| {
                format!("invalid message type {argument:?}: expected a number from 0 to 255")
            })?),
            other => {
                let verbs = [
                    "remove",
                    "duplicate",
                    "set",
                    "session-id",
                    "compression",
                    "suites",
                    "append",
                    "type",
                ];
                return Err(unknown("change of the ClientHello", other, verbs));
            }
        });
        Ok(())
    }
}

/// There is no connection yet that could be asked for anything.
struct Nothing;

impl Scope for Nothing {
    fn variable(&self, _: super::Variable) -> Result<u64, String> {
        Err("variables are not known before the connection: write a number".into())
    }
    fn stream(&self, _: &str) -> Option<u64> {
        None
    }
    fn remote_cid(&self) -> Vec<u8> {
        Vec::new()
    }
}

fn constant(text: &str) -> Result<Vec<u8>, String> {
    BytesValue::parse(text)?.evaluate(&Nothing)
}

/// Returns the bytes if their length fits into the one byte in front of them.
fn short(bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    put_short_prefixed(&mut Vec::new(), &bytes)?;
    Ok(bytes)
}

/// Reads a parameter's value: bytes, or a number, which becomes a variable-length integer.
fn parameter_value(text: &str) -> Result<Vec<u8>, String> {
    if text.starts_with('"') || text.starts_with("hex:") || text.starts_with("fill:") {
        return constant(text);
    }
    let mut value = Vec::new();
    Expression::parse(text)?.put_varint(&Nothing, &mut value)?;
    Ok(value)
}

fn parameter_id(name: &str) -> Result<u64, String> {
    if let Some(digits) = name.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16)
            .map_err(|_| format!("invalid parameter {name:?}: expected a name or 0x and digits"));
    }
    let found = parameters::NAMES.iter().find(|(known, _)| *known == name);
    found.map(|(_, id)| *id).ok_or_else(|| {
        unknown(
            "transport parameter",
            name,
            parameters::NAMES.iter().map(|n| n.0),
        )
    })
}

fn extension(name: &str) -> Result<u16, String> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = EXTENSIONS.iter().find(|(known, _)| *known == name);
    found
        .map(|(_, kind)| *kind)
        .ok_or_else(|| unknown("extension", name, EXTENSIONS.iter().map(|n| n.0)))
}

/// The ECN codepoint of what is sent (RFC 3168 §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    NotEct = 0b00,
    Ect1 = 0b01,
    Ect0 = 0b10,
    Ce = 0b11,
}

impl Mark {
    pub(super) const NAMES: [(&'static str, Self); 4] = [
        ("none", Self::NotEct),
        ("ect1", Self::Ect1),
        ("ect0", Self::Ect0),
        ("ce", Self::Ce),
    ];
}

/// What a server has to have for a case to make sense; otherwise the case is skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// Tickets that permit 0-RTT.
    EarlyData,
    /// No `disable_active_migration`.
    ActiveMigration,
    /// HTTP datagrams (RFC 9297).
    Datagrams,
    /// A `stateless_reset_token`.
    ResetToken,
    /// `A < B`, in words for the report.
    Less(Expression, Expression, String),
}

impl Need {
    /// Reads the words behind `needs`.
    pub(super) fn parse(words: &[String]) -> Result<Self, String> {
        match words {
            [word] => Ok(match word.as_str() {
                "early-data" => Self::EarlyData,
                "active-migration" => Self::ActiveMigration,
                "datagrams" => Self::Datagrams,
                "reset-token" => Self::ResetToken,
                other => {
                    let known = ["early-data", "active-migration", "datagrams", "reset-token"];
                    return Err(unknown("need", other, known));
                }
            }),
            [a, less, b] if less == "<" => Ok(Self::Less(
                Expression::parse(a)?,
                Expression::parse(b)?,
                format!("{a} < {b}"),
            )),
            _ => Err("invalid need: expected one word, or a comparison such as \
                      `@max_streams_bidi < 1000`"
                .into()),
        }
    }
}
