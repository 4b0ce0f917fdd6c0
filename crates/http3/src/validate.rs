//! What makes a message malformed (RFC 9114 §4.1.2–4.4, §10.3; RFC 9110 §5).
//!
//! The rules are strict on purpose: a message that gets through here can be written
//! as HTTP/1.1 without becoming another message.

use bytes::Bytes;

use crate::byte_map::ByteMap;
use crate::error::StreamError;
use crate::head::{Request, Response};
use crate::qpack::Field;

type Result<T> = core::result::Result<T, StreamError>;

/// Which section a field stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Section {
    Request,
    Response,
    Trailers,
}

/// Makes a request of a decoded header section.
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
            _ => return malformed("an undefined pseudo-header field in a request"),
        };
        if seen & bit != 0 {
            return malformed("a pseudo-header field comes twice");
        }
        if value.is_empty() {
            return malformed("an empty pseudo-header field");
        }
        seen |= bit;
        *slot = value;
        Ok(())
    })?;
    request.fields = fields;
    check_request(&request)?;
    Ok(request)
}

/// Makes a response of a decoded header section.
pub(crate) fn response(section: Vec<Field>) -> Result<Response> {
    let mut response = Response::default();
    response.fields = split_pseudo(section, |name, value| {
        if name != b":status" {
            return malformed("an undefined pseudo-header field in a response");
        }
        if response.status != 0 {
            return malformed("a pseudo-header field comes twice");
        }
        response.status = status(&value)?;
        Ok(())
    })?;
    check_response(&response)?;
    Ok(response)
}

/// Checks a request, received or about to be sent.
pub(crate) fn check_request(request: &Request) -> Result<()> {
    if !is_token(&request.method) {
        return malformed("no method, or not a token");
    }
    check_fields(&request.fields, Section::Request)?;
    if request.is_connect() && request.protocol.is_empty() {
        return check_connect(request);
    }
    if !request.protocol.is_empty() {
        if !request.is_connect() {
            return malformed(":protocol without CONNECT");
        }
        if !is_token(&request.protocol) {
            return malformed(":protocol is not a token");
        }
    }
    check_scheme(&request.scheme)?;
    check_path(request)?;
    check_authority(request)
}

/// Checks a response, received or about to be sent.
pub(crate) fn check_response(response: &Response) -> Result<()> {
    match response.status {
        101 => malformed("101 does not exist in HTTP/3"),
        100..=999 => check_fields(&response.fields, Section::Response),
        _ => malformed("no status code of three digits"),
    }
}

/// Checks a trailer section, received or about to be sent.
pub(crate) fn check_trailers(fields: &[Field]) -> Result<()> {
    check_fields(fields, Section::Trailers)
}

/// The content-length a section announces (RFC 9110 §8.6). Repeated, it must say
/// the same.
pub(crate) fn content_length(fields: &[Field]) -> Result<Option<u64>> {
    let mut length = None;
    for field in fields.iter().filter(|f| f.name == "content-length") {
        let Some(value) = decimal(&field.value) else {
            return malformed("content-length is not a number");
        };
        if length.is_some_and(|length| length != value) {
            return malformed("two content-lengths");
        }
        length = Some(value);
    }
    Ok(length)
}

/// Hands the pseudo-header fields at the front to `take`; answers the others.
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
        return malformed("CONNECT with :scheme or :path");
    }
    if request.authority.is_empty() {
        return malformed("CONNECT without :authority");
    }
    check_authority(request)
}

/// RFC 3986 §3.1.
fn check_scheme(scheme: &[u8]) -> Result<()> {
    let rest = |b: &u8| b.is_ascii_alphanumeric() || b"+-.".contains(b);
    match scheme.split_first() {
        Some((first, others)) if first.is_ascii_alphabetic() && others.iter().all(rest) => Ok(()),
        Some(_) => malformed(":scheme is not a scheme"),
        None => malformed("no :scheme"),
    }
}

