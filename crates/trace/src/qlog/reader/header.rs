//! The header of a file.

use super::fields::{text, u64_of};
use super::value::Value;
use crate::event::Role;

/// The header of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The end that recorded the trace.
    pub role: Option<Role>,
    /// The vantage point's name, often that of the stack.
    pub name: Option<String>,
    /// The title of the file or the trace.
    pub title: Option<String>,
    /// The schema or version that the file declares.
    pub version: Option<String>,
    /// The group ID that both ends' traces share, often the original Destination Connection ID in
    /// hex.
    pub group: Option<String>,
    /// Number of traces begun in this file.
    pub traces: u64,
    /// Whether times are in microseconds instead of milliseconds.
    pub(super) micros: bool,
    /// Whether times are relative to the previous event.
    pub(super) relative_to_previous: bool,
    /// The names of the fields in events that are arrays, in their order.
    pub(super) event_fields: Vec<String>,
}

impl Header {
    /// Reads a file's header, or that of a later trace in the same file.
    pub(super) fn absorb(&mut self, value: Value<'_>) {
        let owned = |names: &[&str]| text(value, names).map(str::to_owned);
        self.version = owned(&["file_schema", "qlog_version"]).or(self.version.take());
        self.title = owned(&["title"]).or(self.title.take());
        let traces = value.get("traces").and_then(Value::elements);
        let traces: Option<Vec<_>> = traces.map(Iterator::collect);
        let last = traces.as_ref().and_then(|traces| traces.last().copied());
        if let Some(trace) = last.or_else(|| value.get("trace")) {
            self.traces = traces.map_or(1, |traces| traces.len()) as u64;
            self.absorb_trace(trace);
        }
    }

    fn absorb_trace(&mut self, trace: Value<'_>) {
        let owned = |value, names: &[&str]| text(value, names).map(str::to_owned);
        self.title = owned(trace, &["title"]).or(self.title.take());
        if let Some(vantage) = trace.get("vantage_point") {
            self.name = owned(vantage, &["name"]);
            self.role = match text(vantage, &["type"]) {
                Some("client") => Some(Role::Client),
                Some("server") => Some(Role::Server),
                Some("network") => Some(Role::Network),
                _ => None,
            };
        }
        let units = trace
            .get("configuration")
            .and_then(|configuration| text(configuration, &["time_units"]));
        if let Some(common) = trace.get("common_fields") {
            self.group = owned(common, &["group_id", "ODCID", "odcid"]);
            let format = text(common, &["time_format"]);
            self.relative_to_previous =
                matches!(format, Some("relative_to_previous_event" | "delta"));
            let nested = common
                .get("configuration")
                .and_then(|configuration| text(configuration, &["time_units"]));
            self.micros = units.or(nested) == Some("us");
            self.group = self
                .group
                .take()
                .or_else(|| u64_of(common, &["group_id"]).map(|id| id.to_string()));
        } else {
            self.micros = units == Some("us");
        }
        self.event_fields = trace
            .get("event_fields")
            .and_then(Value::elements)
            .map(|fields| {
                let named = fields.filter_map(Value::as_str);
                named.map(str::to_ascii_lowercase).collect()
            })
            .unwrap_or_default();
    }
}
