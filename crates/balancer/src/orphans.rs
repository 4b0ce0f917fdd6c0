//! Clients whose backend went down.
//!
//! A client that only waits for data sends nothing, so that nobody can answer it with a stateless
//! reset, and it would notice the end of its connection only by its idle timeout. Therefore
//! the balancer sends another backend a packet with the client's connection ID: that backend does
//! not know it, and answers with the stateless reset that all backends with the same secret
//! make (RFC 9000 §10.3), which is forwarded to the client. This happens only for connection IDs
//! of backends that are down, so that nobody can have a living connection reset by it
//! (RFC 9000 §21.11).
//!
//! A backend may answer only few such packets a second (quinn: one in 20 ms), and a packet may be lost,
//! so a client is told again until some backend has answered.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use clearway_quic::cid::ConnectionId;

use crate::backend::BackendId;
use crate::flows::Flows;
use crate::plan::Plan;
use crate::router::Tuple;

/// Most clients that wait for their turn; others find out when they send something.
const MOST: usize = 65_536;

/// How often some have their turn.
const INTERVAL: Duration = Duration::from_millis(50);

/// How many have it: a thousand a second, as many as a server resets by default.
const AT_ONCE: usize = 50;

/// How often a client is told without an answer: two seconds long, if few wait.
const MOST_TRIES: u8 = 40;

/// Length of the packet in bytes: a stateless reset has to be shorter than what it answers
/// (RFC 9000 §10.3.3), and at least 21 bytes long.
const PACKET: usize = 64;

/// A client whose backend went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Orphan {
    pub(crate) client: Tuple,
    /// The connection ID that it used last.
    pub(crate) cid: ConnectionId,
    backend: BackendId,
    /// How often it was told.
    tries: u8,
}

impl Orphan {
    /// Whether it was told before.
    pub(crate) fn is_told(&self) -> bool {
        self.tries > 0
    }
}

/// Clients that are to be told.
#[derive(Debug, Default)]
pub(crate) struct Orphans {
    waiting: VecDeque<Orphan>,
    /// When the present turn began, and how many are still to have it.
    turn: (Duration, usize),
}

impl Orphans {
    /// Adds the clients of backends that `before` sent datagrams to and `after` does not.
    pub(crate) fn find(&mut self, before: &Plan, after: &Plan, flows: &Flows) {
        let is_lost =
            |&id: &BackendId| before.serves_connections(id) && !after.serves_connections(id);
        let backends = before.backends().iter().map(|backend| backend.id);
        let lost: HashSet<BackendId> = backends.filter(is_lost).collect();
        if lost.is_empty() {
            return;
        }
        // All at once: there may be many flows.
        let clients = flows.clients();
        let clients = clients.filter(|(key, _)| lost.contains(&key.backend));
        let orphans = clients.map(|(key, cid)| Orphan {
            client: key.tuple,
            cid,
            backend: key.backend,
            tries: 0,
        });
        let room = MOST.saturating_sub(self.waiting.len());
        self.waiting.extend(orphans.take(room));
    }

    /// Returns the next client whose turn it is at `now`. Those whose backend is up again have
    /// living connections, and are left alone.
    pub(crate) fn next(&mut self, now: Duration, plan: &Plan) -> Option<Orphan> {
        if self.waiting.is_empty() {
            return None;
        }
        let (since, left) = &mut self.turn;
        if now >= since.saturating_add(INTERVAL) {
            // Nobody has two turns at a time.
            (*since, *left) = (now, self.waiting.len().min(AT_ONCE));
        }
        while *left > 0
            && let Some(orphan) = self.waiting.pop_front()
        {
            if !plan.serves_connections(orphan.backend) {
                *left -= 1;
                return Some(orphan);
            }
        }
        None
    }

    /// Has a client that was told just now be told again later.
    pub(crate) fn repeat(&mut self, told: Orphan) {
        let tries = told.tries.saturating_add(1);
        if tries < MOST_TRIES && self.waiting.len() < MOST {
            self.waiting.push_back(Orphan { tries, ..told });
        }
    }
}

