//! Warnings about options that the system did not grant: each once per process, however many
//! sockets it opens, with what can be done about it.

use std::io;
use std::sync::Once;

use crate::{Buffer, Options, Report};

/// The warnings already given.
#[derive(Debug)]
pub(crate) struct Warnings {
    receive_buffer: Once,
    send_buffer: Once,
    gso: Once,
    gro: Once,
    dont_fragment: Once,
}

/// Those of the process.
pub(crate) static WARNINGS: Warnings = Warnings::new();

impl Warnings {
    const fn new() -> Self {
        Self {
            receive_buffer: Once::new(),
            send_buffer: Once::new(),
            gso: Once::new(),
            gro: Once::new(),
            dont_fragment: Once::new(),
        }
    }

    /// Warns if the kernel's receive buffer is smaller than requested.
    pub(crate) fn of_receive_buffer(&self, buffer: Buffer, refusal: Option<io::Error>) {
        if buffer.clamped() {
            let warn = || warn_of_buffer("receive", "net.core.rmem_max", buffer, refusal);
            self.receive_buffer.call_once(warn);
        }
    }

    /// Warns if the kernel's send buffer is smaller than requested.
    pub(crate) fn of_send_buffer(&self, buffer: Buffer, refusal: Option<io::Error>) {
        if buffer.clamped() {
            let warn = || warn_of_buffer("send", "net.core.wmem_max", buffer, refusal);
            self.send_buffer.call_once(warn);
        }
    }

    /// Warns about each of `options` that `report` says is not in effect.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux is asked for them")
    )]
    pub(crate) fn of_offload(&self, options: &Options, report: &Report) {
        if options.gso && report.gso_segments < 2 {
            self.gso.call_once(|| {
                tracing::warn!(
                    "asked for UDP segmentation offload (UDP_SEGMENT), which this kernel does not \
                     grant: every datagram sent costs a system call; Linux 4.18 and later have it"
                );
            });
        }
        if options.gro && !report.gro {
            self.gro.call_once(|| {
                tracing::warn!(
                    "asked for UDP receive offload (UDP_GRO), which this kernel does not grant: \
                     receiving costs more CPU time; Linux 5.0 and later have it"
                );
            });
        }
        if options.dont_fragment && !report.dont_fragment {
            self.dont_fragment.call_once(|| {
                tracing::warn!(
                    "asked to send without fragmentation (IP_MTU_DISCOVER), which this system \
                     does not grant: path MTU discovery stays off, so datagrams stay small"
                );
            });
        }
    }
}

fn warn_of_buffer(which: &str, limit: &str, buffer: Buffer, refusal: Option<io::Error>) {
    let Buffer { asked, granted } = buffer;
    let why = refusal.map_or_else(String::new, |error| format!(" ({error})"));
    let cure = if cfg!(target_os = "linux") {
        format!("; to raise the limit: sysctl -w {limit}={asked}")
    } else {
        String::new()
    };
    tracing::warn!(
        "asked for a UDP {which} buffer of {asked} bytes, the system granted {granted}{why}: \
         bursts may overflow it and lose datagrams{cure}"
    );
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Every event's message.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut self.clone());
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    impl Visit for Log {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            if field.name() == "message" {
                self.0.lock().unwrap().push(format!("{value:?}"));
            }
        }
    }

    fn said(by: impl FnOnce(&Warnings)) -> Vec<String> {
        let log = Log::default();
        let warnings = Warnings::new();
        tracing::subscriber::with_default(log.clone(), || by(&warnings));
        Arc::try_unwrap(log.0).unwrap().into_inner().unwrap()
    }

    #[test]
    fn clamped_buffer_is_reported_once_with_what_to_do() {
        let clamped = Buffer {
            asked: 4_194_304,
            granted: 212_992,
        };
        let said = said(|warnings| {
            for _ in 0..3 {
                warnings.of_receive_buffer(clamped, None);
                warnings.of_send_buffer(clamped, Some(io::ErrorKind::PermissionDenied.into()));
            }
        });
        assert_eq!(said.len(), 2, "{said:#?}");
        assert!(said[0].starts_with(
            "asked for a UDP receive buffer of 4194304 bytes, the system granted 212992: bursts"
        ));
        if cfg!(target_os = "linux") {
            assert!(said[0].ends_with("sysctl -w net.core.rmem_max=4194304"));
            assert!(said[1].ends_with("sysctl -w net.core.wmem_max=4194304"));
        }
        assert!(
            said[1].contains("granted 212992 (permission denied)"),
            "{said:#?}"
        );
    }

    #[test]
    fn refused_offload_is_reported_once_and_only_if_it_was_asked_for() {
        let asked = Options::default();
        let not_asked = Options {
            gso: false,
            gro: false,
            dont_fragment: false,
            ..Options::default()
        };
        let nothing = Report {
            gso_segments: 1,
            ..Report::default()
        };
        assert!(said(|warnings| warnings.of_offload(&not_asked, &nothing)).is_empty());
        let said = said(|warnings| {
            warnings.of_offload(&asked, &nothing);
            warnings.of_offload(&asked, &nothing);
        });
        for (said, option) in said
            .iter()
            .zip(["UDP_SEGMENT", "UDP_GRO", "IP_MTU_DISCOVER"])
        {
            assert!(said.starts_with("asked") && said.contains(option), "{said}");
        }
        assert_eq!(said.len(), 3);
    }

    #[test]
    fn granted_options_cause_no_warning() {
        let granted = Buffer {
            asked: 1,
            granted: 4_096,
        };
        assert!(said(|warnings| warnings.of_receive_buffer(granted, None)).is_empty());
    }
}