/// RFC 9114 §4.3.1.
fn check_path(request: &Request) -> Result<()> {
    let path = &request.path;
    if path.is_empty() {
        return malformed("no :path");
    }
    let visible = |b: &u8| (0x21..=0x7e).contains(b) && *b != b'#';
    if !path.iter().all(visible) {
        return malformed(":path has a character it can't have");
    }
    let asterisk = *path == "*" && request.method == "OPTIONS";
    if is_http(&request.scheme) && path.first() != Some(&b'/') && !asterisk {
        return malformed(":path does not begin with a slash");
    }
    Ok(())
}

/// RFC 9114 §4.3.1: there is one, no userinfo, and `host` says the same.
fn check_authority(request: &Request) -> Result<()> {
    let mut hosts = request.fields.iter().filter(|f| f.name == "host");
    let host = hosts.next().map(|f| &f.value);
    if hosts.next().is_some() {
        return malformed("two host fields");
    }
    let http = is_http(&request.scheme);
    if host.is_some_and(Bytes::is_empty) && http {
        return malformed("an empty host field");
    }
    let authority = Some(&request.authority).filter(|a| !a.is_empty());
    match (authority, host) {
        (Some(authority), Some(host)) if authority != host => {
            return malformed(":authority and host differ");
        }
        (None, None) if http => return malformed("neither :authority nor host"),
        (Some(_) | None, Some(_) | None) => {}
    }
    let Some(authority) = authority.or(host) else {
        return Ok(());
    };
    if !authority.iter().all(|&b| is_authority_byte(b)) {
        return malformed("the authority has a character it can't have");
    }
    if authority.contains(&b'@') && (http || request.scheme.is_empty()) {
        return malformed("userinfo in the authority");
    }
    Ok(())
}

fn is_http(scheme: &[u8]) -> bool {
    scheme.eq_ignore_ascii_case(b"https") || scheme.eq_ignore_ascii_case(b"http")
}

/// RFC 3986 §3.2: unreserved, sub-delims, percent, and what separates the parts.
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
        return malformed("an empty field name");
    }
    match name.iter().find(|&&b| !NAME.get(b)) {
        None => Ok(()),
        Some(b':') => malformed("a pseudo-header field out of place"),
        Some(b) if b.is_ascii_uppercase() => malformed("an uppercase field name"),
        Some(_) => malformed("a field name has a character it can't have"),
    }
}

/// The `field-value` of RFC 9110 §5.5: no control characters, no blanks at its ends.
fn check_value(value: &[u8]) -> Result<()> {
    let blank = |b: Option<&u8>| matches!(b, Some(b' ' | b'\t'));
    if blank(value.first()) || blank(value.last()) {
        return malformed("a field value begins or ends with a blank");
    }
    if value.iter().all(|&b| VALUE.get(b)) {
        Ok(())
    } else {
        malformed("a field value has a character it can't have")
    }
}

/// RFC 9114 §4.2 (fields of the connection), RFC 9110 §6.5.1 (trailers).
fn check_place(field: &Field, section: Section) -> Result<()> {
    match &field.name[..] {
        b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
            malformed("a field of the connection")
        }
        b"te" if section != Section::Request || field.value != "trailers" => {
            malformed("te says more than \"trailers\"")
        }
        b"content-length" | b"host" if section == Section::Trailers => {
            malformed("a field that trailers can't have")
        }
        _ => Ok(()),
    }
}

fn status(value: &[u8]) -> Result<u16> {
    let code = (value.len() == 3).then(|| decimal(value)).flatten();
    match code.and_then(|code| u16::try_from(code).ok()) {
        Some(code @ 100..) => Ok(code),
        Some(_) | None => malformed(":status is not three digits"),
    }
}

/// A number of digits only.
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

/// Characters of a field value: visible, blank, tab, or beyond ASCII.
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
