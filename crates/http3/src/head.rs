//! The header sections of requests and responses (RFC 9114 §4.3).

use bytes::Bytes;

use crate::qpack::{self, Field, FieldRef};

/// What a client asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `:method`.
    pub method: Bytes,
    /// `:scheme`; empty for a CONNECT without `protocol`.
    pub scheme: Bytes,
    /// `:authority`; empty if there is only a `host` field.
    pub authority: Bytes,
    /// `:path`, query included; empty for a CONNECT without `protocol`.
    pub path: Bytes,
    /// `:protocol` of an extended CONNECT (RFC 9220 §3); else empty.
    pub protocol: Bytes,
    /// The fields, in order. Cookies come as the peer split them
    /// (RFC 9114 §4.2.1).
    pub fields: Vec<Field>,
}

/// What a server answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// `:status`, 100 to 999.
    pub status: u16,
    /// The fields, in order.
    pub fields: Vec<Field>,
}

impl Request {
    /// A request without fields for a resource of `https`.
    #[must_use]
    pub fn new(
        method: impl Into<Bytes>,
        authority: impl Into<Bytes>,
        path: impl Into<Bytes>,
    ) -> Self {
        Self {
            method: method.into(),
            scheme: Bytes::from_static(b"https"),
            authority: authority.into(),
            path: path.into(),
            protocol: Bytes::new(),
            fields: Vec::new(),
        }
    }

    /// A GET for a resource of `https`.
    #[must_use]
    pub fn get(authority: impl Into<Bytes>, path: impl Into<Bytes>) -> Self {
        Self::new(Bytes::from_static(b"GET"), authority, path)
    }

    /// A request for a tunnel to `authority`, host and port (RFC 9114 §4.4).
    #[must_use]
    pub fn connect(authority: impl Into<Bytes>) -> Self {
        Self {
            method: Bytes::from_static(b"CONNECT"),
            authority: authority.into(),
            ..Self::default()
        }
    }

    /// The same with a field added.
    #[must_use]
    pub fn with(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.fields.push(field(name, value));
        self
    }

    /// Whether it asks for a tunnel, extended CONNECT included.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.method == "CONNECT"
    }

    /// Pseudo-header fields, then fields.
    pub(crate) fn section(&self) -> impl Iterator<Item = FieldRef<'_>> + Clone {
        let pseudo = [
            FieldRef::new(b":method", &self.method),
            FieldRef::new(b":scheme", &self.scheme),
            FieldRef::new(b":authority", &self.authority),
            FieldRef::new(b":path", &self.path),
            FieldRef::new(b":protocol", &self.protocol),
        ];
        pseudo
            .into_iter()
            .filter(|field| !field.value.is_empty())
            .chain(lines(&self.fields))
    }
}

impl Response {
    /// A response without fields.
    #[must_use]
    pub fn new(status: u16) -> Self {
        Self {
            status,
            fields: Vec::new(),
        }
    }

    /// The same with a field added.
    #[must_use]
    pub fn with(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.fields.push(field(name, value));
        self
    }

    /// Whether another response to the same request follows (RFC 9110 §15.2).
    #[must_use]
    pub fn is_informational(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// Whether it never has content, whatever was asked (RFC 9110 §6.4.1).
    #[must_use]
    pub fn is_empty_by_status(&self) -> bool {
        matches!(self.status, 204 | 304)
    }

    /// `:status`, whose digits the caller lends room, then fields.
    pub(crate) fn section<'a>(
        &'a self,
        digits: &'a mut [u8; 3],
    ) -> impl Iterator<Item = FieldRef<'a>> + Clone {
        let status = self.status;
        *digits = [status / 100, status / 10, status].map(|n| b'0' | (n % 10) as u8);
        let status = FieldRef::new(b":status", &digits[..]);
        core::iter::once(status).chain(lines(&self.fields))
    }
}

/// Fields as they are encoded.
pub(crate) fn lines(fields: &[Field]) -> impl Iterator<Item = FieldRef<'_>> + Clone {
    fields.iter().map(Field::as_ref)
}

/// A field that may be kept in the compression table.
#[must_use]
pub fn field(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Field {
    Field {
        name: name.into(),
        value: value.into(),
        sensitive: false,
    }
}

/// The size of a field section (RFC 9114 §4.2.2), bytes.
pub(crate) fn section_size<'a>(fields: impl Iterator<Item = FieldRef<'a>>) -> u64 {
    fields
        .map(|f| qpack::field_size(f.name, f.value) as u64)
        .sum()
}

/// The first value of the field `name`, which is lowercase.
#[must_use]
pub fn find<'a>(fields: &'a [Field], name: &[u8]) -> Option<&'a Bytes> {
    fields.iter().find(|f| f.name == name).map(|f| &f.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudo_headers_come_first_and_absent_ones_not_at_all() {
        let request = Request::connect("example.org:443").with("user-agent", "x");
        let names: Vec<_> = request.section().map(|f| f.name).collect();
        assert_eq!(names, [&b":method"[..], b":authority", b"user-agent"]);
        let size = (7 + 7) + (10 + 15) + (10 + 1) + 3 * 32;
        assert_eq!(section_size(request.section()), size);
    }

    #[test]
    fn any_status_has_its_digits() {
        for code in 100..1000 {
            let response = Response::new(code);
            let mut digits = [0; 3];
            let status = response.section(&mut digits).next().unwrap();
            assert_eq!(status.value, code.to_string().as_bytes());
        }
    }
}
