//! Memory for data that clients have not taken yet.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use clearway::{MemoryAccount, MemoryCharge};

use super::Client;

/// Maximum size of a piece read from a file: large enough that the task switch costs little.
pub(crate) const LARGEST_PIECE: u64 = 256 << 10;

/// The size of a piece when memory is short: a page.
pub(crate) const SMALLEST_PIECE: u64 = 4 << 10;

/// A client may hold the budget divided by the number of clients that hold anything plus this: the
/// first client does not get all of it. Nothing is taken back when others arrive, so `n` clients
/// hold at most `ln(1 + n/4)` times the budget, besides pieces of the smallest size.
const TO_COME: u64 = 4;

/// The share of a client's remaining allowance that one piece may use.
const PART: u64 = 2;

/// An account of memory held, by client. It blocks nobody: the more a client holds, and the more
/// clients there are, the smaller are its pieces, so that everybody makes progress. Memory held by
/// others does not shrink pieces, so that a client with a few downloads is no slower beside clients
/// that request much and read nothing.
#[derive(Debug)]
pub(crate) struct Buffers {
    total: u64,
    held: AtomicU64,
    each: Mutex<HashMap<Client, u64>>,
    /// The account of the server, which all of it counts against.
    memory: MemoryAccount,
}

/// Bytes on the account until dropped.
#[derive(Debug)]
pub(crate) struct BufferCharge {
    buffers: Arc<Buffers>,
    /// `None` if they serve several clients.
    client: Option<Client>,
    bytes: u64,
    _memory: MemoryCharge,
}

impl Buffers {
    /// Creates an account with this budget in bytes.
    pub(crate) fn new(total: u64, memory: MemoryAccount) -> Self {
        Self {
            total,
            held: AtomicU64::new(0),
            each: Mutex::default(),
            memory,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Client, u64>> {
        self.each.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the client holds, and what it may hold.
    fn standing(&self, client: Client) -> (u64, u64) {
        let each = self.lock();
        let held = each.get(&client).copied();
        let clients = each.len() + usize::from(held.is_none());
        let most = self.total / (TO_COME + clients as u64);
        (held.unwrap_or_default(), most)
    }

    /// The size of the next piece for this client, in bytes.
    pub(crate) fn piece(&self, client: Client) -> u64 {
        let (held, most) = self.standing(client);
        let piece = most.saturating_sub(held) / PART;
        piece.clamp(SMALLEST_PIECE, LARGEST_PIECE)
    }

    /// Whether there is memory for reading ahead.
    pub(crate) fn is_ample(&self, client: Client) -> bool {
        let (held, most) = self.standing(client);
        held < most / 2
    }

    /// Charges bytes to this client, whatever the budget.
    pub(crate) fn charge(self: &Arc<Self>, client: Client, bytes: u64) -> BufferCharge {
        *self.lock().entry(client).or_default() += bytes;
        self.enter(Some(client), bytes)
    }

    /// Charges bytes that serve several clients, if the budget allows.
    pub(crate) fn try_charge(self: &Arc<Self>, bytes: u64) -> Option<BufferCharge> {
        let charge = self.enter(None, bytes);
        (self.held.load(Relaxed) <= self.total).then_some(charge)
    }

    fn enter(self: &Arc<Self>, client: Option<Client>, bytes: u64) -> BufferCharge {
        self.held.fetch_add(bytes, Relaxed);
        BufferCharge {
            buffers: self.clone(),
            client,
            bytes,
            _memory: self
                .memory
                .charge(usize::try_from(bytes).unwrap_or(usize::MAX)),
        }
    }

    fn take_back(&self, client: Option<Client>, bytes: u64) {
        self.held.fetch_sub(bytes, Relaxed);
        let Some(client) = client else {
            return;
        };
        let mut each = self.lock();
        if let Some(held) = each.get_mut(&client) {
            *held -= bytes;
            if *held == 0 {
                each.remove(&client);
            }
        }
    }
}

/// Bytes that stay on the account for as long as anybody holds them.
struct ChargedBytes {
    bytes: Bytes,
    _charge: BufferCharge,
}

impl AsRef<[u8]> for ChargedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl BufferCharge {
    /// Keeps these bytes on the account until the last copy is dropped: data that is sent, until
    /// the receiver has acknowledged it.
    pub(crate) fn attach(self, bytes: Bytes) -> Bytes {
        Bytes::from_owner(ChargedBytes {
            bytes,
            _charge: self,
        })
    }
}

impl Drop for BufferCharge {
    fn drop(&mut self) {
        self.buffers.take_back(self.client, self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn client(number: u64) -> Client {
        (number, None)
    }

    /// Has a client begin this many downloads, each with two pieces.
    fn download(buffers: &Arc<Buffers>, number: u64, downloads: usize) -> Vec<BufferCharge> {
        (0..2 * downloads)
            .map(|_| buffers.charge(client(number), buffers.piece(client(number))))
            .collect()
    }

    #[test]
    fn pieces_shrink_under_load_but_never_to_zero() {
        let buffers = Arc::new(Buffers::new(64 * MIB, MemoryAccount::default()));
        assert_eq!(buffers.piece(client(1)), LARGEST_PIECE);
        let charges = download(&buffers, 1, 2_500);
        assert_eq!(buffers.piece(client(1)), SMALLEST_PIECE);
        let held = buffers.held.load(Relaxed);
        let worst = 64 * MIB / TO_COME + 5_000 * SMALLEST_PIECE;
        assert!(held <= worst, "{held}");
        assert!(buffers.try_charge(64 * MIB).is_none());
        drop(charges);
        let bytes = buffers
            .charge(client(1), 5)
            .attach(Bytes::from_static(b"bytes"));
        let rest = bytes.slice(3..);
        drop(bytes);
        assert_eq!(buffers.held.load(Relaxed), 5);
        drop(rest);
        assert_eq!(
            buffers.held.load(Relaxed),
            0,
            "what was refused is not held"
        );
        assert!(buffers.lock().is_empty());
        assert!(buffers.try_charge(64 * MIB).is_some());
    }

    #[test]
    fn client_with_one_download_gets_large_pieces_beside_greedy_ones() {
        for (total, greedy, least) in [
            (64 * MIB, 20, LARGEST_PIECE),
            (22 * MIB, 20, LARGEST_PIECE),
            (64 * MIB, 100, LARGEST_PIECE),
            (22 * MIB, 100, 64 << 10),
        ] {
            let buffers = Arc::new(Buffers::new(total, MemoryAccount::default()));
            let held: Vec<_> = (1..=greedy)
                .map(|number| download(&buffers, number, 100))
                .collect();
            let piece = buffers.piece(client(0));
            assert!(piece >= least, "{piece} bytes beside {greedy} clients");
            let first = buffers.charge(client(0), piece / 2);
            assert!(buffers.is_ample(client(0)), "beside {greedy} clients");
            drop((held, first));
        }
    }

    #[test]
    fn many_clients_exceed_the_buffer_budget_only_logarithmically() {
        let buffers = Arc::new(Buffers::new(64 * MIB, MemoryAccount::default()));
        let held: Vec<_> = (0..1_000)
            .map(|number| download(&buffers, number, 1))
            .collect();
        let bytes = buffers.held.load(Relaxed);
        // ln(1 + 1,000/4) is 5.5.
        let most = 64 * MIB * 11 / 2 + 2_000 * SMALLEST_PIECE;
        assert!(bytes <= most, "{} MiB", bytes >> 20);
        drop(held);
        assert_eq!(buffers.held.load(Relaxed), 0);
    }
}
