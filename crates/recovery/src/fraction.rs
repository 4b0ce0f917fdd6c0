//! Products of two numbers divided by a third, without overflow.
//!
//! They are computed for every packet and ACK. A division of 128 bits takes several times as long as
//! one of 64, and next to all of these products fit.

/// Returns `factor · other / divisor`, rounded down, saturating. A divisor of zero counts as one.
#[inline]
pub(crate) fn mul_div(factor: u64, other: u64, divisor: u64) -> u64 {
    let divisor = divisor.max(1);
    match factor.checked_mul(other) {
        Some(product) => product / divisor,
        None => {
            let quotient = u128::from(factor) * u128::from(other) / u128::from(divisor);
            u64::try_from(quotient).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn quotient_is_that_of_128_bits(
            factor: u64,
            other in prop_oneof![0..1_u64 << 20, any::<u64>()],
            divisor in prop_oneof![0..1_u64 << 20, any::<u64>()],
            shift in 0..64_u32,
        ) {
            let factor = factor >> shift;
            let exact = u128::from(factor) * u128::from(other) / u128::from(divisor.max(1));
            let exact = u64::try_from(exact).unwrap_or(u64::MAX);
            prop_assert_eq!(mul_div(factor, other, divisor), exact);
        }
    }
}
