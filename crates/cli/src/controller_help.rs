//! The help of options that take the name of a congestion controller.

use clearway::CongestionController;

/// Returns `what` and the names that [`CongestionController`] parses.
pub(crate) fn controller_help(what: &str) -> String {
    let names = CongestionController::NAMES.join(", ");
    format!("{what}: {names} or fixed:BYTES")
}
