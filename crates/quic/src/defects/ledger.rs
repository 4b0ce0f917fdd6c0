//! The defect of a server, and the account of what it did.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A check, known by the error in which it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Check {
    /// The code of the error.
    pub code: u64,
    /// The type of the frame with the error, if it is known.
    pub frame: Option<u64>,
    /// The reason in words.
    pub reason: String,
}

/// An error in which a check ends.
pub trait Reported: Sized {
    /// Returns the check.
    fn check(&self) -> Check;
    /// Returns the error with a code that no peer expects.
    #[must_use]
    fn miscoded(self) -> Self;
}

/// A defect; `Q` is a layer's own kinds of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Defect<Q> {
    /// None: errors are only recorded.
    Nothing,
    /// This check is off: what it would refuse is skipped, or taken for harmless.
    Ignores(Check),
    /// This check answers with the wrong code.
    Miscodes(Check),
    /// Another defect.
    Has(Q),
}

/// The defect of a server, shared by all its connections, and what came of it.
#[derive(Clone, Debug)]
pub struct Defects<Q>(Arc<Shared<Q>>);

#[derive(Debug)]
struct Shared<Q> {
    defect: Defect<Q>,
    account: Mutex<Account>,
}

#[derive(Debug, Default)]
pub(crate) struct Account {
    checks: Vec<Check>,
    uses: usize,
    /// What [`Quirk`](super::Quirk)s have to remember.
    pub(crate) sequences: BTreeSet<u64>,
    pub(crate) ect0: u64,
    pub(crate) frames: usize,
}

impl Account {
    /// Counts a frame of those that a server succumbs to.
    pub(crate) fn count_frame(&mut self, counts: bool) {
        self.frames = self.frames.saturating_add(usize::from(counts));
    }
}

/// The same server's.
impl<Q> PartialEq for Defects<Q> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl<Q> Eq for Defects<Q> {}

impl<Q: Copy + PartialEq> Defects<Q> {
    /// Creates the account of a server with this defect.
    #[must_use]
    pub fn new(defect: Defect<Q>) -> Self {
        let account = Mutex::default();
        Self(Arc::new(Shared { defect, account }))
    }

    /// Returns the checks that failed, in order.
    #[must_use]
    pub fn failed_checks(&self) -> Vec<Check> {
        self.account().checks.clone()
    }

    /// Returns how often the defect made a difference.
    #[must_use]
    pub fn uses(&self) -> usize {
        self.account().uses
    }

    /// Forgives an error that the defect ignores.
    ///
    /// # Errors
    /// Any other error, with the code that the defect gives it.
    pub fn forgive<E: Reported>(&self, error: E) -> Result<(), E> {
        let check = error.check();
        let outcome = match &self.0.defect {
            Defect::Ignores(ignored) if *ignored == check => Ok(()),
            Defect::Miscodes(miscoded) if *miscoded == check => Err(error.miscoded()),
            Defect::Nothing | Defect::Ignores(_) | Defect::Miscodes(_) | Defect::Has(_) => {
                self.account().checks.push(check);
                return Err(error);
            }
        };
        let mut account = self.account();
        account.uses = account.uses.saturating_add(1);
        account.checks.push(check);
        outcome
    }

    /// Returns whether the server has this defect, without counting it as a use.
    #[must_use]
    pub fn is(&self, quirk: Q) -> bool {
        self.0.defect == Defect::Has(quirk)
    }

    /// Returns whether the server has this defect, which now makes a difference.
    #[must_use]
    pub fn has(&self, quirk: Q) -> bool {
        let has = self.is(quirk);
        let mut account = self.account();
        account.uses = account.uses.saturating_add(usize::from(has));
        has
    }

    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        let account = self.0.account.lock();
        account.unwrap_or_else(PoisonError::into_inner)
    }
}
