//! Injected failures of system calls.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::linux::Call;

/// The plan of which system calls fail; clones are handles to the same plan. See
/// [`crate::Socket::bind_with_faults`].
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<Plan>>);

#[derive(Debug, Default)]
struct Plan {
    calls: HashMap<Call, Fault>,
    skipped: Duration,
}

#[derive(Clone, Copy, Debug, Default)]
struct Fault {
    errno: i32,
    /// Fails every n-th call; 0 means never.
    period: usize,
    /// How many more times it fails.
    left: usize,
    calls: usize,
    injected: usize,
}

impl Faults {
    /// Creates a plan without faults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the next `times` calls fail.
    pub fn next(&self, call: Call, errno: i32, times: usize) {
        self.plan(call, errno, 1, times);
    }

    /// Makes every call fail from now on.
    pub fn always(&self, call: Call, errno: i32) {
        self.plan(call, errno, 1, usize::MAX);
    }

    /// Makes one call in `period` fail from now on, beginning with the `period`th.
    pub fn every(&self, call: Call, errno: i32, period: usize) {
        self.plan(call, errno, period, usize::MAX);
    }

    /// Makes no call fail from now on.
    pub fn stop(&self) {
        for fault in self.lock().calls.values_mut() {
            fault.left = 0;
        }
    }

    /// Number of faults injected so far.
    #[must_use]
    pub fn injected(&self, call: Call) -> usize {
        self.lock()
            .calls
            .get(&call)
            .map_or(0, |fault| fault.injected)
    }

    /// Advances the socket's clock by `by`.
    pub fn skip(&self, by: Duration) {
        let mut plan = self.lock();
        plan.skipped = plan.skipped.saturating_add(by);
    }

    fn plan(&self, call: Call, errno: i32, period: usize, left: usize) {
        let mut plan = self.lock();
        let fault = plan.calls.entry(call).or_default();
        *fault = Fault {
            errno,
            period,
            left,
            calls: 0,
            injected: fault.injected,
        };
    }

    /// The errno with which a call made now fails.
    pub(crate) fn meet(&self, call: Call) -> Option<i32> {
        let mut plan = self.lock();
        let fault = plan.calls.get_mut(&call)?;
        fault.calls = fault.calls.wrapping_add(1);
        if fault.left == 0 || fault.calls.checked_rem(fault.period)? != 0 {
            return None;
        }
        if fault.left != usize::MAX {
            fault.left = fault.left.saturating_sub(1);
        }
        fault.injected = fault.injected.saturating_add(1);
        Some(fault.errno)
    }

    pub(crate) fn skipped(&self) -> Duration {
        self.lock().skipped
    }

    fn lock(&self) -> MutexGuard<'_, Plan> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
