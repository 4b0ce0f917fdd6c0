//! How an observer is installed, and the events that open its trace.

use super::Connection;
use super::parameters::local_parameters;
use crate::event::{ConnectionState, Observer, RecoveryParameters, TraceEvent};
use crate::{Instant, Role};

impl Connection {
    /// Installs an observer, which receives every event from now on.
    pub fn set_observer(&mut self, observer: Box<dyn Observer>) {
        self.reports.trace.set(observer);
    }

    /// Removes the observer. Nothing is traced any more.
    pub fn take_observer(&mut self) -> Option<Box<dyn Observer>> {
        self.reports.trace.take()
    }

    /// Starts the trace of a new observer. Since an observer is installed without a time,
    /// every public method that may emit an event calls this first.
    #[inline]
    pub(super) fn begin_trace(&mut self, now: Instant) {
        if self.reports.trace.needs_start() {
            self.start_trace(now);
        }
    }

    #[cold]
    fn start_trace(&mut self, now: Instant) {
        let path = self.network.paths.active();
        let recovery = self.network.active_recovery();
        let config = self.network.recovery.config();
        let started = TraceEvent::Started {
            role: self.role,
            local: path.local_ip,
            remote: path.remote,
            original_dcid: self.tls.original_dcid,
            local_cid: self.tls.local_cid,
            recovery: RecoveryParameters {
                controller: recovery.controller().name(),
                window_policy: recovery.controller().window_policy(),
                initial_rtt: config.initial_rtt,
                packet_threshold: config.packet_threshold,
                time_threshold_eighths: config.time_threshold_eighths,
                persistent_congestion_threshold: config.persistent_congestion_threshold,
                max_datagram_size: recovery.mds(),
                initial_window: recovery.window(),
                min_window: recovery.controller().min_window(),
            },
        };
        let trace = &mut self.reports.trace;
        trace.emit_first(now, &started);
        // Not stored for this purpose, but computed again.
        let mut parameters = local_parameters(&self.config, self.role, self.tls.local_cid);
        if self.role == Role::Server {
            parameters.original_destination_connection_id = Some(self.tls.original_dcid);
        }
        parameters.version_information = self.tls.versions.information(self.role, None);
        let (remote, parameters) = (false, &parameters);
        trace.emit_first(now, &TraceEvent::ParametersSet { remote, parameters });
        // An observer that is installed later has missed the peer's.
        if let Some(parameters) = &self.tls.peer_parameters(self.role) {
            let remote = true;
            trace.emit_first(now, &TraceEvent::ParametersSet { remote, parameters });
        }
        let (original, current) = (self.tls.versions.original(), self.tls.versions.current());
        trace.emit_first(now, &TraceEvent::VersionChosen { original, current });
        let attempted = ConnectionState::Attempted;
        trace.emit_first(now, &TraceEvent::StateChanged(attempted));
        trace.emit_first(now, &TraceEvent::Limit(self.network.limit()));
        trace.controller_updated(now, recovery, self.reports.counters.ce_marks);
    }
}
