//! The layout of frames (RFC 9000 §19, RFC 9221 §4), to write any values into it.

/// How a field is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A variable-length integer.
    Varint,
    /// Bytes behind their length as a variable-length integer.
    Prefixed,
    /// Bytes behind their length in one byte.
    ShortPrefixed,
    /// Bytes as they are.
    Plain,
    /// The number of times that the frame is repeated; the field itself is not written.
    Repeat,
}

/// A field of a frame, and the value that it has unless a script names one.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) form: Form,
    pub(crate) default: &'static str,
}

/// A frame type.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) name: &'static str,
    /// `None` for bytes that are written without a type.
    pub(crate) kind: Option<u64>,
    pub(crate) fields: &'static [Field],
    /// Whether a packet with it has to be acknowledged (RFC 9002 §2).
    pub(crate) ack_eliciting: bool,
}

const fn varint(name: &'static str, default: &'static str) -> Field {
    Field {
        name,
        form: Form::Varint,
        default,
    }
}

const fn bytes(name: &'static str, form: Form, default: &'static str) -> Field {
    Field {
        name,
        form,
        default,
    }
}

const fn shape(name: &'static str, kind: u64, fields: &'static [Field]) -> Shape {
    Shape {
        name,
        kind: Some(kind),
        fields,
        ack_eliciting: true,
    }
}

const fn silent(name: &'static str, kind: u64, fields: &'static [Field]) -> Shape {
    Shape {
        ack_eliciting: false,
        ..shape(name, kind, fields)
    }
}

const COUNT: Field = bytes("count", Form::Repeat, "1");
const ID: Field = varint("id", "0");
const CODE: Field = varint("code", "0");
const LIMIT: Field = varint("limit", "0");
const OFFSET: Field = varint("offset", "0");
const DATA: Field = bytes("data", Form::Prefixed, "\"\"");
const EIGHT: Field = bytes("data", Form::Plain, "hex:0102030405060708");
const REASON: Field = bytes("reason", Form::Prefixed, "\"\"");
const STREAM: &[Field] = &[ID, OFFSET, DATA];
const ACK: &[Field] = &[
    varint("largest", "0"),
    varint("delay", "0"),
    varint("ranges", "0"),
    varint("first", "0"),
    bytes("more", Form::Plain, "\"\""),
];
const ACK_ECN: &[Field] = &[
    varint("largest", "0"),
    varint("delay", "0"),
    varint("ranges", "0"),
    varint("first", "0"),
    bytes("more", Form::Plain, "\"\""),
    varint("ect0", "0"),
    varint("ect1", "0"),
    varint("ce", "0"),
];

/// Every frame that a script can write.
pub(crate) const SHAPES: &[Shape] = &[
    silent("PADDING", 0x00, &[COUNT]),
    shape("PING", 0x01, &[COUNT]),
    silent("ACK", 0x02, ACK),
    silent("ACK_ECN", 0x03, ACK_ECN),
    shape("RESET_STREAM", 0x04, &[ID, CODE, varint("final_size", "0")]),
    shape("STOP_SENDING", 0x05, &[ID, CODE]),
    shape("CRYPTO", 0x06, &[OFFSET, DATA]),
    shape(
        "NEW_TOKEN",
        0x07,
        &[bytes("token", Form::Prefixed, "\"token\"")],
    ),
    shape("STREAM", 0x0e, STREAM),
    shape("STREAM_FIN", 0x0f, STREAM),
    shape("MAX_DATA", 0x10, &[LIMIT]),
    shape("MAX_STREAM_DATA", 0x11, &[ID, LIMIT]),
    shape("MAX_STREAMS_BIDI", 0x12, &[LIMIT]),
    shape("MAX_STREAMS_UNI", 0x13, &[LIMIT]),
    shape("DATA_BLOCKED", 0x14, &[LIMIT]),
    shape("STREAM_DATA_BLOCKED", 0x15, &[ID, LIMIT]),
    shape("STREAMS_BLOCKED_BIDI", 0x16, &[LIMIT]),
    shape("STREAMS_BLOCKED_UNI", 0x17, &[LIMIT]),
    shape(
        "NEW_CONNECTION_ID",
        0x18,
        &[
            varint("sequence", "1"),
            varint("retire_prior_to", "0"),
            bytes("cid", Form::ShortPrefixed, "hex:c1c1c1c1c1c1c1c1"),
            bytes("token", Form::Plain, "hex:000102030405060708090a0b0c0d0e0f"),
        ],
    ),
    shape("RETIRE_CONNECTION_ID", 0x19, &[varint("sequence", "0")]),
    shape("PATH_CHALLENGE", 0x1a, &[EIGHT]),
    shape("PATH_RESPONSE", 0x1b, &[EIGHT]),
    silent(
        "CONNECTION_CLOSE",
        0x1c,
        &[CODE, varint("frame_type", "0"), REASON],
    ),
    silent("APPLICATION_CLOSE", 0x1d, &[CODE, REASON]),
    shape("HANDSHAKE_DONE", 0x1e, &[]),
    shape("DATAGRAM", 0x31, &[DATA]),
    Shape {
        name: "RAW",
        kind: None,
        fields: &[bytes("data", Form::Plain, "\"\"")],
        ack_eliciting: true,
    },
];

/// Returns the frame type with this name.
pub(crate) fn shape_named(name: &str) -> Option<&'static Shape> {
    SHAPES.iter().find(|shape| shape.name == name)
}

/// Returns the name of a received frame.
pub(crate) fn name_of(kind: u64) -> &'static str {
    let kind = match kind {
        0x08..=0x0f => 0x0e | kind & 1,
        0x30 => 0x31,
        kind => kind,
    };
    let found = SHAPES.iter().find(|shape| shape.kind == Some(kind));
    found.map_or("unknown frame", |shape| shape.name)
}
