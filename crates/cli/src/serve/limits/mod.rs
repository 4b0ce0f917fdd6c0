//! What clients may use of the host: threads, open files, memory, requests.
//!
//! Every limit is shared by all clients, and none can be used up by one connection:
//! [`FairSemaphore`] hands out what is scarce in turns, [`Admission`] counts
//! requests, [`Buffers`] the bytes read for clients that have not taken them,
//! [`descriptors`] divides the open files that the system allows. [`Resources`] is
//! all of them together, and [`Disk`] runs what blocks.

mod admission;
mod buffers;
mod descriptors;
mod disk;
mod fair;
mod memory;

use std::sync::Arc;

use clearway::MemoryAccount;

pub(super) use admission::{Admission, Admitted, most_requests};
pub(crate) use buffers::{BufferCharge, Buffers, LARGEST_PIECE};
pub(super) use descriptors::Descriptors;
pub(crate) use disk::{CancelFlag, Disk, THREADS};
pub(crate) use fair::{FairSemaphore, Permit};
pub(super) use memory::Memory;

/// Who uses something: one connection, at one address.
///
/// The number of a connection is its shard's, and an address is one shard's, so
/// that both together are unique. A client that moves counts as another one, which
/// it could be by a second connection as well.
pub(crate) type Client = (u64, Option<core::net::SocketAddr>);

/// Directories read at once. More of them would take the disk from downloads.
const READINGS: usize = 2;

/// Everything that requests share.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) admission: Admission,
    pub(super) disk: Arc<Disk>,
    /// Bytes read ahead of clients.
    pub(super) buffers: Arc<Buffers>,
    /// Bytes of names in listings under way.
    pub(super) names: Arc<Buffers>,
    /// Files that stay open between two pieces.
    pub(super) open_files: FairSemaphore<Client>,
    /// Uploads that have a file.
    pub(super) uploads: FairSemaphore<Client>,
    /// Directories being read.
    pub(super) readings: FairSemaphore<Client>,
}

impl Resources {
    /// Divides what there is. What is held of it counts against `account`.
    pub(super) fn new(descriptors: &Descriptors, memory: &Memory, account: &MemoryAccount) -> Self {
        Self {
            admission: Admission::new(account.clone()),
            disk: Arc::default(),
            buffers: Arc::new(Buffers::new(memory.buffered, account.clone())),
            names: Arc::new(Buffers::new(memory.listed, account.clone())),
            open_files: FairSemaphore::new(descriptors.open_files, descriptors.open_files / 8),
            uploads: FairSemaphore::new(descriptors.uploads, descriptors.uploads.div_ceil(8)),
            readings: FairSemaphore::new(READINGS, 1),
        }
    }
}
