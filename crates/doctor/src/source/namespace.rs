//! Network namespaces: a thread enters one, and everything it reads is of that one.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::Error;

/// Which network namespace to look at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespace {
    /// That of this program.
    #[default]
    Own,
    /// One with a name of `ip netns`, or the path of a file that stands for one.
    Named(String),
    /// That of a process.
    OfProcess(u32),
}

impl Namespace {
    fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Own => None,
            Self::Named(path) if path.contains('/') => Some(PathBuf::from(path)),
            Self::Named(name) => Some(PathBuf::from("/run/netns").join(name)),
            Self::OfProcess(pid) => Some(PathBuf::from(format!("/proc/{pid}/ns/net"))),
        }
    }

    /// Whether it is the one that this thread is in.
    fn is_current(path: &Path) -> bool {
        let id = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino));
        let own = id(Path::new("/proc/thread-self/ns/net"));
        own.is_ok() && own == id(path)
    }

    /// Moves the calling thread into the namespace.
    fn enter(&self) -> Result<(), Error> {
        let Some(path) = self.path() else {
            return Ok(());
        };
        // Needs no permission, unlike entering.
        if Self::is_current(&path) {
            return Ok(());
        }
        let entered = File::open(&path).and_then(|file| {
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                .map_err(io::Error::from)
        });
        entered.map_err(|error| Error::Namespace {
            namespace: self.to_string(),
            error,
        })
    }

    /// Runs `work` on a thread of its own that is in the namespace.
    ///
    /// # Errors
    /// If the namespace cannot be entered, or those of `work`.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("doctor".into())
                .spawn_scoped(scope, || {
                    self.enter()?;
                    work()
                })
                .map_err(Error::Thread)?;
            match thread.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl core::fmt::Display for Namespace {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Own => f.write_str("this network namespace"),
            Self::Named(name) => write!(f, "the network namespace {name:?}"),
            Self::OfProcess(pid) => write!(f, "the network namespace of process {pid}"),
        }
    }
}
