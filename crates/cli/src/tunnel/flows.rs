//! The table of local programs.

use core::net::SocketAddr;
use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::mpsc::{self, Receiver, Sender};

/// Most programs at once. A QUIC connection to the proxy has 100 streams by default.
const MAX_FLOWS: usize = 100;

/// Packets that wait for a program's tunnel. Beyond them they are dropped.
const MAX_WAITING: usize = 256;

/// Where the packets of each program go.
#[derive(Debug, Default)]
pub(super) struct Flows(HashMap<SocketAddr, Sender<Bytes>>);

/// What becomes of a packet.
#[derive(Debug)]
pub(super) enum Passed {
    /// It was queued.
    Queued,
    /// It was queued, and a flow has to be started for it.
    New(Receiver<Bytes>),
    /// There are too many packets or programs.
    Dropped,
}

impl Flows {
    /// Passes a packet to its program's flow.
    pub(super) fn pass(&mut self, program: SocketAddr, packet: Bytes) -> Passed {
        let packet = match self
            .0
            .get(&program)
            .map(|flow| flow.try_send(packet.clone()))
        {
            Some(Ok(())) => return Passed::Queued,
            Some(Err(mpsc::error::TrySendError::Full(_))) => return Passed::Dropped,
            Some(Err(mpsc::error::TrySendError::Closed(packet))) => packet,
            None => packet,
        };
        if self.0.len() >= MAX_FLOWS {
            self.0.retain(|_, flow| !flow.is_closed());
        }
        if self.0.len() >= MAX_FLOWS && !self.0.contains_key(&program) {
            return Passed::Dropped;
        }
        let (flow, packets) = mpsc::channel(MAX_WAITING);
        // There is room for the first.
        let _ = flow.try_send(packet);
        self.0.insert(program, flow);
        Passed::New(packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(port: usize) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port as u16))
    }

    #[test]
    fn flows_and_their_packets_are_bounded() {
        let mut flows = Flows::default();
        let mut open = Vec::new();
        for port in 0..MAX_FLOWS {
            match flows.pass(program(port), Bytes::from_static(b"first")) {
                Passed::New(packets) => open.push(packets),
                other => panic!("{other:?}"),
            }
        }
        let packet = || Bytes::from_static(b"x");
        assert!(matches!(
            flows.pass(program(9_999), packet()),
            Passed::Dropped
        ));
        for _ in 1..MAX_WAITING {
            assert!(matches!(flows.pass(program(0), packet()), Passed::Queued));
        }
        assert!(matches!(flows.pass(program(0), packet()), Passed::Dropped));
        // One that has ended leaves its place, and may begin again.
        drop(open.remove(5));
        assert!(matches!(
            flows.pass(program(9_999), packet()),
            Passed::New(_)
        ));
        drop(open.remove(0));
        assert!(matches!(flows.pass(program(0), packet()), Passed::New(_)));
    }
}