/// Returns a packet with a short header that only a backend which knows `cid` could read.
pub(crate) fn packet_for(cid: ConnectionId) -> [u8; PACKET] {
    let mut packet = [0; PACKET];
    let bytes = std::iter::once(&0x40).chain(cid.iter());
    for (place, byte) in packet.iter_mut().zip(bytes) {
        *place = *byte;
    }
    packet
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::backend::BackendState;
    use crate::flows::{FlowCapacity, FlowKey};
    use crate::plan::tests::{backends, config};

    fn plan(down: &[u16]) -> Plan {
        let mut backends = backends(3);
        for backend in &mut backends {
            if down.contains(&backend.id.0) {
                backend.state = BackendState::Down;
            }
        }
        Plan::new(backends, [config()]).unwrap()
    }

    fn tuple(port: u16) -> Tuple {
        Tuple {
            client: SocketAddr::from(([192, 0, 2, 1], port)),
            service: None,
        }
    }

    /// Flows of clients at ports 1 to `count`, of backends 1 and 2 in turn, all
    /// but the last of which were answered.
    fn flows(count: u16) -> Flows {
        let mut flows = Flows::new(FlowCapacity {
            sources: Vec::new(),
            sockets: 1_000,
            flows: 1_000,
            idle: Duration::from_secs(60),
            transparent: None,
        });
        for port in 1..=count {
            let key = FlowKey {
                tuple: tuple(port),
                backend: BackendId(2 - port % 2),
            };
            let cid = ConnectionId::new(&port.to_be_bytes());
            let flow = flows.upstream_of(Duration::ZERO, key, cid).unwrap();
            if port < count {
                flows
                    .client(key.backend, flow.upstream.socket, None)
                    .unwrap();
            }
        }
        flows
    }

    fn all(orphans: &mut Orphans, now: Duration, plan: &Plan) -> Vec<u16> {
        let next = || {
            orphans
                .next(now, plan)
                .map(|orphan| orphan.client.client.port())
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn clients_of_a_backend_that_went_down_are_told_once() {
        let (up, down, flows) = (plan(&[]), plan(&[1]), flows(5));
        let mut orphans = Orphans::default();
        orphans.find(&up, &up, &flows);
        orphans.find(&down, &down, &flows);
        orphans.find(&down, &up, &flows);
        assert!(all(&mut orphans, INTERVAL, &down).is_empty());
        orphans.find(&up, &down, &flows);
        let mut told = all(&mut orphans, INTERVAL, &down);
        told.sort_unstable();
        assert_eq!(told, [1, 3, 5]);
        assert!(all(&mut orphans, 2 * INTERVAL, &down).is_empty());
    }

    #[test]
    fn client_is_told_again_in_later_turns_for_a_while() {
        let down = plan(&[1]);
        let mut orphans = Orphans::default();
        orphans.find(&plan(&[]), &down, &flows(2));
        let mut tries = 0;
        for turn in 1..100 {
            let told: Vec<Orphan> =
                std::iter::from_fn(|| orphans.next(turn * INTERVAL, &down)).collect();
            assert!(told.len() <= 1, "once a turn");
            for orphan in told {
                assert_eq!(orphan.is_told(), tries > 0);
                orphans.repeat(orphan);
                tries += 1;
                assert_eq!(orphans.next(turn * INTERVAL, &down), None);
            }
        }
        assert_eq!(tries, MOST_TRIES);
    }

    #[test]
    fn clients_of_a_removed_backend_are_told() {
        let none = Plan::new(Vec::new(), []).unwrap();
        let mut orphans = Orphans::default();
        orphans.find(&plan(&[]), &none, &flows(5));
        assert_eq!(all(&mut orphans, INTERVAL, &none).len(), 5);
    }

    #[test]
    fn clients_of_a_backend_that_is_up_again_are_left_alone() {
        let (up, down) = (plan(&[]), plan(&[1, 2]));
        let mut orphans = Orphans::default();
        orphans.find(&up, &down, &flows(5));
        let mut told = all(&mut orphans, INTERVAL, &plan(&[2]));
        told.sort_unstable();
        assert_eq!(told, [2, 4]);
        assert!(all(&mut orphans, 2 * INTERVAL, &down).is_empty());
    }

    #[test]
    fn clients_are_told_at_a_bounded_rate() {
        let mut orphans = Orphans::default();
        let down = plan(&[1, 2]);
        orphans.find(&plan(&[]), &down, &flows(131));
        let turns = (1..=4).map(|turn| all(&mut orphans, turn * INTERVAL, &down).len());
        assert_eq!(turns.collect::<Vec<_>>(), [AT_ONCE, AT_ONCE, 31, 0]);
    }

    #[test]
    fn packet_has_a_short_header_and_the_connection_id() {
        let cid = ConnectionId::new(&[7; 20]).unwrap();
        let packet = packet_for(cid);
        assert_eq!((packet[0], &packet[1..21]), (0x40, &[7; 20][..]));
        assert_eq!(packet.len(), PACKET);
    }
}
