//! The encryption of connection IDs (draft-ietf-quic-load-balancers §5.4).

use aws_lc_rs::cipher::{
    AES_128, DecryptingKey, DecryptionContext, EncryptingKey, UnboundCipherKey,
};

/// Length of a key in bytes.
pub const KEY_LEN: usize = 16;

/// Length of an AES block in bytes; plaintexts of this length are encrypted in a single pass.
const BLOCK_LEN: usize = 16;

/// Longest plaintext in bytes: a connection ID of 20 bytes without its first octet.
pub(super) const MAX_PLAINTEXT: usize = 19;

/// Encrypts and decrypts connection IDs with AES-128-ECB, in one pass or four.
pub(super) struct CidCipher {
    forward: EncryptingKey,
    inverse: DecryptingKey,
}

/// Which bits of a block hold the two halves of a plaintext, and the length that enters each pass.
#[derive(Clone, Copy)]
struct Layout {
    len: usize,
    half: usize,
    left: u128,
    right: u128,
}

impl Layout {
    /// An octet in the middle is split: its high bits are the last of the left half, its low bits
    /// the first of the right half.
    fn new(len: usize) -> Self {
        let half = len.div_ceil(2);
        let top = |bits: usize| {
            let shift = u32::try_from(128_usize.saturating_sub(bits)).unwrap_or(128);
            u128::MAX.checked_shl(shift).unwrap_or(0)
        };
        let odd = len % 2 == 1;
        Self {
            len,
            half,
            left: top(len.saturating_mul(4)),
            right: top(half.saturating_mul(8)) & if odd { u128::MAX >> 4 } else { u128::MAX },
        }
    }

    fn split(self, bytes: &[u8]) -> Option<(u128, u128)> {
        let load = |part: &[u8]| {
            let mut block = [0; BLOCK_LEN];
            block.get_mut(..part.len())?.copy_from_slice(part);
            Some(u128::from_be_bytes(block))
        };
        let left = load(bytes.get(..self.half)?)? & self.left;
        let right = load(bytes.get(self.len.checked_sub(self.half)?..)?)? & self.right;
        Some((left, right))
    }

    fn join(self, left: u128, right: u128, bytes: &mut [u8]) -> Option<()> {
        bytes.fill(0);
        let store = |part: &mut [u8], block: u128| {
            for (to, from) in part.iter_mut().zip(block.to_be_bytes()) {
                *to |= from;
            }
        };
        store(bytes.get_mut(..self.half)?, left);
        store(bytes.get_mut(self.len.checked_sub(self.half)?..)?, right);
        Some(())
    }
}

impl CidCipher {
    /// Creates the cipher of a key. `None` if the cryptographic library refuses it.
    pub(super) fn new(key: &[u8; KEY_LEN]) -> Option<Self> {
        let key = || UnboundCipherKey::new(&AES_128, key).ok();
        Some(Self {
            forward: EncryptingKey::ecb(key()?).ok()?,
            inverse: DecryptingKey::ecb(key()?).ok()?,
        })
    }

    /// Encrypts a plaintext of 5 to 19 bytes in place.
    pub(super) fn seal(&self, bytes: &mut [u8]) -> Option<()> {
        if bytes.len() == BLOCK_LEN {
            return self.forward.encrypt(bytes).ok().map(drop);
        }
        self.permute(bytes)
    }

    /// Decrypts in place. With four passes only the first `wanted` bytes are certain to be
    /// decrypted, because the last pass is left out if they are in the left half.
    pub(super) fn open(&self, bytes: &mut [u8], wanted: usize) -> Option<()> {
        if bytes.len() == BLOCK_LEN {
            let opened = self.inverse.decrypt(bytes, DecryptionContext::None);
            return opened.ok().map(drop);
        }
        let layout = Layout::new(bytes.len());
        let (left, right) = layout.split(bytes)?;
        let left = left ^ (self.round(layout, 4, right)? & layout.left);
        let mut right = right ^ (self.round(layout, 3, left)? & layout.right);
        let left = left ^ (self.round(layout, 2, right)? & layout.left);
        // The whole bytes of the left half.
        if wanted > layout.len / 2 {
            right ^= self.round(layout, 1, left)? & layout.right;
        }
        layout.join(left, right, bytes)
    }

