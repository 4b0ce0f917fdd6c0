//! Random operations of two applications over a bad path. After every step the ledger is consistent, and
//! a timer is armed whenever data is outstanding. In the end all finished streams have arrived, byte for
//! byte.
//!
//! `PROPTEST_CASES=3000 cargo test --release --test it operations::` runs more.

mod keyed;
mod model;
mod ops;
mod tap;

use model::Model;
use ops::ops;
use proptest::prelude::*;

/// Sequences run without `PROPTEST_CASES`.
const CASES: u32 = 1500;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES),
        failure_persistence: None,
        max_shrink_iters: 400,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_operations_keep_invariants_and_deliver_content(seed in any::<u32>(), ops in ops()) {
        let mut model = Model::new(u64::from(seed));
        for op in &ops {
            model.apply(op);
            if model.is_closed() {
                break;
            }
        }
        model.conclude();
    }
}
