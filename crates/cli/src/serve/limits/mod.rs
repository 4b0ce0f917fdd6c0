//! Limits on what clients may use of the host: threads, open files, memory, requests.
//!
//! Every limit is shared by all clients, and one connection cannot exhaust any: [`FairSemaphore`]
//! hands out scarce resources in turns, [`Admission`] counts requests, [`Buffers`] the bytes read
//! for clients that have not taken them, and [`descriptors`] divides the open files that the system
//! allows. [`Resources`] holds all of them, and [`Disk`] runs blocking operations.

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

/// A client: one connection, at one address.
///
/// The number of a connection is unique within its shard, and an address belongs to one shard, so
/// that both together are unique. A client that moves counts as another one, which it could also be
/// with a second connection.
pub(crate) type Client = (u64, Option<core::net::SocketAddr>);

/// Maximum number of directories read at once. More would slow down downloads.
const READINGS: usize = 2;

/// The resources that all requests share.
#[derive(Debug)]
pub(super) struct Resources {
    pub(super) admission: Admission,
    pub(super) disk: Arc<Disk>,
    /// Memory for data read ahead.
    pub(super) buffers: Arc<Buffers>,
    /// Memory for names in listings in progress.
    pub(super) names: Arc<Buffers>,
    /// Files that stay open between two pieces.
    pub(super) open_files: FairSemaphore<Client>,
    /// Uploads that have a file.
    pub(super) uploads: FairSemaphore<Client>,
    /// Directories being read.
    pub(super) readings: FairSemaphore<Client>,
}

impl Resources {
    /// Divides the host's resources. Memory in use counts against `account`.
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
