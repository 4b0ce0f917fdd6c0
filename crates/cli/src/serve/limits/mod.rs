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

use std::sync::Arc;

pub(super) use admission::{Admission, Admitted};
pub(crate) use buffers::{Buffers, Charge, LARGEST_PIECE};
pub(super) use descriptors::Descriptors;
pub(crate) use disk::{Abandoned, Disk, THREADS};
pub(crate) use fair::{FairSemaphore, Permit};

/// Who uses something: one connection, at one address.
///
/// The number of a connection is its shard's, and an address is one shard's, so
/// that both together are unique. A client that moves counts as another one, which
/// it could be by a second connection as well.
pub(crate) type Client = (u64, Option<core::net::SocketAddr>);

/// Bytes of files and listings that wait for clients, and that downloads may hold
/// before they get smaller pieces: 64 MiB is two pieces each for a hundred downloads
/// at full speed, and more than any disk needs.
const BUFFERED: u64 = 64 << 20;

/// Bytes of file names that listings under way may hold: some sixty directories of
/// 20,000 entries each.
const LISTED: u64 = 32 << 20;

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
    /// Divides what there is.
    pub(super) fn new(descriptors: &Descriptors) -> Self {
        Self {
            admission: Admission::default(),
            disk: Arc::default(),
            buffers: Arc::new(Buffers::new(BUFFERED)),
            names: Arc::new(Buffers::new(LISTED)),
            open_files: FairSemaphore::new(descriptors.open_files, descriptors.open_files / 8),
            uploads: FairSemaphore::new(descriptors.uploads, descriptors.uploads.div_ceil(8)),
            readings: FairSemaphore::new(READINGS, 1),
        }
    }
}
