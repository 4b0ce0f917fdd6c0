//! The header sections of requests and responses (RFC 9114 §4.3).

use bytes::Bytes;

use crate::qpack::{self, Field, FieldRef};

/// The header section of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// `:method`.
    pub method: Bytes,
    /// `:scheme`; empty for a CONNECT without `protocol`.
    pub scheme: Bytes,
    /// `:authority`; empty if there is only a `host` field.
    pub authority: Bytes,
    /// `:path`, including the query; empty for a CONNECT without `protocol`.
    pub path: Bytes,
    /// `:protocol` of an extended CONNECT (RFC 9220 §3); otherwise empty.
    pub protocol: Bytes,
    /// The fields, in order. Cookies come as the peer split them
    /// (RFC 9114 §4.2.1).
    pub fields: Vec<Field>,
}

/// The header section of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// `:status`, 100 to 999.
    pub status: u16,
    /// The fields, in order.
    pub fields: Vec<Field>,
}

impl Request {
    /// Creates a request without fields for an `https` resource.
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

    /// Creates a GET request for an `https` resource.
    #[must_use]
    pub fn get(authority: impl Into<Bytes>, path: impl Into<Bytes>) -> Self {
        Self::new(Bytes::from_static(b"GET"), authority, path)
    }

    /// Creates a request for a tunnel to `authority`, a host and port (RFC 9114 §4.4).
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

    /// Returns whether the method is CONNECT, including extended CONNECT.
    #[must_use]
    pub fn is_connect(&self) -> bool {
        self.method == "CONNECT"
    }

    /// Iterates over the pseudo-header fields, then the other fields.
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
            .chain(field_refs(&self.fields))
    }
}

impl Response {
    /// Creates a response without fields.
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

    /// Returns whether this is an interim (1xx) response, which another one follows (RFC 9110
    /// §15.2).
    #[must_use]
    pub(crate) fn is_informational(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// Returns whether the status means that there is no content, whatever the request was (RFC
    /// 9110 §6.4.1).
    #[must_use]
    pub(crate) fn has_no_content(&self) -> bool {
        matches!(self.status, 204 | 304)
    }

    /// Iterates over `:status`, whose digits are written to `digits`, then the other fields.
    pub(crate) fn section<'a>(
        &'a self,
        digits: &'a mut [u8; 3],
    ) -> impl Iterator<Item = FieldRef<'a>> + Clone {
        let status = self.status;
        *digits = [status / 100, status / 10, status].map(|n| b'0' | (n % 10) as u8);
        let status = FieldRef::new(b":status", &digits[..]);
        core::iter::once(status).chain(field_refs(&self.fields))
    }
}

/// Borrows the fields for encoding.
pub(crate) fn field_refs(fields: &[Field]) -> impl Iterator<Item = FieldRef<'_>> + Clone {
    fields.iter().map(Field::as_ref)
}

/// Creates a field that may be added to the QPACK dynamic table.
#[must_use]
pub fn field(name: impl Into<Bytes>, value: impl Into<Bytes>) -> Field {
    Field {
        name: name.into(),
        value: value.into(),
        sensitive: false,
    }
}

/// Returns the size of a field section, in bytes (RFC 9114 §4.2.2).
pub(crate) fn section_size<'a>(fields: impl Iterator<Item = FieldRef<'a>>) -> u64 {
    fields
        .map(|f| qpack::field_size(f.name, f.value) as u64)
        .sum()
}

/// Returns the value of the first field called `name`, which must be lowercase.
#[must_use]
pub(crate) fn find_field<'a>(fields: &'a [Field], name: &[u8]) -> Option<&'a Bytes> {
    fields.iter().find(|f| f.name == name).map(|f| &f.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pseudo_headers_come_first_and_absent_ones_are_omitted() {
        let request = Request::connect("example.org:443").with("user-agent", "x");
        let names: Vec<_> = request.section().map(|f| f.name).collect();
        assert_eq!(names, [&b":method"[..], b":authority", b"user-agent"]);
        let size = (7 + 7) + (10 + 15) + (10 + 1) + 3 * 32;
        assert_eq!(section_size(request.section()), size);
    }

    #[test]
    fn every_status_is_encoded_as_three_digits() {
        for code in 100..1000 {
            let response = Response::new(code);
            let mut digits = [0; 3];
            let status = response.section(&mut digits).next().unwrap();
            assert_eq!(status.value, code.to_string().as_bytes());
        }
    }
}
