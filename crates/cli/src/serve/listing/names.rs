//! The names in a directory at one moment.

use std::ffi::CStr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::fs::{Dir, FileType, Stat};
use rustix::io::Errno;

use super::super::limits::{BufferCharge, Buffers, CancelFlag};
use super::super::site_path::UPLOAD_PREFIX;

/// Maximum number of names listed. A page of that many is some 6 MB.
const MOST: usize = 100_000;

/// Memory of a name besides its bytes: its position.
const PER_NAME: u64 = size_of::<(u32, u16)>() as u64;

/// File systems record changes by the kernel's tick, 10 ms at worst; another change within this
/// time might not be visible.
const TICK: Duration = Duration::from_millis(100);

/// The same for times in whole seconds, or even seconds (FAT).
const COARSE_TICK: Duration = Duration::from_secs(3);

/// Number of names read between two checks whether the client has gone.
const STRIDE: usize = 64;

/// The names in a directory, sorted.
#[derive(Debug)]
pub(super) struct Names {
    text: Vec<u8>,
    /// Where each begins, and its length.
    places: Vec<(u32, u16)>,
    /// Whether there are more than are listed.
    pub(super) more: bool,
    _charge: BufferCharge,
}

/// The identity and state of a directory: while this is the same, so are its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Version([i128; 6]);

/// Why a directory cannot be listed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ListingError {
    System(Errno),
    /// Other listings use all the memory for names.
    Busy,
    /// The client has gone.
    CancelFlag,
}

impl From<Errno> for ListingError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl Names {
    /// Reads a directory, including names that begin with a dot if `hidden` is set. Blocks.
    ///
    /// # Errors
    /// If it cannot be read, there is no memory for it, or the client has gone.
    pub(super) fn read(
        directory: &OwnedFd,
        memory: &Arc<Buffers>,
        hidden: bool,
        abandoned: &CancelFlag,
    ) -> Result<Self, ListingError> {
        let (mut text, mut places) = (Vec::new(), Vec::new());
        let mut more = false;
        for (i, entry) in Dir::read_from(directory)?.enumerate() {
            if i % STRIDE == 0 && abandoned.get() {
                return Err(ListingError::CancelFlag);
            }
            let entry = entry?;
            if !may_be_listed(entry.file_name(), entry.file_type(), hidden) {
                continue;
            }
            let name = entry.file_name().to_bytes();
            let (Ok(start), Ok(length)) = (u32::try_from(text.len()), u16::try_from(name.len()))
            else {
                return Err(ListingError::System(Errno::OVERFLOW));
            };
            if places.len() == MOST {
                more = true;
                break;
            }
            text.extend_from_slice(name);
            places.push((start, length));
        }
        text.shrink_to_fit();
        places.shrink_to_fit();
        let bytes = text.len() as u64 + PER_NAME * places.len() as u64;
        let charge = memory.try_charge(bytes).ok_or(ListingError::Busy)?;
        places.sort_unstable_by(|&a, &b| at(&text, a).cmp(at(&text, b)));
        Ok(Self {
            text,
            places,
            more,
            _charge: charge,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// The names from `first` on.
    pub(super) fn from(&self, first: usize) -> impl Iterator<Item = &[u8]> {
        let places = self.places.get(first..).unwrap_or_default();
        places.iter().map(|&place| at(&self.text, place))
    }
}

fn at(text: &[u8], (start, length): (u32, u16)) -> &[u8] {
    let start = start as usize;
    text.get(start..start + usize::from(length))
        .unwrap_or_default()
}

/// Whether an entry may be listed, by its name, and by its type if the file system reports it.
fn may_be_listed(name: &CStr, kind: FileType, hidden: bool) -> bool {
    let name = name.to_bytes();
    let servable = match kind {
        FileType::RegularFile | FileType::Directory | FileType::Symlink | FileType::Unknown => true,
        FileType::Fifo | FileType::Socket | FileType::CharacterDevice | FileType::BlockDevice => {
            false
        }
    };
    servable
        && (hidden || !name.starts_with(b"."))
        && !matches!(name, b"." | b"..")
        && !name.starts_with(UPLOAD_PREFIX.as_bytes())
}

impl Version {
    /// The state of a directory at `now`; `None` while it is so new that it might change again
    /// without a visible change.
    pub(super) fn of(stat: &Stat, now: SystemTime) -> Option<Self> {
        let seconds = u64::try_from(stat.st_mtime).ok()?;
        let modified = SystemTime::UNIX_EPOCH
            .checked_add(Duration::new(seconds, stat.st_mtime_nsec as u32))?;
        let age = now.duration_since(modified).ok()?;
        let tick = match stat.st_mtime_nsec {
            0 => COARSE_TICK,
            _ => TICK,
        };
        (age > tick).then_some(Self([
            stat.st_dev.into(),
            stat.st_ino.into(),
            stat.st_mtime.into(),
            stat.st_mtime_nsec.into(),
            stat.st_ctime.into(),
            stat.st_ctime_nsec.into(),
        ]))
    }
}