    /// Encrypts 2 to 19 bytes in place with four passes, whatever their number.
    pub(super) fn permute(&self, bytes: &mut [u8]) -> Option<()> {
        if !(2..=MAX_PLAINTEXT).contains(&bytes.len()) {
            return None;
        }
        let layout = Layout::new(bytes.len());
        let (left, right) = layout.split(bytes)?;
        let right = right ^ (self.round(layout, 1, left)? & layout.right);
        let left = left ^ (self.round(layout, 2, right)? & layout.left);
        let right = right ^ (self.round(layout, 3, left)? & layout.right);
        let left = left ^ (self.round(layout, 4, right)? & layout.left);
        layout.join(left, right, bytes)
    }

    /// The round function: AES of one half, padded, with the length and the number of the pass.
    fn round(&self, layout: Layout, pass: u8, half: u128) -> Option<u128> {
        let length = u128::try_from(layout.len).ok()?;
        let mut block = (half | length << 8 | u128::from(pass)).to_be_bytes();
        self.forward.encrypt(&mut block).ok()?;
        Some(u128::from_be_bytes(block))
    }
}

impl core::fmt::Debug for CidCipher {
    /// Does not print the key, which is secret.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("CidCipher(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let bytes: Vec<u8> = (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect();
        bytes.try_into().unwrap()
    }

    /// The example of §5.4.2.4. Its step 10 repeats the output of AES with a wrong digit (b3e4…
    /// for b334…); all results, and the connection ID, are right.
    #[test]
    fn four_pass_encryption_example_of_draft() {
        let cipher = CidCipher::new(&hex("fdf726a9893ec05c0632d3956680baf0")).unwrap();
        let layout = Layout::new(7);
        let (left, right) = layout.split(&hex::<7>("31441a9c69c275")).unwrap();
        let top = |half: u128| (half >> 96) as u32;
        assert_eq!((top(left), top(right)), (0x3144_1a90, 0x0c69_c275));

        let right = right ^ (cipher.round(layout, 1, left).unwrap() & layout.right);
        assert_eq!(top(right), 0x0e3c_1ff9);
        let left = left ^ (cipher.round(layout, 2, right).unwrap() & layout.left);
        assert_eq!(top(left), 0xd4a0_4850);
        let right = right ^ (cipher.round(layout, 3, left).unwrap() & layout.right);
        assert_eq!(top(right), 0x09be_054a);
        let last = cipher.round(layout, 4, right).unwrap();
        assert_eq!(top(last), 0xb334_357c);
        let left = left ^ (last & layout.left);
        assert_eq!(top(left), 0x6794_7d20);

        let mut sealed = hex::<7>("31441a9c69c275");
        cipher.seal(&mut sealed).unwrap();
        assert_eq!(sealed, hex("67947d29be054a"));
    }

    #[test]
    fn permutation_of_two_bytes_has_no_collision() {
        let cipher = CidCipher::new(&[7; KEY_LEN]).unwrap();
        let mut seen = vec![false; 1 << 16];
        for n in 0..=u16::MAX {
            let mut bytes = n.to_be_bytes();
            cipher.permute(&mut bytes).unwrap();
            let image = usize::from(u16::from_be_bytes(bytes));
            assert!(!std::mem::replace(&mut seen[image], true), "{image}");
        }
    }

    #[test]
    fn lengths_outside_of_two_to_nineteen_are_refused() {
        let cipher = CidCipher::new(&[7; KEY_LEN]).unwrap();
        for len in [0, 1, 20, 40] {
            assert_eq!(cipher.permute(&mut vec![0; len]), None, "{len}");
        }
    }
}
