//! Checks whether a message is malformed (RFC 9114 §4.1.2–4.4, §10.3; RFC 9110 §5).
//!
//! The rules are strict on purpose: a message that passes can be written as HTTP/1.1 without
//! turning into another message.

use bytes::Bytes;

use crate::byte_map::ByteMap;
use crate::error::StreamError;
use crate::head::{Request, Response};
use crate::qpack::Field;

type Result<T> = core::result::Result<T, StreamError>;

/// The section that a field is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Request,
    Response,
    Trailers,
}

/// Converts a decoded header section to a request.
pub(crate) fn request(section: Vec<Field>) -> Result<Request> {
    let mut request = Request::default();
    let mut seen = 0_u8;
    let fields = split_pseudo(section, |name, value| {
        let (slot, bit) = match name {
            b":method" => (&mut request.method, 1),
            b":scheme" => (&mut request.scheme, 2),
            b":authority" => (&mut request.authority, 4),
            b":path" => (&mut request.path, 8),
            b":protocol" => (&mut request.protocol, 16),
            _ => return malformed("undefined pseudo-header field in a request"),
        };
        if seen & bit != 0 {
            return malformed("duplicate pseudo-header field");
        }
        if value.is_empty() {
            return malformed("empty pseudo-header field");
        }
        seen |= bit;
        *slot = value;
        Ok(())
    })?;
    request.fields = fields;
    check_request(&request)?;
    Ok(request)
}

/// Converts a decoded header section to a response.
pub(crate) fn response(section: Vec<Field>) -> Result<Response> {
    let mut response = Response::default();
    response.fields = split_pseudo(section, |name, value| {
        if name != b":status" {
            return malformed("undefined pseudo-header field in a response");
        }
        if response.status != 0 {
            return malformed("duplicate pseudo-header field");
        }
        response.status = status(&value)?;
        Ok(())
    })?;
    check_response(&response)?;
    Ok(response)
}

/// Checks a request that was received or is about to be sent.
pub(crate) fn check_request(request: &Request) -> Result<()> {
    if !is_token(&request.method) {
        return malformed("missing or invalid :method (expected a token)");
    }
    check_fields(&request.fields, Section::Request)?;
    if request.is_connect() && request.protocol.is_empty() {
        return check_connect(request);
    }
    if !request.protocol.is_empty() {
        if !request.is_connect() {
            return malformed(":protocol is only allowed with CONNECT");
        }
        if !is_token(&request.protocol) {
            return malformed("invalid :protocol (expected a token)");
        }
    }
    check_scheme(&request.scheme)?;
    check_path(request)?;
    check_authority(request)
}

/// Checks a response that was received or is about to be sent.
pub(crate) fn check_response(response: &Response) -> Result<()> {
    match response.status {
        101 => malformed("status 101 (Switching Protocols) is not allowed in HTTP/3"),
        100..=999 => check_fields(&response.fields, Section::Response),
        _ => malformed("missing or invalid :status (expected three digits)"),
    }
}

/// Checks a trailer section that was received or is about to be sent.
pub(crate) fn check_trailers(fields: &[Field]) -> Result<()> {
    check_fields(fields, Section::Trailers)
}

/// Returns the content-length of a section (RFC 9110 §8.6). There may be only one, even with equal
/// values: what forwards the message may take another one of them for the length.
pub(crate) fn content_length(fields: &[Field]) -> Result<Option<u64>> {
    let mut length = None;
    for field in fields.iter().filter(|f| f.name == "content-length") {
        let Some(value) = decimal(&field.value) else {
            return malformed("invalid content-length (expected a decimal number)");
        };
        if length.replace(value).is_some() {
            return malformed("duplicate content-length field");
        }
    }
    Ok(length)
}

/// Passes the pseudo-header fields at the front to `take`, and returns the other fields.
fn split_pseudo(
    mut section: Vec<Field>,
    mut take: impl FnMut(&[u8], Bytes) -> Result<()>,
) -> Result<Vec<Field>> {
    let is_pseudo = |field: &Field| field.name.first() == Some(&b':');
    let count = section.iter().take_while(|f| is_pseudo(f)).count();
    for field in section.drain(..count) {
        take(&field.name, field.value)?;
    }
    Ok(section)
}

/// RFC 9114 §4.4.
fn check_connect(request: &Request) -> Result<()> {
    if !request.scheme.is_empty() || !request.path.is_empty() {
        return malformed(":scheme and :path are not allowed with CONNECT");
    }
    if request.authority.is_empty() {
        return malformed("CONNECT requires :authority");
    }
    check_authority(request)
}

/// RFC 3986 §3.1.
fn check_scheme(scheme: &[u8]) -> Result<()> {
    let rest = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
    match scheme.split_first() {
        Some((first, others)) if first.is_ascii_alphabetic() && others.iter().all(rest) => Ok(()),
        Some(_) => malformed("invalid :scheme"),
        None => malformed("missing :scheme"),
    }
}

