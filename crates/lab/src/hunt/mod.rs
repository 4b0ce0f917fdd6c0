//! The search for networks in which a controller does worst.
//!
//! A catalogue has the networks that somebody thought of. A hunt makes up others: a [`Genome`] is a
//! network with its traffic, a [`Breeder`] varies it within [`Bounds`], an [`Envelope`] says what
//! the controller has to reach there, and a [`Hunt`] keeps what comes closest to missing it.
//! What misses it is shrunk to the simplest network that still does, and written as a
//! scenario file. A known failure is listed with its reason ([`KnownCases`]).
//!
//! The idea of evolving networks is CC-Fuzz's (Ray and Seshan, HotNets 2022); that of asking
//! what an algorithm promises is CCAC's (Arun et al., SIGCOMM 2021).

mod bounds;
mod breed;
mod cases;
#[cfg(test)]
mod demand_tests;
mod envelope;
mod evaluate;
mod genome;
mod ideal;
mod journal;
mod search;
mod shrink;
#[cfg(test)]
mod tests;
mod text;

pub use bounds::{Bounds, Range};
pub use breed::Breeder;
pub use cases::{HuntCase, KnownCase, KnownCases, distinct};
pub use envelope::{Demand, Envelope, Envelopes, Growth, Oracle, Response};
pub use evaluate::{Answer, Evaluate, Evaluation, LabEvaluator, Trial, evaluate_with};
pub use genome::{
    AckPolicy, Application, BurstLoss, Genome, INGREDIENTS, JitterGene, LatePackets, Neighbours,
    Outage, Permille, PolicerGene, QueueLimitGene, QueueManagement, Step,
};
pub use journal::{JOURNAL_VERSION, Journal, JournalHeader, JournalLine, Remembering};
pub use search::{Hunt, HuntSettings, Tally};
pub use shrink::{complexity, shrink, simpler};
pub use text::Heading;
