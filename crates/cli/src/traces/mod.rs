//! Traces that commands read: which files, what is in them, in order of time.

mod captured;
mod files;
mod index;
mod load;
mod open;
mod order;
mod reader;

pub(crate) use self::captured::unreadable_records;
pub(crate) use self::files::files;
pub(crate) use self::index::{Drawn, Index};
pub(crate) use self::load::{TraceFile, load, load_from};
pub(crate) use self::open::Compression;
pub(crate) use self::order::{EventSorter, OutOfOrder};
pub(crate) use self::reader::{SecretsOption, TraceReader};
