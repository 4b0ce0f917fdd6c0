//! The lab: production code in modelled networks, in virtual time.
