//! Programs some of whose system calls fail, as on other file systems and broken disks.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

/// A system call that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// Hard links: `EPERM`, as on file systems that have none.
    Link,
    /// Syncing a file or a directory: `EIO`, as on a broken disk.
    Sync,
    /// Forbidding fragmentation: `ENOPROTOOPT`, as where sockets have no such option.
    DontFragment,
    /// Opening a file to write to it: `EROFS`, as in a container whose files are read-only.
    OpenToWrite,
}

impl Call {
    /// The system calls, and which of their arguments fail; without rules, all do.
    fn rules(self) -> BTreeMap<i64, Vec<SeccompRule>> {
        match self {
            Self::Link => BTreeMap::from([(libc::SYS_linkat, vec![])]),
            Self::Sync => {
                BTreeMap::from([(libc::SYS_fsync, vec![]), (libc::SYS_fdatasync, vec![])])
            }
            Self::DontFragment => {
                let options = [
                    (libc::SOL_IP, libc::IP_MTU_DISCOVER),
                    (libc::SOL_IPV6, libc::IPV6_MTU_DISCOVER),
                ];
                let rules = options.map(|(level, name)| {
                    SeccompRule::new(vec![argument(1, level), argument(2, name)]).unwrap()
                });
                BTreeMap::from([(libc::SYS_setsockopt, rules.into())])
            }
            Self::OpenToWrite => {
                let rules = [libc::O_WRONLY, libc::O_RDWR].map(|mode| {
                    let operator = SeccompCmpOp::MaskedEq(libc::O_ACCMODE as u64);
                    let opens = condition(2, operator, mode);
                    SeccompRule::new(vec![opens]).unwrap()
                });
                BTreeMap::from([(libc::SYS_openat, rules.into())])
            }
        }
    }

    fn errno(self) -> u32 {
        match self {
            Self::Link => libc::EPERM as u32,
            Self::Sync => libc::EIO as u32,
            Self::DontFragment => libc::ENOPROTOOPT as u32,
            Self::OpenToWrite => libc::EROFS as u32,
        }
    }
}

/// The argument at `index`, counted from 0, is `value`.
fn argument(index: u8, value: i32) -> SeccompCondition {
    condition(index, SeccompCmpOp::Eq, value)
}

fn condition(index: u8, operator: SeccompCmpOp, value: i32) -> SeccompCondition {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value as u64).unwrap()
}

/// Runs `start` on a thread, in which and in whose child processes these calls fail.
pub(crate) fn with_failing<T: Send>(calls: &[Call], start: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            for call in calls {
                let filter = SeccompFilter::new(
                    call.rules(),
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
