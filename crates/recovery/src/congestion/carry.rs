//! Fractions of a byte by which an ACK grows the window.

use crate::fraction::mul_div;

/// Fractional bits kept between ACKs: an error of 2⁻³² byte per ACK would need
/// four billion ACKs to amount to one byte.
const BITS: u32 = 32;

/// The fractional part of a sum of quotients, which is kept instead of dropped.
///
/// At a large window one ACK adds less than a byte; without the carry a window of more than
/// `mds²` bytes would never grow again (RFC 9002 appendix B.5 warns of this).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Carry(u64);

impl Carry {
    /// Adds `numerator / denominator` bytes. Returns the whole bytes to add now. A zero
    /// denominator adds nothing.
    pub(super) fn add(&mut self, numerator: u128, denominator: u128) -> u64 {
        if denominator == 0 {
            return 0;
        }
        let (whole, fraction) = divide(numerator, denominator);
        let sum = self.0 + fraction;
        self.0 = sum & ((1 << BITS) - 1);
        whole.saturating_add(sum >> BITS)
    }
}

/// Returns the whole part of a quotient, saturating, and its fractional part in units of 2⁻³². The
/// denominator is not zero.
fn divide(numerator: u128, denominator: u128) -> (u64, u64) {
    // An ACK of some datagrams at a window of less than 15 MB.
    if let (Ok(numerator), Ok(denominator)) = (u64::try_from(numerator), u32::try_from(denominator))
    {
        let denominator = u64::from(denominator);
        let (whole, rest) = (numerator / denominator, numerator % denominator);
        return (whole, (rest << BITS) / denominator);
    }
    let (whole, rest) = (numerator / denominator, numerator % denominator);
    // The rest is below the denominator, itself at most 17 · 2⁶⁴ here.
    let fraction = rest.saturating_mul(1 << BITS) / denominator;
    (
        u64::try_from(whole).unwrap_or(u64::MAX),
        u64::try_from(fraction).unwrap_or(0),
    )
}

/// Returns `bytes · numerator / denominator`, rounded down, without overflow.
pub(super) fn scale(bytes: u64, numerator: u64, denominator: u64) -> u64 {
    mul_div(bytes, numerator, denominator)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn thirds_of_a_byte_sum_to_whole_bytes() {
        let mut carry = Carry::default();
        let whole: u64 = (0..3_000).map(|_| carry.add(1, 3)).sum();
        assert!(whole == 999 || whole == 1_000, "{whole}");
    }

    #[test]
    fn zero_denominator_earns_nothing() {
        assert_eq!(Carry::default().add(5, 0), 0);
    }

    proptest! {
        #[test]
        fn sum_of_parts_equals_the_whole(
            parts in prop::collection::vec(0_u64..1 << 40, 1..100),
            denominator in 1_u64..u64::MAX,
        ) {
            let mut carry = Carry::default();
            let whole: u64 = parts.iter().map(|&p| carry.add(p.into(), denominator.into())).sum();
            let exact = parts.iter().map(|&p| u128::from(p)).sum::<u128>() / u128::from(denominator);
            let exact = u64::try_from(exact).unwrap();
            prop_assert!(whole <= exact && exact - whole <= 1, "{whole} of {exact}");
        }
    }
}
