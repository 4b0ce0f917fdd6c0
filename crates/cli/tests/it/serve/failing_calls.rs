//! Programs some of whose system calls fail, as on other file systems and broken disks.

use std::collections::BTreeMap;

use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// A system call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Hard links: `EPERM`, as on file systems that have none.
    Link,
    /// Syncing a file or a directory: `EIO`, as on a broken disk.
    Sync,
}

impl Call {
    fn numbers(self) -> Vec<i64> {
        match self {
            Self::Link => vec![libc::SYS_linkat],
            Self::Sync => vec![libc::SYS_fsync, libc::SYS_fdatasync],
        }
    }

    fn errno(self) -> u32 {
        match self {
            Self::Link => libc::EPERM as u32,
            Self::Sync => libc::EIO as u32,
        }
    }
}

/// Runs `start` on a thread, in which and in whose child processes these calls fail.
pub(crate) fn with_failing<T: Send>(calls: &[Call], start: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            for call in calls {
                let rules: BTreeMap<_, _> = call
                    .numbers()
                    .into_iter()
                    .map(|number| (number, Vec::new()))
                    .collect();
                let filter = SeccompFilter::new(
                    rules,
                    SeccompAction::Allow,
                    SeccompAction::Errno(call.errno()),
                    std::env::consts::ARCH.try_into().unwrap(),
                );
                let program: BpfProgram = filter.unwrap().try_into().unwrap();
                apply_filter(&program).unwrap();
            }
            start()
        });
        thread.join().unwrap()
    })
}
