//! The integer cube root that CUBIC's K needs (RFC 9438 §4.2).

/// The highest bit that the cube root of a 128-bit number can have.
const TOP_BIT: u32 = 42;

/// Returns the largest `r` with `r³ ≤ n`.
///
/// It works bit by bit, not by Newton's method: 43 steps, no starting guess and certain
/// convergence. It runs once per congestion event.
pub(super) fn cube_root(n: u128) -> u64 {
    let mut root = 0_u64;
    for bit in (0..=TOP_BIT).rev() {
        let candidate = root | 1 << bit;
        if cube(candidate).is_some_and(|cube| cube <= n) {
            root = candidate;
        }
    }
    root
}

/// Returns `n³`, or `None` if it exceeds 128 bits.
pub(super) fn cube(n: u64) -> Option<u128> {
    let wide = u128::from(n);
    // Checked multiplication of 128 bits takes far longer, and times are less than this.
    if n < 1 << TOP_BIT {
        return Some(wide * wide * wide);
    }
    wide.checked_mul(wide)?.checked_mul(wide)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn cube_roots_of_small_numbers_are_exact() {
        for (n, root) in [
            (0, 0),
            (1, 1),
            (7, 1),
            (8, 2),
            (26, 2),
            (27, 3),
            (28, 3),
            (999, 9),
        ] {
            assert_eq!(cube_root(n), root, "of {n}");
        }
    }

    #[test]
    fn cube_root_of_the_largest_number_does_not_overflow() {
        let root = cube_root(u128::MAX);
        assert!(cube(root).is_some());
        assert_eq!(cube(root + 1), None);
    }

    proptest! {
        #[test]
        fn cube_root_rounds_down(n: u128) {
            let root = cube_root(n);
            prop_assert!(cube(root).unwrap() <= n);
            prop_assert!(cube(root + 1).is_none_or(|next| next > n));
        }

        #[test]
        fn cube_root_just_below_a_cube_is_one_less(root in 1_u64..6_981_463_658_331) {
            let n = cube(root).unwrap();
            prop_assert_eq!(cube_root(n), root);
            prop_assert_eq!(cube_root(n - 1), root - 1);
        }

        #[test]
        fn cube_root_is_monotonic(a: u128, b: u128) {
            prop_assert_eq!(cube_root(a.min(b)).max(cube_root(a)), cube_root(a));
        }
    }
}