/// RFC 9114 §4.3.1.
fn check_path(request: &Request) -> Result<()> {
    let path = &request.path;
    if path.is_empty() {
        return malformed("missing :path");
    }
    let visible = |b: &u8| (0x21..=0x7e).contains(b) && *b != b'#';
    if !path.iter().all(visible) {
        return malformed("invalid character in :path");
    }
    let asterisk = *path == "*" && request.method == "OPTIONS";
    if is_http(&request.scheme) && path.first() != Some(&b'/') && !asterisk {
        return malformed(":path must begin with \"/\"");
    }
    Ok(())
}

/// RFC 9114 §4.3.1: there is an authority, without userinfo, and `host` is the same.
fn check_authority(request: &Request) -> Result<()> {
    let mut hosts = request.fields.iter().filter(|f| f.name == "host");
    let host = hosts.next().map(|f| &f.value);
    if hosts.next().is_some() {
        return malformed("duplicate host field");
    }
    let http = is_http(&request.scheme);
    if host.is_some_and(Bytes::is_empty) && http {
        return malformed("empty host field");
    }
    let authority = Some(&request.authority).filter(|a| !a.is_empty());
    match (authority, host) {
        (Some(authority), Some(host)) if authority != host => {
            return malformed(":authority and host field differ");
        }
        (None, None) if http => return malformed("missing :authority or host field"),
        (Some(_) | None, Some(_) | None) => {}
    }
    let Some(authority) = authority.or(host) else {
        return Ok(());
    };
    if !authority.iter().all(|&b| is_authority_byte(b)) {
        return malformed("invalid character in :authority or host field");
    }
    if authority.contains(&b'@') && (http || request.scheme.is_empty()) {
        return malformed("userinfo is not allowed in :authority or host field");
    }
    Ok(())
}

fn is_http(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"http")
}

/// RFC 3986 §3.2: unreserved, sub-delims, percent, and the delimiters of the parts.
fn is_authority_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%:[]@".contains(&byte)
}

fn check_fields(fields: &[Field], section: Section) -> Result<()> {
    for field in fields {
        check_name(&field.name)?;
        check_value(&field.value)?;
        check_place(field, section)?;
    }
    Ok(())
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.is_empty() {
        return malformed("empty field name");
    }
    match name.iter().find(|&&b| !NAME.get(b)) {
        None => Ok(()),
        Some(b':') => {
            malformed("pseudo-header field after a regular field or in a trailer section")
        }
        Some(b) if b.is_ascii_uppercase() => malformed("uppercase letter in a field name"),
        Some(_) => malformed("invalid character in a field name"),
    }
}

/// The `field-value` of RFC 9110 §5.5: no control characters, no leading or trailing whitespace.
fn check_value(value: &[u8]) -> Result<()> {
    let blank = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    if blank(value.first()) || blank(value.last()) {
        return malformed("field value with leading or trailing whitespace");
    }
    if value.iter().all(|&b| VALUE.get(b)) {
        Ok(())
    } else {
        malformed("invalid character in a field value")
    }
}

/// RFC 9114 §4.2 (connection-specific fields), RFC 9110 §6.5.1 (trailers).
fn check_place(field: &Field, section: Section) -> Result<()> {
    match &field.name[..] {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            malformed("connection-specific field")
        }
        b"te" if section != Section::Request || field.value != "trailers" => {
            malformed("te may only be \"trailers\", and only in a request")
        }
        b"content-length" | b"host" if section == Section::Trailers => {
            malformed("field is not allowed in a trailer section")
        }
        _ => Ok(()),
    }
}

fn status(value: &[u8]) -> Result<u16> {
    let code = (value.len() == 3).then(|| decimal(value)).flatten();
    match code.and_then(|code| u16::try_from(code).ok()) {
        Some(code @ 100..) => Ok(code),
        Some(_) | None => malformed("invalid :status (expected three digits)"),
    }
}

/// Parses a decimal number that consists of digits only.
fn decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |number, byte| {
        let digit = char::from(*byte).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit.into())
    })
}

/// RFC 9110 §5.6.2.
fn is_token(value: &[u8]) -> bool {
    let token = |&b: &u8| NAME.get(b) || b.is_ascii_uppercase();
    !value.is_empty() && value.iter().all(token)
}

fn malformed<T>(reason: &'static str) -> Result<T> {
    Err(StreamError::malformed(reason))
}

/// Characters of a lowercase `token`.
#[expect(
    clippy::indexing_slicing,
    reason = "done while compiling, which fails if it panics"
)]
static NAME: ByteMap<bool> = {
    let mut table = [false; 256];
    let others = b"!#$%&'*+-.^_`|~";
    let mut i = 0;
    while i < 256 {
        let byte = i as u8;
        table[i] = byte.is_ascii_lowercase() || byte.is_ascii_digit();
        i += 1;
    }
    let mut i = 0;
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    ByteMap::new(table)
};

/// Characters of a field value: visible, space, tab, or beyond ASCII.
#[expect(
    clippy::indexing_slicing,
    reason = "done while compiling, which fails if it panics"
)]
static VALUE: ByteMap<bool> = {
    let mut table = [false; 256];
    let mut i = 0;
    while i < 256 {
        table[i] = i >= 0x20 && i != 0x7f || i == 0x09;
        i += 1;
    }
    ByteMap::new(table)
};

#[cfg(test)]
mod tests;
